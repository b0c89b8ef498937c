"""One queue of the process: definition, state, and what is to be committed for it. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from pyroaring import BitMap64

from zbroker.definitions import Definition
from zbroker.definitions.intake import QueueIntake
from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.log.format import Batch
from zbroker.log.reader import Cursor
from zbroker.log.records import (
    AnyFact,
    BarrierDelivered,
    Failed,
    GoneEarly,
    Horizon,
    Locked,
    MessagesGone,
    Noted,
    NotedEarly,
    Returned,
    pack_positions,
    unpack_positions,
)
from zbroker.queues.effects import Give
from zbroker.queues.replayable import Replayable
from zbroker.queues.replicated.origins_read import OriginsRead
from zbroker.queues.replicated.replicated_queue import ReplicatedQueue
from zbroker.queues.replicated.replicated_replayable import ReplicatedReplayable
from zbroker.queues.stand_ins import StandIns
from zbroker.queues.work import held_back, locks
from zbroker.queues.work.length_limit import MAX_LENGTH
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import span, without
from zbroker.queues.work.values import Arrivals, Lock, Outcome
from zbroker.wire.queue_surveys import QueueCounters, QueueRow

if TYPE_CHECKING:
    from zbroker.queues.log_work import FoundMessages

#: why a message became a dead letter, or would have, if there were a topic for these
GIVEN_UP: Final = frozenset(
    {
        "time_limit",
        "max_deliveries",
        "max_cancels",
        "max_length",
        "rejected",
        "forced",
        "unreadable",
    }
)
STEP: Final = 1_000  # positions between two marks of Ages
MARKS_MAX: Final = 20_000  # then every second one is forgotten
AHEAD: Final = 10_000  # positions by which the horizon is ahead of what was delivered
FACTS_MAX: Final = 1_000_000  # messages that one unit is about, besides the last ones


#: called with "" once something is durable, or with the code of its refusal
Ending = Callable[[str], None]
Entry = tuple[Outcome, Ending | None]


def after_all(count: int, then: Ending) -> Ending:
    """An Ending for `count` parts: with the last one it calls `then`, with the first refusal."""
    left, refused = count, ""

    def ended(code: str) -> None:
        nonlocal left, refused
        left, refused = left - 1, refused or code
        if left == 0:
            then(refused)

    if not count:
        then("")
    return ended


class QueueCounts(QueueCounters):
    """What the queue itself counts."""

    def landed(self, outcome: Outcome) -> None:
        """An outcome is in the log."""
        many = len(outcome.positions)
        if outcome.fate == "failed":
            self.failed += many
        elif outcome.why == "acked" or outcome.why == "sent":
            self.acked += many
        elif outcome.why == "time_limit":
            self.expired += many
        elif outcome.why == MAX_LENGTH:
            self.dropped += many
        self.dead += many if outcome.why in GIVEN_UP else 0


class Walk(Struct):
    """One cursor and the queues that read with it. `position`: the log before it was read.

    alone: it reads the records of one origin again for this replicated queue, and nothing else;
    None: the names of all that is in this local queue. unused: blocks in a row of which no
    body was needed. in_unit: the unit that was read last goes on after `position`.
    """

    key: int
    cursor: Cursor
    position: int
    seek: bool = True
    members: set[str] = field(default_factory=set)
    alone: tuple[str, Origin | None] | None = None
    unused: int = 0
    in_unit: bool = False
    origins: OriginsRead = field(default_factory=OriginsRead)


class Ages:
    """How old the messages of a queue are, and how much of the log they are: marks along it.

    total: bytes of everything that entered since the marks began.
    """

    def __init__(self) -> None:
        self.total = 0
        self._step = STEP
        self._positions = array("q")
        self._times = array("q")
        self._bytes = array("q")

    def add(self, position: int, log_time: int, size: int) -> None:
        """A batch, in log order."""
        if not self._positions or position >= self._positions[-1] + self._step:
            if len(self._positions) >= MARKS_MAX:
                self._thin()
            self._positions.append(position)
            self._times.append(log_time)
            self._bytes.append(self.total)
        self.total += size

    def _thin(self) -> None:
        self._step *= 2
        for one in (self._positions, self._times, self._bytes):
            one[:] = one[::2]

    def at(self, position: int) -> tuple[int | None, int]:
        """Log time at a position, or a little before it; bytes before that."""
        found = bisect_right(self._positions, position) - 1
        if found < 0:
            return None, 0
        return self._times[found], self._bytes[found]

    def dump(self) -> bytes:
        """For the tables."""
        head = array("q", [self.total, self._step, len(self._positions)])
        return b"".join(one.tobytes() for one in (head, self._positions, self._times, self._bytes))

    def load(self, data: bytes) -> None:
        """From the tables."""
        numbers = array("q")
        numbers.frombytes(data)
        self.total, self._step, count = numbers[:3]
        self._positions = numbers[3 : 3 + count]
        self._times = numbers[3 + count : 3 + 2 * count]
        self._bytes = numbers[3 + 2 * count :]


class QueueState(Struct):
    """A queue at work.

    folded: the log before this position counts already: the position of its walk, or `ahead` of
    that, where it was when it joined the walk. ready_at: it offers nothing before it was folded up
    to there. return_to: the same of what an instance that was away has to read; doubted: some of
    that is missing. horizon: all messages before it may have been delivered, and that is durable.
    highest: position that was offered. parked: messages that are sent as soon as the horizon is
    after them. line: where one consumer gets all in order, what is being sent, and what waits for
    that.
    """

    definition: Definition
    queue: Queue | Replayable
    entering: QueueIntake
    ahead: int
    walk: Walk | None = None
    ready_at: int = 0
    ready: bool = False
    return_to: int = 0
    doubted: bool = False
    horizon: int = 0
    noted: int | None = None  # nothing from there on was sent, as far as that was noted
    wanted_horizon: int = 0
    highest: int = 0
    taken_ms: int | None = None
    used_ms: int | None = None  # when it was declared again, or its last consumer ended
    consumed: bool = False  # it has had a consumer
    counts: QueueCounts = field(default_factory=QueueCounts)
    entries: list[Entry] = field(default_factory=list)
    facts: list[AnyFact] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)  # of the facts
    idle_row: QueueRow | None = None  # as long as it is not used
    waiters: list[tuple[BitMap64, Ending]] = field(default_factory=list)  # until none is going
    paused_until_ms: int = 0  # the log could not be read for it
    releasing_to: int = 0  # before that it is letting go, or has let go, of the log: max_hold
    letters_read: int = 0  # messages that are being read to make dead letters of them
    parked: list[Give] = field(default_factory=list)
    line: list[Give] = field(default_factory=list)
    ages: Ages = field(default_factory=Ages)
    dead: BitMap64 = field(default_factory=BitMap64)  # given up, and may be brought back
    returning: BitMap64 = field(default_factory=BitMap64)  # of these, what is on its way back
    returned: BitMap64 = field(default_factory=BitMap64)  # came back, and may be at any position
    replicated: ReplicatedQueue | ReplicatedReplayable | None = None  # others have it, too
    met: bool = False  # it ended since it has become another one, and is read again
    migrating: bool = False  # it is to be on several instances: nothing new is decided until it is
    stand_ins: StandIns = field(default_factory=StandIns)
    full: bool = False  # publishers are refused: overflow
    rewriting: int = 0  # so many of its early facts are on their way to the log again
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.definition.config.name

    @property
    def folded(self) -> int:
        return self.ahead if self.walk is None else max(self.ahead, self.walk.position)

    @property
    def in_unit(self) -> bool:
        """A part of a unit may be folded, and the rest not."""
        return self.walk is not None and (self.walk.in_unit or self.ahead > self.walk.position)

    @property
    def offers(self) -> bool:
        """Its messages may go to consumers, or to other instances."""
        return self.ready and not self.migrating and self.folded >= self.return_to

    @property
    def suspected_to(self) -> int:
        """The process before this one may have delivered messages before this position."""
        return self.horizon if self.noted is None else min(self.horizon, self.noted)

    @property
    def lowest(self) -> int:
        """It needs the log from there on."""
        lows = (self.queue.lowest, self.returning.min() if self.returning else None, self.folded,
                self.held)  # fmt: skip
        return min(low for low in lows if low is not None)

    @property
    def held(self) -> int | None:
        """It needs the log from there on for the facts of a replicated queue."""
        if self.replicated is None:
            return None
        lows = self.replicated.needs, self.stand_ins.lowest
        return min((low for low in lows if low is not None), default=None)

    def records_of_life(self, life: int) -> bool:
        """True if records of this log with that number are about this declaration."""
        if self.replicated is not None:
            return life in self.replicated.view.declarations
        return life == self.definition.declaration

    @property
    def oldest_ns(self) -> int | None:
        """Log time of its oldest message, or a little before."""
        lowest = self.queue.lowest
        return None if lowest is None else self.ages.at(lowest)[0]

    @property
    def log_bytes(self) -> int:
        """Size of the log's batches from its oldest message on, roughly."""
        lowest = self.queue.lowest
        return 0 if lowest is None else self.ages.total - self.ages.at(lowest)[1]

    def forget_dead(self, log_start: int) -> None:
        """Messages before the start of the log are not brought back any more."""
        self.dead.remove_range(0, log_start)
        self.returned &= self.queue.here

    def fold(self, batch: Batch, payloads: Callable[[], list[bytes]]) -> bool:
        """Takes what enters of a batch that was read. False: nothing does."""
        entered = self.entering(batch, payloads)
        if entered is None:
            return False
        if batch.position < self.ahead:
            entered = entered.part(span(self.ahead, batch.end_position))
        replicated = self.replicated
        if replicated is not None:
            entered = replicated.entering(batch, entered)
            if entered is None:
                return False
        self.queue.entered(entered)
        if replicated is not None:
            replicated.entered(batch, entered)
        self.ages.add(batch.position, batch.log_time, len(batch.body))
        self.counts.entered += len(entered.positions)
        return True

    def entered_of(self, found: FoundMessages) -> Arrivals | None:
        """Messages that were read again, as they entered; None: they do not enter any more."""
        entered = self.entering(found.batch, lambda: found.block.unpacked(found.at))
        return entered and entered.part(found.positions)

    def begin_to_offer(self) -> None:
        """If the log was folded that far; after a start what may have been sent is flagged."""
        if not self.ready and self.folded >= self.ready_at:
            self.ready, self.wanted_horizon = True, self.horizon
            if isinstance(self.queue, Queue):
                self.queue.suspect(self.suspected_to)
                held_back.hold(self.queue)
                if isinstance(self.replicated, ReplicatedQueue):
                    self.queue.flag(self.replicated.flagged)
        if self.doubted and self.offers and isinstance(self.queue, Queue):
            self.doubted = False
            self.queue.flag(self.queue.here)

    def check_ready(self) -> None:
        """Raises: ClientError not_ready, as long as it is not known what is in the queue."""
        if not self.ready:
            raise ClientError("not_ready", f"queue {self.name!r} is being read")

    @property
    def locked(self) -> BitMap64:
        """Messages that branches of distributed transactions have locked."""
        return self.queue.places.locks.all if isinstance(self.queue, Queue) else BitMap64()

    @property
    def reserved(self) -> int:
        """How many those are, with those that are about to be."""
        if not isinstance(self.queue, Queue):
            return 0
        return len(self.locked | self.queue.places.locks.coming)

    def check_unlocked(self) -> None:
        """Raises: ClientError queue_in_use, as long as a branch of a distributed transaction has
        messages of it, or is about to."""
        if self.reserved:
            text = f"{self.reserved} messages of {self.name!r} are locked by prepared branches"
            raise ClientError("queue_in_use", text, "decide them: list the branches")

    def waited(self) -> None:
        """Calls those that waited for messages of which none is going any more."""
        going = without(self.queue.going, self.locked)
        self._end_waits(lambda positions: positions.isdisjoint(going), "")

    def refused(self, positions: BitMap64, code: str) -> None:
        """Calls those that waited for some of these, of which an outcome was refused."""
        self._end_waits(lambda waited: not waited.isdisjoint(positions), code)

    def _end_waits(self, over: Callable[[BitMap64], bool], code: str) -> None:
        waiters, self.waiters = self.waiters, []
        for positions, ending in waiters:
            if over(positions):
                ending(code)
            else:
                self.waiters.append((positions, ending))

    def over(self, entries: Sequence[Entry], code: str) -> None:
        """The unit of these outcomes has landed, or was refused with a code."""
        for outcome, ending in entries:
            if code:
                self.queue.undo(outcome)
            else:
                self.counts.landed(outcome)
            if ending is not None:
                ending(code)
            if code:
                self.refused(outcome.positions, code)

    def of_one_unit(self) -> tuple[list[Entry], list[Entry]]:
        """What goes into one unit, and the rest: dead letters, and what would make it too large."""
        some: list[Entry] = []
        rest: list[Entry] = []
        count = 0
        for entry in self.entries:
            if entry[0].letter or count >= FACTS_MAX:
                rest.append(entry)
            else:
                some.append(entry)
                count += len(entry[0].positions)
        return some, rest

    def abandon(self, code: str) -> None:
        """It is over: calls all that wait for something that will not come."""
        endings = [*self.endings, *(ending for _, ending in (*self.entries, *self.waiters))]
        self.entries, self.facts, self.endings, self.waiters = [], [], [], []
        for ending in endings:
            if ending is not None:
                ending(code)

    def write_again(self) -> None:
        """Messages that were acknowledged before they came get a fact after them; the log may then
        be removed up to them. It is held until then."""
        replicated = self.replicated
        if replicated is None or self.rewriting or not replicated.unwritten:
            return
        count = self.rewriting = len(replicated.unwritten)

        def landed(code: str) -> None:
            self.rewriting = 0
            if not code:
                del replicated.unwritten[:count]

        self.facts += replicated.again()
        self.endings.append(landed)

    def apply(self, fact: AnyFact) -> None:
        """Something that the log says of the messages of this queue."""
        queue = self.queue
        if isinstance(fact, MessagesGone):
            positions = unpack_positions(fact.where)
            if fact.why in GIVEN_UP:
                self.dead |= positions & queue.here
            queue.gone(positions)
        elif isinstance(fact, Horizon):
            # also without a receipt: tables that are saved now would be older than it
            self.horizon = max(self.horizon, fact.position)
        elif isinstance(fact, GoneEarly):
            self._left(unpack_positions(fact.where))
        elif isinstance(queue, Replayable):
            if isinstance(fact, Noted | NotedEarly):
                queue.noted(unpack_positions(fact.where))
        else:
            self._apply_work(fact, queue)

    def _apply_work(self, fact: AnyFact, queue: Queue) -> None:
        if isinstance(fact, Failed):
            where = unpack_positions(fact.where)
            queue.failed(where, fact.why, fact.due_ns, fact.delay_ms)
        elif isinstance(fact, Locked):
            lock = Lock(fact.branch, fact.reject)
            locks.locked(queue, unpack_positions(fact.where), lock)
        elif isinstance(fact, BarrierDelivered):
            self._left(BitMap64([fact.position]))  # it went to every consumer
        elif isinstance(fact, Returned):
            positions = unpack_positions(fact.where)
            priorities = array("Q", fact.priorities) if fact.priorities else None
            groups = array("q", fact.groups) if fact.groups else None
            self.dead -= positions
            self.returning -= positions
            self.returned |= positions
            queue.returned(positions, Arrivals(positions, priorities, groups))

    def _left(self, positions: BitMap64) -> None:
        """They left the queue here, whatever becomes of them elsewhere."""
        if isinstance(self.replicated, ReplicatedReplayable):
            self.replicated.take_out(positions & self.queue.here)
            return
        self.queue.gone(positions)
        if self.replicated is not None:
            self.replicated.left(positions)


def facts_of(outcomes: list[Outcome]) -> list[AnyFact]:
    """The facts that outcomes are, as few as can be. Those of local queues, or of this log."""
    gone: dict[str, list[BitMap64]] = defaultdict(list)
    failed: dict[tuple[str, int, int], list[BitMap64]] = defaultdict(list)
    locked: dict[Lock, list[BitMap64]] = defaultdict(list)
    noted: list[BitMap64] = []
    for one in outcomes:
        if one.fate == "gone":
            gone[one.why].append(one.positions)
        elif one.fate == "failed":
            failed[one.why, one.due_ns, one.delay_ms].append(one.positions)
        elif one.lock is not None:
            locked[one.lock].append(one.positions)
        else:
            noted.append(one.positions)
    facts: list[AnyFact] = [MessagesGone(_packed(many), why) for why, many in gone.items()]
    facts += [Failed(_packed(many), *how) for how, many in failed.items()]
    facts += [Locked(_packed(many), *lock) for lock, many in locked.items()]
    return [*facts, Noted(_packed(noted))] if noted else facts


def _packed(many: list[BitMap64]) -> bytes:
    return pack_positions(many[0] if len(many) == 1 else BitMap64.union(*many))
