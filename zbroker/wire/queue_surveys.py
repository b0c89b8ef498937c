"""Questions of the admin to the queues process, over ipc, and its answers. Pure.

    AskQueues{name, since}           ->  Queues{rows, gone}
    AskConsumers{queue}              ->  Consumers{rows}
    Explain{queue, position}         ->  Explained{lines}
    BrowseQueue{queue, browse}       ->  Browsed{rows, next} + body
    Purge{queue, through, dry_run}   ->  Changed{count}
    Requeue{queue, ends, all}        ->  Changed{count}
    Define{record}                   ->  Changed{}
    SetPoint{name}                   ->  Changed{position, vector}
    RemovePoint{name}                ->  Changed{position, vector}
    AskPoints{}                      ->  Points{rows}
    DrainQueues{what, to}            ->  QueuesDrained{state, rows}

Those about exchanges, sessions and distributed transactions are in exchange_surveys.py,
session_surveys.py and branch_surveys.py. What changes something is answered once it is
durable. A `code` says why it was refused. The admin makes a new socket for each question (see
surveys).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from zbroker.wire.branch_surveys import BranchAnswer, BranchQuestion
from zbroker.wire.exchange_surveys import ExchangeAnswer, ExchangeQuestion
from zbroker.wire.internal import Correlated, Refusable
from zbroker.wire.queue_messages import BrowsedRow
from zbroker.wire.session_surveys import SessionAnswer, SessionQuestion
from zbroker.wire.surveys import ListenerQuestion


class AskQueues(Correlated, tag="ask_queues"):
    """admin -> queues. name: only this one; "" is all. since: the `look` of an answer of process
    `of`: only what changed after it; 0, or of another process: everything."""

    name: str = ""
    since: int = 0
    of: int = 0


class QueueCounters(Struct, kw_only=True):
    """Messages of a queue that went each way since the start of the process; the one list of them.

    delivered, redelivered: each time that they were sent. failed: deliveries. dead: given up; of
    these expired by their time, dropped by the limits of the queue.
    """

    entered: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    failed: int = 0
    dead: int = 0
    expired: int = 0
    dropped: int = 0


class OwnedMessages(Struct, array_like=True, gc=False):
    """Messages of a replicated queue that belong to one instance, or one of them.

    instance: 0 is the initial owner, of which only the `name` is known here. mine: it is the one
    that is asked. first: position of the oldest. since_ns: log time here of that, or a little
    before. number: of a single message, how often its owner has changed.
    """

    instance: int
    depth: int
    first: int
    since_ns: int | None = None
    mine: bool = False
    name: str = ""
    number: int = 0


class QueueRow(QueueCounters, omit_defaults=True):
    """One queue: what it is, what it holds, what was done.

    depth: messages in it; of these ready, leased, delayed, going (an end of them is on its way to
    the disk). first, last: positions of the oldest and newest one, 0 if there is none.
    oldest_ns: log time of the oldest. `behind`: positions of the log that it has not read yet.
    elsewhere: messages that belong to other instances, with position and log time of their oldest.
    owners: all messages by owner, where only this queue was asked for and it is a replicated one.
    acts_for: instances whose messages are taken over as they come, by name or id.
    active: the consumer that gets the messages, as client/sid, where that is one alone.
    full: publishers are refused, as its `overflow` says.
    idle_ms: since a consumer took something, None: never since the start. holding: position from
    which on it needs the log. Fields that depend on the time or the end of the log alone are not a
    change: idle_ms, `behind`, and holding without messages.
    """

    name: str
    kind: str
    topic: str
    regex: bool
    source: str
    life: int
    created: int
    definition: dict[str, Any]
    state: str
    depth: int = 0
    ready: int = 0
    leased: int = 0
    delayed: int = 0
    going: int = 0
    elsewhere: int = 0
    elsewhere_first: int = 0
    elsewhere_ns: int | None = None
    owners: list[OwnedMessages] = []
    acts_for: list[str] = []
    consumers: int = 0
    active: str = ""
    full: bool = False
    first: int = 0
    last: int = 0
    oldest_ns: int | None = None
    behind: int = 0
    barrier: int | None = None
    holding: int = 0
    bytes: int = 0
    idle_ms: int | None = None
    memory_bytes: int = 0


class Queues(Correlated, tag="queues"):
    """queues -> admin. whole: there are no others; else those that changed, and `gone`: names of
    which there is none any more. look: for `since`."""

    incarnation: int
    persisted: int
    rows: list[QueueRow]
    look: int = 0
    whole: bool = True
    gone: list[str] = []


class AskConsumers(Correlated, tag="ask_consumers"):
    """admin -> queues. queue: only of this one; "" is all. limit: rows at most."""

    queue: str = ""
    limit: int = 0


class ConsumerRow(Struct, array_like=True, gc=False):
    """One consumer. next_end_ms: until its first lease ends. gone: its connection is lost, and its
    leases wait for it; of such a one no more is known than that. active: it is the one that gets
    messages, or not; None: of a queue that gives them to all."""

    queue: str
    client: str
    sid: str
    address: str
    backlog: int
    held: int
    credit: int
    delivered: int
    acked: int
    filter: str = ""
    next_end_ms: int | None = None
    gone: bool = False
    active: bool | None = None


class Consumers(Correlated, tag="consumers"):
    """queues -> admin. left_out: how many more rows there are."""

    rows: list[ConsumerRow]
    left_out: int = 0


class Explain(Correlated, tag="explain"):
    """admin -> queues. Why is nothing delivered, of a queue or of one message (position > 0)?"""

    queue: str
    position: int = 0
    bookmark: str = ""


class Explained(Refusable, tag="explained"):
    """queues -> admin. state: one word; lines: sentences, the first one is the answer. owners: of
    what waits for another instance; the admin knows their names."""

    state: str = ""
    lines: list[str] = []
    owners: list[OwnedMessages] = []


class BrowseQueue(Correlated, tag="browse_queue"):
    """admin -> queues. As Browse. Answered by Browsed; with `data` its body is a packed array."""

    queue: str
    after: int = 0
    limit: int = 100
    filter: str = ""
    state: str = ""
    data: bool = False


class Browsed(Refusable, tag="browsed"):
    """queues -> admin. payloads: one for each row, if they were asked for."""

    rows: list[BrowsedRow] = []
    next: int | None = None
    payloads: list[bytes] = []


class Purge(Correlated, tag="purge"):
    """admin -> queues. Everything before position `before` leaves the queue; 0: all of it.

    point: instead of a position, the point with this name. Leased messages stay unless `leased`.
    dead_letters: they go to the dead letter topic, with the reason "forced".
    """

    queue: str
    before: int = 0
    point: str = ""
    leased: bool = False
    dry_run: bool = False
    dead_letters: bool = False


class Requeue(Correlated, tag="requeue"):
    """admin -> queues. Dead letters of this queue come back: those of these bookmarks, or all that
    its dead letter topic holds, the newest `limit`."""

    queue: str
    bookmarks: list[str] = []
    limit: int = 1_000
    dry_run: bool = False


class Define(Correlated, tag="define"):
    """admin -> queues. what: create, alter or delete. definition: keys of a [[queue]] table; of
    alter only what changes."""

    what: str
    name: str
    definition: dict[str, Any] = {}
    dry_run: bool = False


class TakeOver(Correlated, tag="take_over"):
    """admin -> queues. The messages of a replicated queue that belong to `instance`, which is away,
    are to belong to the one that is asked. Answered by Changed.

    name: of that instance; as the initial owner it owns messages without its id being known.
    may_duplicate: also of an at-most-once queue, of which some may be delivered twice then.
    until_back: and from now on each that comes, until its log comes here again. end: no more.
    """

    queue: str
    instance: int
    name: str = ""
    may_duplicate: bool = False
    dry_run: bool = False
    until_back: bool = False
    end: bool = False


class DrainQueues(Correlated, tag="drain_queues"):
    """admin -> queues. The next step of a planned stop, for replicated queues: `quiet` (nothing
    more is offered), `give` (all that this instance owns goes to the instance `to`), `off`, or
    `look`: no step."""

    what: str
    to: int = 0


class LeavingQueue(Struct, array_like=True, gc=False):
    """A replicated work queue of an instance that is to stop.

    owned: messages that belong to the instance; leased: of these, those that consumers have. given:
    to the other one since this began. keeps: why none is given; "" if they are. initial: new
    messages belong to the instance, wherever they are published. acts_for: names or ids of
    instances whose messages it took over as they came, and does not take over any more.
    """

    queue: str
    owned: int
    leased: int
    given: int
    keeps: str = ""
    initial: bool = False
    acts_for: list[str] = []


class QueuesDrained(Correlated, tag="queues_drained"):
    """queues -> admin. state: `off`, `quiet`, `giving`. consumers: of replicated work queues, that
    are there; ended: since this began."""

    state: str
    rows: list[LeavingQueue] = []
    consumers: int = 0
    ended: int = 0


class SetPoint(Correlated, tag="set_point"):
    """admin -> queues. Names the place after the last durable message, or position `at` does.

    covers: instead, a vector: the point is before the first message that this does not cover.
    """

    name: str
    at: int = 0
    covers: str = ""


class RemovePoint(Correlated, tag="remove_point"):
    """admin -> queues. The place with this name has no name any more."""

    name: str
    dry_run: bool = False


class AskPoints(Correlated, tag="ask_points"):
    """admin -> queues. Answered by Points. name: that one alone, with its place in this log."""

    name: str = ""


class PointRow(Struct, array_like=True):
    """A named place: messages before `position` are before it. vector: that place by positions of
    this log. set_at: position of the record that set it. covers: see PointRecord. shared: it is a
    vector, `covers`, the same on every instance; its place in this log is looked up when it is
    needed, else position is 0."""

    name: str
    position: int
    vector: str
    set_at: int
    covers: str = ""
    shared: bool = False


class Points(Refusable, tag="points"):
    """queues -> admin."""

    rows: list[PointRow] = []


class Changed(Correlated, tag="changed"):
    """queues -> admin. It is durable (of a dry run: it would be). count: messages it was about."""

    count: int = 0
    position: int = 0
    vector: str = ""
    text: str = ""
    code: str = ""
    reason: str = ""
    hint: str = ""


QueuesQuestion = (
    AskQueues | AskConsumers | Explain | BrowseQueue | Purge | Requeue | Define | SetPoint
    | RemovePoint | AskPoints | TakeOver | DrainQueues | ExchangeQuestion
    | SessionQuestion | BranchQuestion
)  # fmt: skip
QueuesAnswer = (
    Queues | Consumers | Explained | Browsed | Changed | Points | QueuesDrained | ExchangeAnswer
    | SessionAnswer | BranchAnswer
)  # fmt: skip

QUEUES_QUESTIONS: Final = msgspec.msgpack.Decoder(QueuesQuestion | ListenerQuestion)
QUEUES_ANSWERS: Final = msgspec.msgpack.Decoder(QueuesAnswer)
