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
        flow, set_flow_mode, stop, flush, acquire  ->  see consumer_credit.py
        cancel{sid}                       ->
                                          <-  ack processed{sid}
        declare_queue{queue, settings}    ->
                                          <-  queue_declared{created ...}   once it is durable
        delete_queue, purge_queue         ->
                                          <-  queue_changed{count}          once it is durable
        declare_exchange, delete_exchange,
        bind_queue, unbind_queue          ->
                                          <-  exchange_done{changed}        once it is durable, and
                                                                            publishes go by it
        list_exchanges, list_bindings     ->  see exchange_lists.py

Messages are named by runs of positions (`ends`: [first, end, first, end ...]) of the origin
in the answer to logon, or by bookmarks, or by a filter over what is leased. An error with a
sid ends that consumer. Units: `*_ms` milliseconds, `*_ns` nanoseconds since 1970 UTC.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from zbroker.limits import CREDIT_DEFAULT_BYTES, REASON_MAX, SESSION_MAX_BYTES
from zbroker.wire.consumer_credit import FlowMode, FromQueues, Sid, ToQueues
from zbroker.wire.exchange_lists import (
    Arguments,
    BindingList,
    ExchangeList,
    ListBindings,
    ListExchanges,
)
from zbroker.wire.messages import (
    U63,
    Ack,
    Cid,
    ClientCommand,
    Error,
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
SETTINGS_MAX: Final = 64  # keys of one declaration: more than a [[queue]] table has
VALUES_MAX: Final = 100  # of a list in it

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Ends = Annotated[list[U63], Meta(max_length=2 * SETTLED_MAX)]
Bookmarks = Annotated[list[Text], Meta(max_length=SETTLED_MAX)]
#: a value as a [[queue]] table has it; nothing deeper is built of what a client sends
Setting = bool | int | float | str | Annotated[list[int | str], Meta(max_length=VALUES_MAX)]
Settings = Annotated[dict[str, Setting], Meta(max_length=SETTINGS_MAX)]


class Consume(ClientCommand, tag="consume"):
    """-> queues. Begins a consumer; answered by Consuming.

    backlog: messages that it holds at most, 0: what the queue finds. credit: body bytes.
    filter: only messages whose content it is true for. codecs: compressed bodies it can read.
    holder: a name that stays the same over reconnects; by default the sid. holding: what it holds
    from a connection before, under this name of this client: it keeps those leases, and what it
    held besides comes back to the queue. flow_mode, messages: see consumer_credit.py; in credit
    mode it begins with so many, in window mode only 0 is possible: it begins as if it was stopped.
    session, epoch: it is of this session with a time-out, and keeps what it holds as long as that;
    see AttachSession.

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
    flow_mode: FlowMode = "window"
    messages: U63 | None = None
    session: Annotated[str, Meta(max_length=SESSION_MAX_BYTES)] = ""
    epoch: U63 = 0


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

    reason: Annotated[str, Meta(max_length=REASON_MAX)] = ""


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


class DeclareQueue(ClientCommand, tag="declare_queue"):
    """-> queues. There is to be this queue; made if there is none. Answered by QueueDeclared.

    queue: "": a new one, whose name the broker chooses: it is in the answer. settings: the keys of
    a [[queue]] table without `name`, durations and sizes as there; a key that is left out has its
    default. A queue that is there has to have the same ones. passive: it only looks. session,
    epoch: it is of this session with a time-out, see AttachSession: so an exclusive queue belongs
    to that, and so it has to be said in all commands about it.
    """

    queue: Annotated[str, Meta(max_length=255)]
    cid: Cid = None
    settings: Settings = {}
    passive: bool = False
    session: Annotated[str, Meta(max_length=SESSION_MAX_BYTES)] = ""
    epoch: U63 = 0


class DeleteQueue(ClientCommand, tag="delete_queue"):
    """-> queues. The queue ends, and its consumers; its messages stay in the log. Answered by
    QueueChanged.

    if_unused: only without consumers at this instance; if_empty: only without messages.
    declaration: only this one, from the answer to a declare: not a queue that was made since.
    """

    queue: Name
    cid: Cid = None
    if_unused: bool = False
    if_empty: bool = False
    declaration: U63 | None = None
    session: Annotated[str, Meta(max_length=SESSION_MAX_BYTES)] = ""
    epoch: U63 = 0


class PurgeQueue(ClientCommand, tag="purge_queue"):
    """-> queues. Its messages that are not leased now leave it. Answered by QueueChanged.

    declaration: as of DeleteQueue.
    """

    queue: Name
    cid: Cid = None
    declaration: U63 | None = None
    session: Annotated[str, Meta(max_length=SESSION_MAX_BYTES)] = ""
    epoch: U63 = 0


class DeclareExchange(ClientCommand, tag="declare_exchange"):
    """-> queues. There is to be this exchange; made if there is none. Answered by ExchangeDone.

    kind: direct, topic, fanout or headers. alternate: the exchange that gets what no binding of
    this one asks for. auto_delete: it goes with its last binding. internal: no client publishes to
    it. One that is there has to have the same kind, alternate and `internal`. passive: it only
    looks whether there is one.
    """

    exchange: Name
    cid: Cid = None
    kind: Annotated[str, Meta(max_length=32)] = "direct"
    alternate: Annotated[str, Meta(max_length=255)] = ""
    auto_delete: bool = False
    internal: bool = False
    passive: bool = False


class DeleteExchange(ClientCommand, tag="delete_exchange"):
    """-> queues. The exchange ends, with its bindings; its messages stay in the log and in queues.
    Answered by ExchangeDone. if_unused: only if nothing is bound to it."""

    exchange: Name
    cid: Cid = None
    if_unused: bool = False


class BindQueue(ClientCommand, tag="bind_queue"):
    """-> queues. Messages of the exchange that the binding asks for enter the queue from now on.
    Answered by ExchangeDone.

    key: of a topic exchange a pattern, of a headers exchange a part of its name. arguments: of a
    headers exchange only.
    """

    queue: Name
    exchange: Name
    cid: Cid = None
    key: Annotated[str, Meta(max_length=255)] = ""
    arguments: Arguments = {}
    session: Annotated[str, Meta(max_length=SESSION_MAX_BYTES)] = ""
    epoch: U63 = 0


class UnbindQueue(ClientCommand, tag="unbind_queue"):
    """-> queues. Takes a binding back: with this key, and these arguments. Answered by
    ExchangeDone."""

    queue: Name
    exchange: Name
    cid: Cid = None
    key: Annotated[str, Meta(max_length=255)] = ""
    arguments: Arguments = {}
    session: Annotated[str, Meta(max_length=SESSION_MAX_BYTES)] = ""
    epoch: U63 = 0


QueuesCommand = (
    ListenerLogon | Consume | Settle | Release | RejectMessages | Extend | Browse | Cancel
    | ToQueues | DeclareQueue | DeleteQueue | PurgeQueue | DeclareExchange | DeleteExchange
    | BindQueue | UnbindQueue | ListExchanges | ListBindings | Heartbeat | Logoff
)  # fmt: skip


# -- answers ----------------------------------------------------------------------------------


class Consuming(ServerAnswer, tag="consuming"):
    """queues -> client. It has begun, with what it was granted.

    backlog: messages that it holds at most. lease_ms: how long a lease lasts, 0: for ever.
    kept: of what it said that it holds; the rest is not its own any more. position: where a
    replayable queue begins. vector: where it is one of several instances, what is before that: with
    the origins of what comes, it says at each of them where to go on. flow_mode: as it is
    now.
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
    vector: str | None = None
    flow_mode: str = "window"


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

    taken: so many messages; ignored: so many were not in the queue, or locked by a prepared branch,
    or leased to another consumer where leasing is strict.
    """

    cid: Cid = None
    sid: str | None = None
    taken: int = 0
    ignored: int = 0


class BrowsedRow(Struct, array_like=True):
    """A message of a queue. state: ready, leased, delayed, going, waiting (for a barrier, or for
    its group), locked (for a prepared branch), acked or kept (replayable). owner: the client that
    has it. due_ms: until its lease ends or its delay is over. size: of the payload."""

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


class QueueDeclared(ServerAnswer, tag="queue_declared"):
    """queues -> client. The queue is there, and that is durable.

    created: by this command. declaration: which one of its name; a queue that is made after it was
    deleted has another. messages: that are in it, leased ones too; consumers: at this instance.
    reading: the log is still being read for it, so there may be more messages.
    """

    queue: str
    created: bool
    declaration: int
    messages: int
    consumers: int
    cid: Cid = None
    reading: bool = False


class QueueChanged(ServerAnswer, tag="queue_changed"):
    """queues -> client. The queue was deleted or purged, and that is durable.

    count: messages that were in it, or that left it.
    """

    queue: str
    count: int
    cid: Cid = None


class ExchangeDone(ServerAnswer, tag="exchange_done"):
    """queues -> client. It is so, that is durable, and what is published to this instance goes by
    it. changed: by this command; false: it was so."""

    exchange: str
    changed: bool
    cid: Cid = None


AnyQueuesAnswer = (
    Ack
    | Error
    | Consuming
    | Job
    | Settled
    | Rows
    | QueueDeclared
    | QueueChanged
    | ExchangeDone
    | ExchangeList
    | BindingList
    | FromQueues
    | Heartbeat
)
