"""What may be asked of queues and points, and with what: bodies and queries of requests. Pure.

Which queue it is about stands in the path.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from zbroker.admin.requests import ROWS_MAX, Name, Rows
from zbroker.errors import ClientError
from zbroker.limits import U63_MAX
from zbroker.wire.queue_messages import BROWSED_MAX

BOOKMARKS_MAX: Final = 2_000  # of one request; a body has no room for more
REQUEUED_MAX: Final = 10_000  # dead letters of one request
KEYS_MAX: Final = 64  # of a definition

Position = Annotated[int, Meta(ge=1, le=U63_MAX)]
Text = Annotated[str, Meta(max_length=4096)]


class ConsumersQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How many of them."""

    limit: Rows = ROWS_MAX


class BrowseQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages: behind position `after`, in this state, those that `filter` is true for.

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

    definition: Annotated[dict[str, Any], Meta(max_length=KEYS_MAX)] = {}
    dry_run: bool = False


class DeleteRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The queue goes; the log stays."""

    dry_run: bool = False


class SetPointRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The place behind what is durable now gets a name, or position `at` does."""

    name: Name
    at: Position | None = None


class RemovePointRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The place loses its name; the messages stay."""

    name: Name
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
