"""Bodies and queries of requests, as structs that check them. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

from zbroker.admin.core import SEE
from zbroker.errors import ClientError
from zbroker.limits import U63_MAX
from zbroker.wire.exchange_lists import ARGUMENTS_MAX
from zbroker.wire.queue_messages import BROWSED_MAX
from zbroker.xids import XID_TEXT_MAX

ROWS_MAX: Final = 1_000  # in one answer; for more, ask for some of them by name
HOLD_MAX_S: Final = 30 * 86_400  # a lease for longer is renewed
HISTORY_MAX_S: Final = 3_600
AUDIT_ROWS_MAX: Final = 1_000
KEYS_MAX: Final = 32  # of a body, that are named in the audit log

T = TypeVar("T")
Serial = Annotated[int, Meta(ge=0, le=U63_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
NameOrAll = Annotated[str, Meta(max_length=255)]
Rows = Annotated[int, Meta(ge=1, le=ROWS_MAX)]
XidText = Annotated[str, Meta(min_length=1, max_length=XID_TEXT_MAX)]
#: a value of a binding's arguments; a binary one has no form in JSON
Argument = Annotated[int, Meta(ge=-(1 << 63), le=U63_MAX)] | float | bool | str | None


class SegmentSelection(Struct, frozen=True, forbid_unknown_fields=True):
    """Which segments: `serials`, or all up to `through`."""

    through: Serial | None = None
    serials: Annotated[list[Serial], Meta(min_length=1)] | None = None
    dry_run: bool = False


class RemovalQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The oldest segments up to this one; of a dry run, as if a queue needed nothing: `without`."""

    through: Serial
    dry_run: bool = False
    without: NameOrAll = ""


class EmptyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request without any choice."""


class HoldRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Keep the log from `position` on for `ttl_s`."""

    who: Name
    what: NameOrAll
    position: Annotated[int, Meta(ge=0, le=U63_MAX)]
    ttl_s: Annotated[int, Meta(ge=0, le=HOLD_MAX_S)]


class ClientQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The client with this name."""

    client: Name


class SubscriptionsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which subscriptions: of this client, on this topic, at most so many."""

    client: NameOrAll = ""
    topic: Annotated[str, Meta(max_length=1024)] = ""
    limit: Rows = ROWS_MAX


class ClientsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which connections: of this client, at most so many."""

    client: NameOrAll = ""
    limit: Rows = ROWS_MAX


class TopicsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which topics: those that `match`, where `*` is any characters; "" is all."""

    match: Annotated[str, Meta(max_length=1024)] = ""
    limit: Rows = ROWS_MAX


class HistoryQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many seconds of it."""

    seconds: Annotated[int, Meta(ge=1, le=HISTORY_MAX_S)] = HISTORY_MAX_S


class AuditQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many entries, the newest first."""

    limit: Annotated[int, Meta(ge=1, le=AUDIT_ROWS_MAX)] = 100


class HealthQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """live: do not ask whether it is ready."""

    live: bool = False


def parse(kind: type[T], body: bytes) -> T:
    """A request of this kind; an empty body is {}. Raises: ClientError bad_field."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClientError("bad_field", f"the body: {error}", SEE) from None


def parse_query(kind: type[T], query: str) -> T:
    """The same from the part of a URL after the `?`. Raises: ClientError bad_field."""
    try:
        given = dict(parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=10))
        return msgspec.convert(given, kind, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        raise ClientError("bad_field", f"the query: {error}", SEE) from None


def wanted(select: SegmentSelection) -> tuple[list[int] | None, int]:
    """Its serials, or None and the last of them. Raises: ClientError bad_field."""
    if (select.serials is None) == (select.through is None):
        raise ClientError("bad_field", "either `through` or `serials`", "give one of them")
    return select.serials, select.through or 0


def check_through(ask: RemovalQuery) -> None:
    """Nothing goes that a queue needs. Raises: ClientError bad_field."""
    if ask.without and not ask.dry_run:
        raise ClientError("bad_field", "`without` is for a dry run: what a queue needs stays", SEE)


def keys_of(body: bytes) -> list[str]:
    """The keys of a body, for the audit log: never their values."""
    try:
        found = msgspec.json.decode(body or b"{}", type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return [key[:64] for key in found][:KEYS_MAX]


BOOKMARKS_MAX: Final = 2_000  # of one request; a body has no room for more
REQUEUED_MAX: Final = 10_000  # dead letters of one request
DEFINITION_KEYS_MAX: Final = 64  # of a definition
VECTOR_MAX: Final = 32_768  # characters, as of a consumer

Position = Annotated[int, Meta(ge=1, le=U63_MAX)]
Text = Annotated[str, Meta(max_length=4096)]


class ConsumersQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many of them."""

    limit: Rows = ROWS_MAX


class BrowseQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages: after position `after`, in this state, those that `filter` is true for.

    data: with payloads.
    """

    after: Annotated[int, Meta(ge=0, le=U63_MAX)] = 0
    limit: Annotated[int, Meta(ge=1, le=BROWSED_MAX)] = 100
    filter: Text = ""
    state: Annotated[str, Meta(max_length=32)] = ""
    data: bool = False


class ExplainQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Why nothing is delivered: of the queue, or of a message that is named in one of two ways."""

    position: Annotated[int, Meta(ge=0, le=U63_MAX)] = 0
    bookmark: Text = ""


class PurgeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What leaves the queue: all before a position, or before a point, or all of it."""

    before: Position | None = None
    point: Name | None = None
    all: bool = False
    leased: bool = False
    dry_run: bool = False
    dead_letters: bool = False


class RequeueRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters come back: these, or the newest `limit` that there are."""

    bookmarks: Annotated[list[Text], Meta(max_length=BOOKMARKS_MAX)] = []
    limit: Annotated[int, Meta(ge=1, le=REQUEUED_MAX)] = 1_000
    dry_run: bool = False


class DefineRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Keys of a [[queue]] table; of a queue that is altered only what changes."""

    definition: Annotated[dict[str, Any], Meta(max_length=DEFINITION_KEYS_MAX)] = {}
    dry_run: bool = False


class DigestsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages, in ranges of how many positions of an origin.

    position, serial, offset: where in the log to read on; limit: where to stop, 0: at its end.
    origin, first, end: only that one, from `first` up to `end`. seed: what digests begin with.
    """

    size: Annotated[int, Meta(ge=1, le=U63_MAX)] = 1 << 20
    seed: Annotated[str, Meta(min_length=2, max_length=64)] = "00"
    position: Serial = 0
    serial: Serial = 0
    offset: Serial = 0
    limit: Serial = 0
    origin: Annotated[str, Meta(max_length=64)] = ""
    first: Serial = 0
    end: Serial = U63_MAX


class LinkRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A change to a link: it is in the path. origin: of a skip; "": of all that may be skipped; or
    of a fork."""

    dry_run: bool = False
    origin: str = ""


class FreshRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The log of this instance begins as a new one."""

    dry_run: bool = False


class DrainRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Publishers are to go elsewhere, or, with `off`, may come back. wait_s: for destinations."""

    wait_s: Annotated[float, Meta(gt=0, le=50)] = 10.0
    off: bool = False
    dry_run: bool = False


class DeleteRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The queue goes; the log stays."""

    dry_run: bool = False


class TakeOverRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What belongs to an instance that is away is to belong to this one. instance: 16 hex digits.

    called: its name, if it may be the initial owner of the queue. until_back: also what comes
    later, until it is back; end: that no more.
    """

    instance: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
    called: str = ""
    may_duplicate: bool = False
    dry_run: bool = False
    until_back: bool = False
    end: bool = False


class PointsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which point; "" is all."""

    name: NameOrAll = ""


class SetPointRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The end of the durable log gets a name, or position `at` does. vector: instead, what the
    point is to cover."""

    name: Name
    at: Position | None = None
    vector: Annotated[str, Meta(max_length=VECTOR_MAX)] = ""


class RemovePointRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The place loses its name; the messages stay."""

    name: Name
    dry_run: bool = False


class ExchangesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which exchange; "" is all."""

    exchange: NameOrAll = ""


class BindingsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which bindings: of this exchange, of this queue, at most so many."""

    exchange: NameOrAll = ""
    queue: NameOrAll = ""
    limit: Rows = ROWS_MAX


class SessionsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which sessions: of this principal, of this name, at most so many."""

    principal: NameOrAll = ""
    session: NameOrAll = ""
    limit: Rows = ROWS_MAX


class EndSessionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """This session is to end. principal: "" where security is off."""

    session: Name
    principal: NameOrAll = ""
    dry_run: bool = False


class TransactionsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which distributed transactions: of this principal, of this xid, at most so many."""

    principal: NameOrAll = ""
    xid: Annotated[str, Meta(max_length=XID_TEXT_MAX)] = ""
    limit: Rows = ROWS_MAX


class CommitRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """This prepared transaction is to be committed. principal: "" where security is off."""

    xid: XidText
    principal: NameOrAll = ""
    dry_run: bool = False


class ForcedRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """This one is to be rolled back, or forgotten. force: also one of another instance. instance:
    the one that this instance prepared, 16 hex digits; "": any."""

    xid: XidText
    principal: NameOrAll = ""
    force: bool = False
    dry_run: bool = False
    instance: Annotated[str, Meta(pattern="^([0-9a-f]{16})?$")] = ""


class DeclareExchangeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """There is to be this exchange."""

    exchange: Name
    kind: Annotated[str, Meta(max_length=32)] = "direct"
    alternate: NameOrAll = ""
    auto_delete: bool = False
    internal: bool = False
    dry_run: bool = False


class DeleteExchangeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """It is to go, with its bindings; the messages stay."""

    exchange: Name
    if_unused: bool = False
    dry_run: bool = False


class BindingRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue is to be bound like this, or not any more. arguments: of a headers exchange."""

    queue: Name
    exchange: Name
    key: NameOrAll = ""
    arguments: Annotated[dict[NameOrAll, Argument], Meta(max_length=ARGUMENTS_MAX)] = {}
    dry_run: bool = False


def check_purge(ask: PurgeRequest) -> None:
    """A request that says nothing must not empty a queue. Raises: ClientError bad_field."""
    given = [ask.before is not None, ask.point is not None, ask.all]
    if sum(given) != 1:
        reason = "a purge needs one of `before`, `point` and `all`"
        raise ClientError("bad_field", reason, "say what leaves the queue")


def check_why(ask: ExplainQuery) -> None:
    """Raises: ClientError bad_field."""
    if ask.position and ask.bookmark:
        raise ClientError("bad_field", "either `position` or `bookmark`", "give one of them")
