"""Decoders of what strangers, files and other processes say about who may do what."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path
from typing import Final

import msgspec

from zbroker.access import format as access_format
from zbroker.access import keys, passwords
from zbroker.admin import audit_format, requests
from zbroker.admin import core as admin
from zbroker.server.listener import zap
from zbroker.sockets import ZAP_DOMAIN
from zbroker.wire import codec, surveys, token
from zbroker.wire import messages as m

KEY: Final = b"k" * 32
PUBLIC: Final = "a" * 40

ACCESS: Final = f"""
[principal.ann]
keys = ["{PUBLIC}"]
roles = ["r"]
names = ["ann", "ann-*"]
[[role.r.allow]]
actions = ["publish", "replay"]
topics = ["orders.*"]
filter = "/n < 5"
[[role.r.deny]]
actions = ["*"]
topics = ["x"]
""".encode()
HASH: Final = passwords.hash_password("secret").encode()
KEY_FILE: Final = f'metadata\ncurve\n    public-key = "{PUBLIC}"\n    secret-key = "{PUBLIC}"\n'
ZAP: Final = [
    b"sender", b"", b"1.0", b"1", ZAP_DOMAIN.encode(), b"10.0.0.1", b"", b"CURVE", bytes(32),
]  # fmt: skip
TOKENS: Final = [
    token.make(KEY, token.Token("ann", "ann", "i", 7, 100, PUBLIC)).encode(),
    token.make(KEY, token.Token("ann", "", "i", 7, 1 << 40)).encode(),
]
QUESTIONS: Final = [
    codec.encode(ask)
    for ask in (
        surveys.AskClients(1, "ann", 10), surveys.Disconnect(2, "ann"),
        surveys.AskSubscriptions(3, "ann", "t", 10), surveys.AskTopics(4),
    )
]  # fmt: skip
ANSWERS: Final = [
    codec.encode(answer)
    for answer in (
        m.Ack("processed", "1", seq=1, endpoints={"a": "tcp://*:1"}, token="t", origin=(1, 1)),
        m.Error("bad_field", "reason", "hint", "1", "s", 1, 2),
        m.Msg("s", 1, 1, 1, 2, 3, topics=["a", "b"], columns=m.Columns(index=bytes(4))),
        m.RangeList(1, 2, 3, 4, [(1, 2, 3)], "c"),
        m.Heartbeat(),
    )
]  # fmt: skip
AUDIT: Final = audit_format.encode(
    audit_format.AuditLine(
        "2026-01-01T00:00:00Z", "ann", "127.0.0.1", "POST /journal/remove", "200", "",
    )
)[0]  # fmt: skip


def mend_token(data: bytes) -> bytes:
    """With the signature that the broker would give it."""
    head = data.partition(b".")[0]
    try:
        payload = base64.urlsafe_b64decode(head + b"=" * (-len(head) % 4))
    except ValueError:
        return data
    tail = base64.urlsafe_b64encode(hmac.digest(KEY, payload, hashlib.sha256)).rstrip(b"=")
    return head + b"." + tail


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def read_token(data: bytes) -> object:
    return token.verify(KEY, text(data), 50)


def read_access(data: bytes) -> object:
    return access_format.parse(text(data), "access.toml")


def read_hash(data: bytes) -> object:
    return passwords.read(text(data))


def read_key_file(data: bytes) -> object:
    return keys._keys(Path("it.key_secret"), text(data))


def read_zap(data: bytes) -> object:
    """No one is let in whose key is not allowed, whatever the question looks like."""
    try:
        frames = msgspec.msgpack.decode(data, type=list[bytes])
    except (msgspec.DecodeError, UnicodeDecodeError):
        frames = data.split(b"\0")
    reply = zap.answer(frames, lambda _key: False)
    assert reply is None or reply[3] in (b"400", b"500")
    return reply


def read_question(data: bytes) -> object:
    codec.decode(surveys.DELIVERY_QUESTIONS, data)
    return codec.decode(surveys.INGEST_QUESTIONS, data)


def read_answer(data: bytes) -> object:
    return codec.decode(codec.ANSWERS, data)


def read_audit(data: bytes) -> object:
    return audit_format.decode(data)


def read_request(data: bytes) -> object:
    """No one without a token gets at anything, however the request is written."""
    method, _, rest = text(data).partition(" ")
    path, _, host = rest.partition(" ")
    request = admin.AdminRequest(method, path.partition("?")[0], host, "127.0.0.1", path)
    refusal = admin.refuse(request, admin.Caller(), secured=True)
    assert refusal is not None or admin.kind_of(request.path) == "open"
    requests.parse_query(requests.SubscriptionsQuery, path.partition("?")[2])
    return requests.parse(requests.HoldRequest, data)
