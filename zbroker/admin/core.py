"""What the admin answers: decided here, moved by http and loop.

    GET /status               everything that processes say, and alarms
    GET /journal              segments, marks, who needs what
    GET /holders              who needs which part of the log
    GET /subscriptions        who is how far behind, and why; ?client=, ?topic=, ?limit=
    GET /actions              what was done to segments and why; /actions/ID is one of them
    POST /journal/archive     {"through": serial} or {"serials": [...]}, "dry_run"?
    POST /journal/compress    likewise
    POST /journal/remove      {"through": serial}, "dry_run"?
    POST /journal/reindex     {}
    POST /journal/hold        {"who", "what", "position", "ttl_s"}; ttl_s 0 ends it

Only peers on loopback are answered, and only when the Host header names this machine's loopback: a
web page that points its own name at 127.0.0.1 would otherwise read it from the user's browser. What
changes something needs the token besides, which stands in a file that its owner alone can read.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from typing import Annotated, Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

from zbroker.config import setting_of
from zbroker.errors import CODES, ClientError
from zbroker.limits import KIB, U63_MAX
from zbroker.wire.internal import Status

BODY_MAX_BYTES: Final = 64 * KIB  # of a POST; 5,000 serials
SUBSCRIPTIONS_MAX: Final = 1_000  # in one answer; who wants more asks by client or topic
HOLD_MAX_S: Final = 30 * 86_400  # whoever needs the log for longer renews it
TOKEN_HEADER: Final = "X-ZBroker-Token"

_JOURNAL_KEYS: Final = ("first_position", "written", "persisted", "segments", "bytes", "durability")
_PROCESS_KEYS: Final = ("room", "pid", "state", "restarts", "uptime_s", "progress")
_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_ACTION: Final = re.compile(r"/actions/([0-9]{1,18})")

READS: Final = ("/status", "/journal", "/holders", "/actions", "/subscriptions")
WRITES: Final = (
    "/journal/archive",
    "/journal/compress",
    "/journal/remove",
    "/journal/reindex",
    "/journal/hold",
)
_STATUS: Final = {
    "forbidden": 403,
    "not_found": 404,
    "segment_held": 409,
    "too_large": 413,
    "too_many": 429,
    "internal": 500,
    "not_ready": 503,
    "disk_full": 507,
}  # any other code is the request's own fault: 400

T = TypeVar("T")
Serial = Annotated[int, Meta(ge=0, le=U63_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]


class Select(Struct, frozen=True, forbid_unknown_fields=True):
    """Which segments: `serials`, or all up to `through`."""

    through: Serial | None = None
    serials: Annotated[list[Serial], Meta(min_length=1)] | None = None
    dry_run: bool = False


class Through(Struct, frozen=True, forbid_unknown_fields=True):
    """The oldest segments up to this one."""

    through: Serial
    dry_run: bool = False


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """A request without any choice."""


class Hold(Struct, frozen=True, forbid_unknown_fields=True):
    """Keep the log from `position` on for `ttl_s`."""

    who: Name
    what: Annotated[str, Meta(max_length=255)]
    position: Annotated[int, Meta(ge=0, le=U63_MAX)]
    ttl_s: Annotated[int, Meta(ge=0, le=HOLD_MAX_S)]


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """Which subscriptions: of this client, on this topic, at most so many."""

    client: Annotated[str, Meta(max_length=255)] = ""
    topic: Annotated[str, Meta(max_length=1024)] = ""
    limit: Annotated[int, Meta(ge=1, le=SUBSCRIPTIONS_MAX)] = SUBSCRIPTIONS_MAX


class Request(NamedTuple):
    """What decides about a request. `token`: as sent; `secret`: what it has to be."""

    method: str
    path: str
    host: str
    peer: str
    token: str = ""
    secret: str = ""


class Refusal(NamedTuple):
    """An HTTP status and what stands in the JSON body."""

    status: int
    code: str
    reason: str
    hint: str = ""

    def body(self) -> dict[str, str]:
        """For the answer."""
        hint = self.hint or CODES.get(self.code, ("", ""))[1]
        return {"code": self.code, "reason": self.reason, "hint": hint}


def refusal(error: ClientError) -> Refusal:
    """The answer to a request that failed with `error`."""
    return Refusal(_STATUS.get(error.code, 400), error.code, error.reason, error.hint)


def refuse(request: Request) -> Refusal | None:
    """Why `request` is not answered, or None when it is."""
    if not _is_loopback(request.peer) or _host_name(request.host) not in _LOCAL_HOSTS:
        reason = "this address answers to this host only, by its loopback name"
        return Refusal(403, "forbidden", reason, "use the address that `zbroker-admin` uses")
    reads = request.path in READS or action_number(request.path) is not None
    if not reads and request.path not in WRITES:
        reason = f"no such path; there are: {', '.join((*READS, '/actions/ID', *WRITES))}"
        return Refusal(404, "not_found", reason, "see docs/reference/cli.md")
    method = "GET" if reads else "POST"
    if request.method != method:
        return Refusal(405, "bad_command", f"this path is for {method}")
    if not reads and not _same(request.token, request.secret):
        reason = f"the header {TOKEN_HEADER} does not carry the token of this instance"
        return Refusal(403, "forbidden", reason, "its owner reads it in run/admin.token")
    return None


def _same(token: str, secret: str) -> bool:
    """In constant time; nothing is the same as no secret."""
    return bool(secret) and hmac.compare_digest(token.encode(), secret.encode())


def action_number(path: str) -> int | None:
    """The ID of `/actions/ID`."""
    match = _ACTION.fullmatch(path)
    return int(match[1]) if match else None


def body_length(length: str, encoding: str) -> int:
    """How many bytes of a body to read, by its headers. Raises: ClientError."""
    if encoding:
        raise ClientError("bad_field", "a body needs Content-Length here", "send it in one piece")
    if not length.isascii() or not length.isdigit():
        raise ClientError("bad_field", "the header Content-Length is missing or no number")
    if len(length) > 18 or int(length) > BODY_MAX_BYTES:
        raise ClientError(
            "too_large", f"a body has at most {BODY_MAX_BYTES} bytes", "ask for fewer at once"
        )
    return int(length)


def parse(kind: type[T], body: bytes) -> T:
    """A request of this kind; an empty body is {}. Raises: ClientError bad_field."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClientError("bad_field", f"the body: {error}", "see docs/reference/cli.md") from None


def parse_query(kind: type[T], query: str) -> T:
    """The same from what stands behind the `?`. Raises: ClientError bad_field."""
    try:
        given = dict(parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=10))
        return msgspec.convert(given, kind, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        hint = "see docs/reference/admin.md"
        raise ClientError("bad_field", f"the query: {error}", hint) from None


def wanted(select: Select) -> tuple[list[int] | None, int]:
    """Its serials, or None and the last of them. Raises: ClientError bad_field."""
    if (select.serials is None) == (select.through is None):
        raise ClientError("bad_field", "either `through` or `serials`", "give one of them")
    return select.serials, select.through or 0


def _is_loopback(peer: str) -> bool:
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def stats_of(status: Status) -> dict[str, dict[str, Any]]:
    """The numbers of each room."""
    rooms: list[dict[str, Any]] = [dict(room) for room in status.rooms]
    return {str(room["room"]): dict(room.get("stats", {})) for room in rooms}


def added(workers: list[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of several workers together; what is no number is the first one's."""
    total: dict[str, Any] = {}
    for numbers in workers:
        for key, value in numbers.items():
            is_number = isinstance(value, int | float) and key in total
            total[key] = total[key] + value if is_number else total.get(key, value)
    return total


def document(
    status: Status, running: dict[str, Any], alarms: list[dict[str, str]], data_dir: str
) -> dict[str, Any]:
    """The answer to GET /status. Keys are added over time, never changed.

    running: what stands in run/instance.json.
    """
    rooms: dict[str, dict[str, Any]] = {str(room["room"]): dict(room) for room in status.rooms}
    stats = stats_of(status)
    delivery = added([numbers for room, numbers in stats.items() if setting_of(room) == "delivery"])
    journal = stats.get("journal", {})
    first = {key: journal.pop(key) for key in _JOURNAL_KEYS if key in journal}
    return {
        "instance": running.get("instance", ""),
        "name": running.get("name", ""),
        "group": running.get("group", ""),
        "state": status.state,
        "url": running.get("url", ""),
        "version": running.get("version", ""),
        "started": running.get("started", ""),
        "data_dir": data_dir,
        "alarms": alarms,
        "endpoints": running.get("endpoints", {}),
        "clients": stats.get("ingest", {}).get("clients", 0),
        "subscriptions": delivery.get("subscriptions", 0),
        "journal": first | journal,
        "ingest": stats.get("ingest", {}),
        "delivery": delivery,
        "processes": [{key: room.get(key, "") for key in _PROCESS_KEYS} for room in rooms.values()],
    }
