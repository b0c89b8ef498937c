"""The requests of the admin, and whether one is answered. Pure.

    GET /health               200 when every process is ready; ?live=1: whenever it answers
    GET /status               everything that processes report, rates and alarms
    GET /journal              segments, watermarks, and the readers that need some
    GET /holders              readers, and the part of the log that each needs
    GET /topics               what is in the log, by topic; ?match=, ?limit=
    GET /clients              connections; ?client=, ?limit=
    GET /subscriptions        their lag, and why; ?client=, ?topic=, ?limit=
    GET /history              numbers of the last hour; ?seconds=
    GET /metrics              numbers for Prometheus
    GET /audit                changes and refusals; ?limit=
    GET /queues               their state; /queues/NAME is one of them
    GET /queues/NAME/...      consumers; browse: its messages; explain: why nothing is delivered
    GET /points               named places of the log; ?name=
    GET /exchanges            exchanges; ?exchange=
    GET /bindings             what is bound to them; ?exchange=, ?queue=, ?limit=
    GET /sessions             sessions with transactions; ?principal=, ?session=, ?limit=
    GET /transactions         distributed transactions; ?principal=, ?xid=, ?limit=
    GET /replication          the links to other instances, and from them
    GET /replication/digests  what the log holds of each origin, for a comparison
    GET /actions              what was done to segments and why; /actions/ID is one of them
    GET /, /console/...       the files of the console, without a token
    POST /journal/archive     {"through": serial} or {"serials": [...]}, "dry_run"?
    POST /journal/compress    likewise
    POST /journal/remove      {"through": serial}, "dry_run"? with "without": queue
    POST /journal/reindex     {}
    POST /journal/hold        {"who", "what", "position", "ttl_s"}; ttl_s 0 ends it
    POST /clients/disconnect  {"client"}
    POST /queues/NAME/...     create, alter, delete, purge, requeue, takeover
    POST /points              {"name", "at"?}
    POST /points/remove       {"name"}, "dry_run"?
    POST /exchanges           {"exchange", "kind"?}, "alternate"?, "auto_delete"?, "internal"?
    POST /exchanges/delete    {"exchange"}, "if_unused"?, "dry_run"?
    POST /bindings            {"queue", "exchange"}, "key"?, "arguments"?, "dry_run"?
    POST /bindings/remove     likewise
    POST /sessions/end        {"session"}, "principal"?, "dry_run"?
    POST /transactions/commit {"xid"}, "principal"?, "dry_run"?
    POST /transactions/...    rollback, forget: likewise, and "force"?
    POST /replication/drain   {"wait_s"?, "off"?, "dry_run"?}
    POST /replication/NAME/.. pause, resume, downgrade, upgrade, skip, forget, fork
    POST /replication/fresh   {"dry_run"?}: this log begins as a new one

Only peers on loopback are answered, and only when the Host header names this machine's loopback: a
web page that points its own name at 127.0.0.1 would otherwise read it from the user's browser. A
change needs a token besides; with security on, reading does, too. A token is that of the admin or
of its readers, in files that their owner alone can read, or that of a session whose principal has
the right (zbroker.admin.authentication). The right to read numbers is not one to read messages:
browsing with payloads, or with a filter, which tells about them, needs the right to change.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

from zbroker.errors import CODES, ClientError
from zbroker.limits import KIB

BODY_MAX_BYTES: Final = 64 * KIB  # of a POST; 5,000 serials
TOKEN_HEADER: Final = "X-ZBroker-Token"

HEALTH: Final = "/health"
CONSOLE: Final = "/console/"
READS: Final = (
    "/status",
    "/journal",
    "/holders",
    "/topics",
    "/clients",
    "/subscriptions",
    "/history",
    "/metrics",
    "/audit",
    "/actions",
    "/queues",
    "/points",
    "/exchanges",
    "/bindings",
    "/sessions",
    "/transactions",
    "/replication",
    "/replication/digests",
)
WRITES: Final = (
    "/journal/archive",
    "/journal/compress",
    "/journal/remove",
    "/journal/reindex",
    "/journal/hold",
    "/clients/disconnect",
    "/points",
    "/points/remove",
    "/exchanges",
    "/exchanges/delete",
    "/bindings",
    "/bindings/remove",
    "/sessions/end",
    "/transactions/commit",
    "/transactions/rollback",
    "/transactions/forget",
    "/replication/drain",
    "/replication/fresh",
)
QUEUE_READS: Final = ("consumers", "browse", "explain")
QUEUE_WRITES: Final = ("create", "alter", "delete", "purge", "requeue", "takeover")
QUEUE_PATHS: Final = (
    "/queues/NAME",
    *(f"/queues/NAME/{what}" for what in (*QUEUE_READS, *QUEUE_WRITES)),
)
LINK_WRITES: Final = ("pause", "resume", "downgrade", "upgrade", "skip", "forget", "fork")
LINK_PATHS: Final = tuple(f"/replication/NAME/{what}" for what in LINK_WRITES)
NAME_MAX_CHARS: Final = 255
SEE: Final = "see docs/reference/admin.md"

_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_ACTION: Final = re.compile(r"/actions/([0-9]{1,18})")
_QUEUE: Final = re.compile(r"/queues/([^/]+)(?:/([a-z]+))?")
_LINK: Final = re.compile(r"/replication/([^/]+)/([a-z]+)")
_CONTENTS: Final = frozenset({"data", "filter"})  # keys of a query that show what messages say
_STATUS: Final = {
    "auth_failed": 401,
    "not_entitled": 403,
    "forbidden": 403,
    "not_found": 404,
    "unknown_queue": 404,
    "unknown_point": 404,
    "unknown_exchange": 404,
    "unknown_binding": 404,
    "unknown_branch": 404,
    "branch_elsewhere": 409,
    "branch_decided": 409,
    "segment_held": 409,
    "queue_exists": 409,
    "exchange_exists": 409,
    "exchange_in_use": 409,
    "resource_locked": 409,
    "too_large": 413,
    "too_many": 429,
    "internal": 500,
    "not_ready": 503,
    "disk_full": 507,
}  # any other code is the request's own fault: 400
#: a kind of request: in words, and the right that it needs
_WHAT: Final = {
    "read": ("read here", "read"),
    "contents": ("read messages here", "write"),
    "write": ("change anything", "write"),
}
#: refusals that are about the caller: they are lines of the audit log
REFUSED: Final = frozenset({"auth_failed", "not_entitled", "forbidden"})


class AdminRequest(NamedTuple):
    """What decides about a request, and `query` for its answer. peer: an address."""

    method: str
    path: str
    host: str
    peer: str
    query: str = ""


class Caller(NamedTuple):
    """The caller that a token names. known: the token is valid; problem: why it is not."""

    name: str = ""
    known: bool = False
    reads: bool = False
    writes: bool = False
    problem: str = ""


ANONYMOUS: Final = Caller()


class Refusal(NamedTuple):
    """An HTTP status, and the content of the JSON body."""

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


class OfQueue(NamedTuple):
    """The path `/queues/NAME/what`; `what` is "" of the queue itself."""

    name: str
    what: str


class OfLink(NamedTuple):
    """The path `/replication/NAME/what`."""

    name: str
    what: str


Kind = Literal["open", "read", "write"]


def kind_of(path: str, method: str = "GET") -> Kind | None:
    """What a path is for; None: there is no such path. The method decides where both are."""
    if path in ("/", HEALTH) or path.startswith(CONSOLE):
        return "open"
    if path in WRITES and (method == "POST" or path not in READS):
        return "write"
    if link_of(path) is not None:
        return "write"
    queue = queue_of(path)
    if queue is not None:
        return "write" if queue.what in QUEUE_WRITES else "read"
    return "read" if path in READS or action_number(path) is not None else None


def refuse(request: AdminRequest, who: Caller, *, secured: bool) -> Refusal | None:
    """Why `request` is not answered, or None when it is. secured: security is on."""
    if not _is_loopback(request.peer) or _host_name(request.host) not in _LOCAL_HOSTS:
        reason = "this address answers to this host only, by its loopback name"
        return Refusal(403, "forbidden", reason, "use the address that `zbroker-admin` uses")
    kind = kind_of(request.path, request.method)
    if kind is None:
        fixed = ("/", HEALTH, *READS, "/actions/ID", *WRITES)
        paths = dict.fromkeys((*fixed, *QUEUE_PATHS, *LINK_PATHS))
        return Refusal(404, "not_found", f"no such path; there are: {', '.join(paths)}", SEE)
    method = "POST" if kind == "write" else "GET"
    if request.method != method:
        return Refusal(405, "bad_command", f"this path is for {method}")
    if kind == "open" or (kind == "read" and not secured):
        return None
    contents = kind == "read" and _shows_contents(request)
    return _unentitled(who, "contents" if contents else kind, secured=secured)


def _unentitled(who: Caller, kind: str, *, secured: bool) -> Refusal | None:
    what, needs = _WHAT[kind]
    if who.reads if needs == "read" else who.writes:
        return None
    if who.known:
        hint = f"show run/admin.token, or grant admin_{needs} in the access file"
        return Refusal(403, "not_entitled", f"{who.name} may not {what}", hint)
    if secured:
        reason = who.problem or f"this needs a token: `Authorization: Bearer T` or {TOKEN_HEADER}"
        hint = "run/admin.token or run/admin-read.token of the instance, or one of a session"
        return Refusal(401, "auth_failed", reason, hint)
    reason = f"the header {TOKEN_HEADER} does not carry the token of this instance"
    return Refusal(403, "forbidden", reason, "its owner reads it in run/admin.token")


def bearer(authorization: str, token: str) -> str:
    """The token of a request: `Authorization: Bearer T`, else the header `X-ZBroker-Token`."""
    scheme, _, shown = authorization.partition(" ")
    return shown.strip() if scheme.lower() == "bearer" else token


def queue_of(path: str) -> OfQueue | None:
    """The queue of a path, whose name is quoted as in any URL, with %2F for a slash."""
    match = _QUEUE.fullmatch(path)
    if match is None or match[2] not in (None, *QUEUE_READS, *QUEUE_WRITES):
        return None
    name = _unquoted(match[1])
    return None if name is None else OfQueue(name, match[2] or "")


def link_of(path: str) -> OfLink | None:
    """The link of a path, likewise."""
    match = _LINK.fullmatch(path)
    name = _unquoted(match[1]) if match is not None and match[2] in LINK_WRITES else None
    return None if match is None or name is None else OfLink(name, match[2])


def _unquoted(quoted: str) -> str | None:
    """A name of a path; None if it cannot be one."""
    try:
        name = unquote_to_bytes(quoted).decode()
    except UnicodeDecodeError:
        return None
    return name if len(name) <= NAME_MAX_CHARS else None


def _shows_contents(request: AdminRequest) -> bool:
    queue = queue_of(request.path)
    if queue is None or queue.what != "browse":
        return False
    given = parse_qsl(request.query, keep_blank_values=True)
    return any(key in _CONTENTS for key, _ in given)


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


def audit_text(request: AdminRequest, keys: list[str]) -> str:
    """A request as the audit log has it: the names of what was sent, never what it says."""
    text = " ".join([request.method[:16], request.path[:200], *keys])
    return "".join(char if char.isprintable() else "?" for char in text)


def _is_loopback(peer: str) -> bool:
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()
