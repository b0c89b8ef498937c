"""Questions of the admin about the peers of a listener, over ipc, and the answers. Pure.

    admin                                           ingest, delivery
        AskClients{cid, ...}              ->
                                          <-  Clients{cid, rows}
        Disconnect{cid, client, number}   ->
                                          <-  Disconnected{cid, count}
        AskRefusals{cid, after}           ->
                                          <-  RefusalRows{cid, last, rows}
                                                    delivery only
        AskSubscriptions{cid, ...}        ->
                                          <-  Subscriptions{cid, incarnation, rows}
        AskTopics{cid}                    ->
                                          <-  Topics{cid, rows}

The admin makes a new socket for each question, and throws it away with what is queued in it when no
answer comes in time; so there is no Hello. A Disconnect that comes late ends whoever has the name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zbroker.wire.internal import Correlated
from zbroker.wire.messages import Options

DISCONNECTED: Final = "disconnected by an operator"  # the reason that a client gets


#: of a connection: its address as `host:port`, "" if not known, and since when (monotonic ms)
Peer = tuple[str, int | None]
Peers = Callable[[bytes], Peer]  # by routing id


def unknown(rid: bytes) -> Peer:
    """For a listener that does not read it."""
    return "", None


class AskSubscriptions(Correlated, tag="ask_subscriptions"):
    """admin -> delivery. client, topic: only those with this name, this topic as it was asked for.

    limit: at most this many rows, those with the largest lag.
    """

    client: str = ""
    topic: str = ""
    limit: int = 0


class SubscriptionRow(Struct, array_like=True, gc=False):
    """One subscription: its client, topic and filter, its position and the reason of its wait.

    position: the first one not yet sent or stepped over; 0 while it is located. handled: the first
    one whose credit did not come back, and in_hand: how many messages were sent since then. lag:
    positions from `handled` to the end of the durable log. due_ms: when its rate lets the next
    message go. starts_ns: the log time at which it begins, while that is later than the log.
    since_ms: wall clock, ms since 1970.
    """

    client: str
    sid: str
    topic: str
    regex: bool
    filter: str
    options: Options
    state: str
    position: int
    lag: int
    credit: int
    sent_messages: int
    sent_bytes: int
    since_ms: int
    due_ms: int | None = None
    starts_ns: int | None = None
    handled: int = 0
    in_hand: int = 0


class Subscriptions(Correlated, tag="subscriptions"):
    """delivery -> admin. Rows by lag, largest first; left_out: how many more there are."""

    incarnation: int
    persisted: int
    rows: list[SubscriptionRow]
    left_out: int = 0


class AskTopics(Correlated, tag="ask_topics"):
    """admin -> delivery. Which topics are subscribed to, and how often."""


class TopicRow(Struct, array_like=True, gc=False):
    """A topic or pattern as it was asked for, and how many subscriptions have it."""

    topic: str
    regex: bool
    subscriptions: int


class Topics(Correlated, tag="topics"):
    """delivery -> admin. left_out: how many more rows there are."""

    rows: list[TopicRow]
    left_out: int = 0


class AskClients(Correlated, tag="ask_clients"):
    """admin -> ingest, delivery. client: only those with this name. limit: at most so many rows."""

    client: str = ""
    limit: int = 0


class ClientRow(Struct, array_like=True, gc=False):
    """One connection of a listener.

    acked: the highest sequence that is settled, None where it publishes nothing. messages: taken in
    this session at ingest, sent to its present subscriptions at delivery. window_bytes: forwarded
    and not settled. connected_ms: for how long.
    """

    client: str
    principal: str
    instance: str
    address: str
    connected_ms: int | None
    session: int
    publisher: int | None
    acked: int | None
    window_bytes: int
    messages: int
    subscriptions: int
    heartbeat_s: float


class Clients(Correlated, tag="clients"):
    """ingest, delivery -> admin. Rows by name; left_out: how many more there are."""

    rows: list[ClientRow]
    left_out: int = 0


class Disconnect(Correlated, tag="disconnect"):
    """admin -> ingest, delivery, queues. End the sessions of this client: session_ended.

    number: of this disconnect; tokens of the client from before count no more. 0: they do.
    """

    client: str
    number: int = 0


class Disconnected(Correlated, tag="disconnected"):
    """ingest, delivery -> admin. How many sessions were ended."""

    count: int


class AskRefusals(Correlated, tag="ask_refusals"):
    """admin -> ingest, delivery. The refusals for missing rights after number `after`.

    With 0, or a number of an earlier process: all that it knows.
    """

    after: int = 0


class RefusalRow(Struct, array_like=True, gc=False):
    """One refusal: the client, its address, the request and the code."""

    who: str
    origin: str
    what: str
    code: str


class RefusalRows(Correlated, tag="refusals"):
    """ingest, delivery -> admin. Oldest first. last: number of the newest; left_out: forgotten."""

    last: int
    rows: list[RefusalRow]
    left_out: int = 0


class DrainIngest(Correlated, tag="drain"):
    """admin -> ingest. what: `hold` (no client is read), `leave` (sessions end, logons are
    refused), `off`."""

    what: str


class IngestDrained(Correlated, tag="drained"):
    """ingest -> admin. state: `off`, `held`, `left`. sessions: how many were ended by this.

    unsettled_bytes: accepted, and not acknowledged yet.
    """

    state: str
    unsettled_bytes: int = 0
    sessions: int = 0


ListenerQuestion = AskClients | Disconnect | AskRefusals  # to every process with a listener
Question = AskSubscriptions | AskTopics | ListenerQuestion
IngestQuestion = ListenerQuestion | DrainIngest
Answer = Subscriptions | Topics | Clients | Disconnected | RefusalRows | IngestDrained

INGEST_QUESTIONS: Final = msgspec.msgpack.Decoder(IngestQuestion)
DELIVERY_QUESTIONS: Final = msgspec.msgpack.Decoder(Question)
LISTENER_ANSWERS: Final = msgspec.msgpack.Decoder(Answer)


#: codes that are about who somebody is and what he may do
CODES: Final = frozenset({"auth_failed", "not_entitled"})
KEPT: Final = 256
KEY_CHARS: Final = 8  # of a key, which is public: enough to find it


class RefusalLog:
    """The newest refusals for want of rights, until the admin has asked for them.

    The oldest are dropped when there are too many; those that were never reported are counted. They
    have numbers that begin after the incarnation of the process, so that a number of another
    process is not one of them.
    """

    def __init__(self, incarnation: int = 0) -> None:
        self._rows: deque[tuple[bytes, RefusalRow]] = deque(maxlen=KEPT)
        self._begin = self._last = incarnation

    def add(self, rid: bytes, who: str, what: str, code: str, origin: str = "") -> None:
        """`who` may not do `what`. origin: the address, if it is not known by `rid`."""
        self._last += 1
        self._rows.append((rid, RefusalRow(who, origin, what, code)))

    def report(self, ask: AskRefusals, peers: Peers) -> RefusalRows:
        """Those after number `after`; all of them, if that is of another process."""
        after = ask.after if self._begin <= ask.after <= self._last else self._begin
        new = list(self._rows)[-(self._last - after) :] if self._last > after else []
        rows = [replace(row, origin=row.origin or peers(rid)[0]) for rid, row in new]
        return RefusalRows(ask.cid, self._last, rows, self._last - after - len(rows))


def command_text(command: object) -> str:
    """A command for people: its name, and whom or what it is about; never what it carries."""
    keys = ("client", "topic", "queue", "exchange")
    about = next((found for key in keys if (found := getattr(command, key, None))), None)
    topics = getattr(command, "topics", None)
    name = getattr(getattr(command, "__struct_config__", None), "tag", None) or "command"
    return " ".join([name, *([str(about)] if about else (topics or [])[:3])])


def stranger(key: str) -> str:
    """The principal of a client that has only shown a key; "" without one."""
    return f"key {key[:KEY_CHARS]}..." if key else ""
