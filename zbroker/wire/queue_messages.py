"""Commands and answers of the queues listener: consume, acknowledge, give back, look. Version 1.

    client                                          queues
        logon{token}                      ->
                                          <-  ack processed
        consume{sid, queue, backlog ...}  ->
                                          <-  consuming{sid, backlog, lease_ms ...}
                                          <-  job{sid, position, deliveries ...} + body
        ack{sid, ends}                    ->
                                          <-  settled{cid, taken}       once it is durable
        release, reject                   ->
                                          <-  settled{cid, taken}       once it is durable
        extend                            ->
                                          <-  settled{cid, taken}       at once
        browse{queue, after, limit}       ->
                                          <-  rows{rows} + body
        cancel{sid}                       ->
                                          <-  ack processed{sid}

Messages are named by runs of positions (`ends`: [first, end, first, end ...]) of the origin
in the answer to logon, or by bookmarks, or by a filter over what is leased. An error with a
sid ends that consumer. Units: `*_ms` milliseconds, `*_ns` nanoseconds since 1970 UTC.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from zbroker.limits import CREDIT_DEFAULT_BYTES
from zbroker.wire.messages import (
    U63,
    Ack,
    Cid,
    ClientCommand,
    Error,
    Flow,
    Heartbeat,
    ListenerLogon,
    Logoff,
    Msg,
    ServerAnswer,
    Text,
)

BACKLOG_MAX: Final = 1_000_000  # messages that one consumer may hold
SETTLED_MAX: Final = 3_000  # runs or bookmarks that one command names: they fit a header
BROWSED_MAX: Final = 1_000  # rows of one answer
LEASE_MAX_MS: Final = 366 * 86_400_000

Sid = Annotated[str, Meta(min_length=1, max_length=64)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]
Ends = Annotated[list[U63], Meta(max_length=2 * SETTLED_MAX)]
Bookmarks = Annotated[list[Text], Meta(max_length=SETTLED_MAX)]


class Consume(ClientCommand, tag="consume"):
    """-> queues. Begins a consumer; answered by Consuming.

    backlog: messages that it holds at most, 0: what the queue finds. credit: body bytes.
    filter: only messages whose content it is true for. codecs: compressed bodies it can read.
    holder: a name that stays the same over reconnects; by default the sid. holding: what it holds
    from a connection before, under this name of this client: it keeps those leases, and what it
    held besides comes back to the queue.

    For a replayable queue only: since or selector is required. since: a bookmark, a time, a vector,
    "0", "0|1|" (now), "point:NAME", or a range "[a:b)" of these without points. selector: a filter;
    it begins at the first message for which that is true, from `since` on. until: where it ends, in
    the same words (a bookmark inclusive). bookmark_not_found: where it begins if the log does not
    hold `since`, or messages of the queue from there on were removed or purged.
    """

    sid: Sid
    queue: Name
    cid: Cid = None
    backlog: Annotated[int, Meta(ge=0, le=BACKLOG_MAX)] = 0
    credit: U63 = CREDIT_DEFAULT_BYTES
    filter: Annotated[str, Meta(max_length=4096)] | None = None
    codecs: Annotated[list[str], Meta(max_length=8)] = []
    holder: Text = ""
    holding: Ends = []
    generation: int | None = None
    since: Annotated[str, Meta(max_length=32_768)] | None = None
    selector: Annotated[str, Meta(max_length=4096)] | None = None
    until: Annotated[str, Meta(max_length=32_768)] | None = None
    bookmark_not_found: Annotated[str, Meta(pattern="^(fail|epoch|now)$")] = "fail"


class Settle(ClientCommand, tag="ack"):
    """-> queues. They are done. Answered by Settled.

    One of: `sid` with `ends`; `queue` with `ends` or `bookmarks`; `queue` or `sid` with `filter`:
    everything leased there that matches. generation: of the origin of the positions, from the
    answer to logon; another one now is refused `stale_epoch`, since positions may name other
    messages.
    """

    cid: Cid = None
    sid: Sid | None = None
    queue: Name | None = None
    ends: Ends = []
    bookmarks: Bookmarks = []
    filter: Annotated[str, Meta(max_length=4096)] | None = None
    generation: int | None = None


class Release(Settle, tag="release"):
    """-> queues. They go back to their places, after `delay_ms`; counts as a cancel."""

    delay_ms: Annotated[int, Meta(ge=0, le=LEASE_MAX_MS)] = 0


class RejectMessages(Settle, tag="reject"):
    """-> queues. They cannot be processed: dead letters, with `reason`; counts as no delivery."""

    reason: Annotated[str, Meta(max_length=1024)] = ""


class Extend(Settle, tag="extend"):
    """-> queues. Their leases last for `lease_ms` from now, 0: as long as the queue's."""

    lease_ms: Annotated[int, Meta(ge=0, le=LEASE_MAX_MS)] = 0


class Browse(ClientCommand, tag="browse"):
    """-> queues. Looks without taking anything. Answered by Rows.

    after: the position after which to begin; limit: rows at most; filter: only what it is true for;
    state: only rows in this state. data: with payloads, in the body: one packed array.
    """

    queue: Name
    cid: Cid = None
    after: U63 = 0
    limit: Annotated[int, Meta(ge=1, le=BROWSED_MAX)] = 100
    filter: Annotated[str, Meta(max_length=4096)] | None = None
    state: Annotated[str, Meta(max_length=32)] | None = None
    data: bool = False


class Cancel(ClientCommand, tag="cancel"):
    """-> queues. The consumer ends; what it holds comes back at once. Answered `processed`."""

    sid: Sid
    cid: Cid = None


QueuesCommand = (
    ListenerLogon | Consume | Settle | Release | RejectMessages | Extend | Browse | Cancel | Flow
    | Heartbeat | Logoff
)  # fmt: skip


# -- answers ----------------------------------------------------------------------------------


class Consuming(ServerAnswer, tag="consuming"):
    """queues -> client. It has begun, with what it was granted.

    backlog: messages that it holds at most. lease_ms: how long a lease lasts, 0: for ever.
    kept: of what it said that it holds; the rest is not its own any more. position: where a
    replayable queue begins.
    """

    sid: str
    backlog: int
    lease_ms: int
    semantics: str
    kind: str
    credit: int
    cid: Cid = None
    kept: list[int] = []
    position: int | None = None


class Job(Msg, tag="job"):
    """queues -> client, with a packed body: messages to work on, like Msg.

    deliveries: u16 little-endian for each message that counts, how often each was delivered, with
    this time; left out where all are 1. One with more than 1 may have been seen before. barrier: it
    is sent to every consumer and needs no acknowledgement. acked: of a replayable queue, for each
    message that counts a byte: 1 if it was acknowledged.
    """

    position: int
    deliveries: bytes | None = None
    barrier: bool = False
    acked: bytes | None = None


class Settled(ServerAnswer, tag="settled"):
    """queues -> client. What it asked for is durable (of extend: done).

    taken: so many messages; ignored: so many were not in the queue, or leased to another consumer
    where leasing is strict.
    """

    cid: Cid = None
    sid: str | None = None
    taken: int = 0
    ignored: int = 0


class BrowsedRow(Struct, array_like=True):
    """A message of a queue. state: ready, leased, delayed, going, waiting (for a barrier, or for
    its group), acked or kept (replayable). owner: the client that has it. due_ms: until its lease
    ends or its delay is over. size: of the payload."""

    position: int
    bookmark: str
    topic: str
    time_ns: int
    size: int
    state: str
    deliveries: int
    failures: int
    owner: str = ""
    due_ms: int | None = None


class Rows(ServerAnswer, tag="rows"):
    """queues -> client. next: what to give as `after` for more; None: there is no more."""

    rows: list[BrowsedRow]
    cid: Cid = None
    next: int | None = None


AnyQueuesAnswer = Ack | Error | Consuming | Job | Settled | Rows | Heartbeat
