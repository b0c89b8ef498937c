"""The token that ingest's logon answer carries and the other listeners verify by themselves.

    base64url(msgpack of Token) "." base64url(HMAC-SHA-256)

Pure: the key (kept in the instance's 0700 directory) and the time are arguments.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

import msgspec

from zbroker.errors import ClientError

TOKEN_MAX_CHARS: Final = 2_048  # what ListenerLogon accepts


class Token(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A client that was authenticated at ingest. `expires_s`: seconds since 1970.

    key: the CURVE key of that connection; the token is valid with this key only. "" without.
    disconnects: how many disconnects by operators there had been (zbroker.wire.disconnects).
    """

    name: str
    principal: str
    instance: str
    session: int
    expires_s: int
    key: str = ""
    disconnects: int = 0


_DECODER: Final = msgspec.msgpack.Decoder(Token)


def make(key: bytes, said: Token) -> str:
    """The token of one publisher session, for the listeners of the instance that has `key`.

    Raises: ClientError too_large (name, principal and instance are too long together).
    """
    payload = msgspec.msgpack.encode(said)
    token = _text(payload) + "." + _text(_sign(key, payload))
    if len(token) > TOKEN_MAX_CHARS:
        raise ClientError("too_large", "`client` and `instance` are too long together for a token")
    return token


def verify(key: bytes, token: str, now_s: float) -> Token:
    """What `token` says, if this instance made it and it has not expired.

    Raises: ClientError auth_failed.
    """
    head, _, tail = token.partition(".")
    payload, signature = _bytes(head), _bytes(tail)
    if not hmac.compare_digest(_sign(key, payload), signature):
        raise ClientError("auth_failed", "the token was not made by this instance")
    try:
        known = _DECODER.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ClientError("auth_failed", "the token is of another version") from None
    if known.expires_s <= now_s:
        raise ClientError("auth_failed", "the token has expired")
    return known


def _sign(key: bytes, payload: bytes) -> bytes:
    return hmac.digest(key, payload, hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise ClientError("auth_failed", "this is not a token") from None
