"""All replays and whose turn it is: how far the log is durable, who has to read next.

Its durability says how far one may be sent: to the end of what was written (`live`), of the durable
log, or of the part that enough synchronous destinations hold, too (`fully_durable`). A replay that
is beyond that, after an upgrade or a restart, waits where it is.

Replays that have caught up and those that have not wait in two queues that alternate, so the newest
messages wait for at most one block of an old one. Those that look for rare topics share scans: see
scans.py. Those that wait for a time are in a heap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from itertools import chain, count
from typing import Final

from zbroker.blocks.frame_builder import FrameBuilder
from zbroker.blocks.read_request import Read
from zbroker.delivery.passage import Passage
from zbroker.delivery.points import Point
from zbroker.delivery.replay import Replay
from zbroker.delivery.scans import SharedScan, WaitingScans
from zbroker.delivery.subscription import SubscriptionState
from zbroker.engine.effects import FollowMark
from zbroker.engine.replicated_mark import ReplicatedMark
from zbroker.ids import Origin
from zbroker.limits import U63_MAX
from zbroker.wire.replicas import Replicated

TIMERS_SPARE: Final = 64  # outdated times, after a pause or an end, before a sweep


class Cursors:
    """Replays by key. `here`, `announced` and `maker` are None until the journal was heard of.

    announced: what clients take for the origin of messages that name none, as long as this process
    lives. A generation that begins meanwhile is named in each frame.
    """

    def __init__(self, *, replicated: bool = False) -> None:
        """replicated: there are synchronous destinations."""
        self.incarnation = 0
        self.here: Origin | None = None
        self.announced: Origin | None = None
        self.maker: FrameBuilder | None = None
        self.log_start = 0
        self.written = 0
        self.persisted = 0
        self.running: dict[int, Replay] = {}
        self.of: dict[int, Replay] = {}  # by the key of a subscription
        self.fell_back = 0  # times that one with live delivery had to be replayed to, being slow
        self._eager: set[int] = set()  # keys of those that follow what is written
        self._by_log: set[int] = set()  # and of those with intervals of log time
        self._waiting: set[int] = set()  # and of those that wait for destinations
        self._replicated = ReplicatedMark(on=replicated)
        self._last_key = 0
        self._queues: tuple[deque[Replay], deque[Replay]] = (deque(), deque())
        self._timers: list[tuple[int, int]] = []  # when, key
        keys = count(-1, -1)
        self.waiting = WaitingScans(keys, lowest_first=False), WaitingScans(keys, lowest_first=True)
        self._waits = tuple(waiting.queue for waiting in self.waiting)
        self._turn, self._turns = 0, [0, 0]

    # -- the journal --------------------------------------------------------------------------

    def heard(
        self, incarnation: int, here: Origin, log_start: int, written: int, persisted: int
    ) -> int | None:
        """Takes the watermarks of a journal.

        Returns: None, or, if it is another journal than before, how many cursors had to go back
        because they were beyond its end.
        """
        restarted = incarnation != self.incarnation
        if restarted:
            self.incarnation, self.here = incarnation, here
            self._replicated.journal_begins(incarnation)
            if self.announced is None:
                self.announced, self.maker = here, FrameBuilder(here)
            self.log_start, self.written, self.persisted = log_start, written, persisted
        # a welcome may be older than watermarks that were read before it
        self.here = max(self.here or here, here)
        self.log_start, self.persisted = (
            max(self.log_start, log_start),
            max(self.persisted, persisted),
        )
        self.written = max(self.written, written, self.persisted)
        rewound = None
        if restarted:
            for replay in chain.from_iterable(waiting.clear() for waiting in self.waiting):
                replay.queued = False
            rewound = sum(self._look_again(replay) for replay in self.running.values())
        for waiting in self.waiting:
            if waiting.at_rest:
                waiting.wake(self.persisted)
        for replay in self.running.values():
            replay.dry = False
            self.wake(replay)
        return rewound

    def follow_mark(self, now_ms: int) -> list[FollowMark]:
        """Subscriptions that are fully durable wait for it."""
        return self._replicated.follow(now_ms, needed=bool(self._waiting))

    def replicated(self, said: Replicated) -> None:
        """Destinations hold more now, or others are waited for."""
        if self._replicated.moved(said):
            for key in self._waiting:
                replay = self.running[key]
                replay.dry = False
                self.wake(replay)

    def _look_again(self, replay: Replay) -> bool:
        """Looks for the cursor by its position: files may differ. True if it had to go back."""
        beyond_end, at = replay.position > self.persisted, replay.position
        for one in replay.members:
            if one.target > self.persisted:
                one.target, one.at_target = self.persisted, {}
        if beyond_end:  # messages that were passed or are held may never be in the log
            at = min(self.persisted, *(one.safe(at) for one in replay.members))
            replay.publisher = replay.sequence = 0
            for one in replay.members:
                one.drop_held()
        replay.go_to(Point(at, *replay.hint))
        replay.flush = (
            replay.intervals is not None
        )  # messages it waited for may never be in the log
        return beyond_end

    # -- who follows which cursor -------------------------------------------------------------

    def add(self, one: SubscriptionState, at: Point) -> Replay:
        """Takes in a subscription that was located."""
        assert self.here is not None, "the journal was heard of"
        replay = self._new([one])
        replay.go_to(at)
        known = at.passed_at > 0
        replay.passage = Passage(dict(at.passed) if known else {self.here: at.position - 1})
        replay.finding = known and at.passed_at < at.position
        self.wake(replay)
        return replay

    def found(self, replay: Replay, vector: Mapping[Origin, int]) -> None:
        """It is known now how much was passed before its start."""
        replay.passage, replay.finding = Passage(vector), False

    def _new(self, members: list[SubscriptionState]) -> Replay:
        self._last_key += 1
        replay = Replay(self._last_key, members, running=True)
        self.running[replay.key] = replay
        if replay.intervals is not None and not replay.intervals.by_replay:
            self._by_log.add(replay.key)
        if self._replicated.on and members[0].fully_durable:
            self._waiting.add(replay.key)
        for one in members:
            self.of[one.names.key] = replay
        return replay

    def remove(self, one: SubscriptionState) -> None:
        """Forgets a subscription; the place of its replay in a queue is skipped later."""
        replay = self.of.pop(one.names.key, None)
        if replay is None:
            return
        self.leave(replay)
        replay.members.remove(one)
        if replay.members:
            self.wake(replay)
        else:
            self._close(replay)

    def alone(self, one: SubscriptionState) -> Replay:
        """The replay of a subscription that leaves the others of its replay, if there are any."""
        old = self.of[one.names.key]
        self.leave(old)
        if len(old.members) == 1:
            return old
        old.members.remove(one)
        new = self._new([one])
        new.go_to(Point(old.position, *old.hint))
        new.publisher, new.sequence = old.publisher, old.sequence
        new.passage = old.passage.copy()
        new.flush = new.intervals is not None  # it looks itself when what it holds is due
        self.wake(old)
        return new

    def again(self, one: SubscriptionState) -> None:
        """Goes back to the first held message: all of them are read again."""
        replay = self.alone(one)
        at = one.safe(replay.position)
        one.drop_held()
        replay.go_to(Point(at, *replay.hint))
        self.wake(replay)

    def together(self, many: list[SubscriptionState]) -> Replay:
        """One replay for subscriptions at the same position."""
        first, *others = (self.of[one.names.key] for one in many)
        for one, other in zip(many[1:], others, strict=True):
            if other is not first:
                first.passage.meet(other.passage)
                other.members.remove(one)
                first.members.append(one)
                self.of[one.names.key] = first
                if not other.members:
                    self._close(other)
        first.flush = first.intervals is not None
        return first

    def leave(self, replay: Replay) -> None:
        """It waits in no scan any more, because it changes; `wake` it afterwards."""
        if any(waiting.discard(replay) for waiting in self.waiting):
            replay.queued = False

    def _close(self, replay: Replay) -> None:
        replay.running = False
        self._eager.discard(replay.key)
        self._by_log.discard(replay.key)
        self._waiting.discard(replay.key)
        del self.running[replay.key]

    # -- whose turn it is ---------------------------------------------------------------------

    def limit(self, replay: Replay) -> int:
        """The position up to which it may be sent."""
        if replay.key in self._waiting:
            return min(self.persisted, self._replicated.through)
        return self.written if replay.eager else self.persisted

    def wake(self, replay: Replay) -> None:
        """Queues a replay if it has something to do."""
        if replay.members[0].live:
            self._follow(replay)
        if not replay.queued and replay.due(self.limit(replay)):
            replay.queued = True
            if len(self.running) > 1 and replay.shares and replay.key not in self._waiting:
                self.waiting[not replay.caught_up].add(replay)
            else:
                self._queues[not replay.caught_up].append(replay)

    def _follow(self, replay: Replay) -> None:
        """One with live delivery is ahead of the sync while it keeps up, else it is a replay."""
        if replay.position >= self.persisted:
            replay.eager = True
            self._eager.add(replay.key)
        elif replay.eager and replay.members[0].credit <= 0:
            replay.eager = False
            self._eager.discard(replay.key)
            self.fell_back += 1

    def rest(self, replay: Replay) -> None:
        """After its turn: queues it again, or notes when its time comes."""
        if not replay.running:
            return
        self.wake(replay)
        for when in replay.times:
            heappush(self._timers, (when, replay.key))
        if len(self._timers) > TIMERS_SPARE + 4 * len(self.running):
            self._timers = [(w, one.key) for one in self.running.values() for w in one.times]
            heapify(self._timers)

    def ring(self, now_ns: int) -> None:
        """Wakes replays whose time has come."""
        while self._timers and self._timers[0][0] <= now_ns:
            when, key = heappop(self._timers)
            replay = self.running.get(key)
            if replay is None:
                continue
            if replay.due_ns == when:
                replay.due_ns = None
            if replay.flush_ns == when:
                replay.flush_ns, replay.flush = None, True
            self.wake(replay)

    @property
    def eager(self) -> bool:
        """True if a subscription follows written messages before they are durable."""
        return bool(self._eager or self._by_log)

    @property
    def next_ns(self) -> int | None:
        """When the next time comes, monotonic."""
        return self._timers[0][0] if self._timers else None

    @property
    def lag_max(self) -> int:
        """How many durable positions the slowest subscription has not handled."""
        handled = (
            one.trail.handled(replay.position)
            for replay in self.running.values() for one in replay.members
        )  # fmt: skip
        return max(0, self.persisted - min(handled, default=self.persisted))

    @property
    def busy(self) -> bool:
        """True if a read is wanted."""
        return any(self._queues) or any(self._waits)

    def next_read(self) -> Read | None:
        """Whose turn it is, and what it has to read. Asking changes nothing: see `take`."""
        while self.busy:
            old, shared = self._whose_turn()
            one, limit = self.waiting[old].first() if shared else (self._queues[old][0], U63_MAX)
            if isinstance(one, SharedScan):
                return one.read(min(limit, self.persisted))
            if one.due(self.limit(one)):
                return self._read(one, limit)
            self._take()  # it has nothing to do any more
        return None

    def _whose_turn(self) -> tuple[int, bool]:
        """Those that have caught up (0) or the old ones (1), and whether one that may share."""
        old = self._turn ^ 1
        if not (self._queues[old] or self._waits[old]):
            old ^= 1
        shared = not self._queues[old] or (self._turns[old] == 0 and bool(self._waits[old]))
        return old, shared

    def take(self, read: Read) -> tuple[Replay | SharedScan, WaitingScans]:
        """For whom this was read. It is what `next_read` said last, and nothing came between."""
        one, waiting = self._take()
        assert one.key == read.key, "a read is done when it is asked for"
        return one, waiting

    def _take(self) -> tuple[Replay | SharedScan, WaitingScans]:
        old, shared = self._whose_turn()
        waiting = self.waiting[old]
        self._turn ^= 1
        self._turns[old] ^= 1
        one = waiting.take() if shared else self._queues[old].popleft()
        if not isinstance(one, SharedScan):
            one.queued = False
        return one, waiting

    def _read(self, replay: Replay, limit: int) -> Read:
        limit = min(limit, self.limit(replay), replay.until)
        read = Read(
            replay.key, replay.cursor, replay.seek, limit, replay.block_bytes, replay.caught_up
        )
        if replay.caught_up or len(replay.members) > 1:
            return read
        one = replay.members[0]
        return read._replace(wants=one.selection.topics, wants_key=(one.topic, one.regex))

    def check(self) -> None:
        """Asserts what is always true."""
        for waiting in self.waiting:
            waiting.check()
        for key, replay in self.running.items():
            assert replay.running
            assert replay.key == key
            assert replay.members
            assert all(self.of[one.names.key] is replay for one in replay.members)
            target = max(one.target for one in replay.members)
            assert replay.position <= max(self.persisted, self.limit(replay), target), replay
            assert replay.queued or not replay.due(self.limit(replay)), (
                f"{replay} would wait for ever"
            )
        assert self._eager == {key for key, replay in self.running.items() if replay.eager}
        assert self._by_log <= self.running.keys()
        assert self._waiting <= self.running.keys()
        assert sum(len(replay.members) for replay in self.running.values()) == len(self.of)
