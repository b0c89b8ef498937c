"""The consumers of one queue: what they hold, and whose turn it is. Pure.

join --> current --leave--> over
           |  connection lost
           v
         lost --reclaim--> over: the new consumer of this client has what it still holds
           +---all it held has ended---> over

A consumer for which no backlog was chosen begins with BACKLOG_LEAST. At the end of each round its
backlog becomes what it settled per ROUND_MS, at most doubled or halved. A round ends when it has
settled its whole backlog, or after ROUND_MS. So a fast consumer soon waits for nothing, a consumer
that becomes slow gets no more before it holds few, and what it holds is a tenth of a second's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from msgspec import Struct, field
from pyroaring import BitMap64

from zbroker.config.queues import QueueConfig
from zbroker.queues.work.selector_stats import SelectorStats
from zbroker.queues.work.sets import insert, remove, without

SessionOf = tuple[str, str]  # whose it is, and its name
Model = Literal["proportional", "round-robin", "fast"]

BACKLOG_LEAST: Final = 64  # a program may collect that many before it acknowledges the first
BACKLOG_MOST: Final = 4_000  # 4 consumers reach 600 k/s, of 1,000 each 410 to 500, of 64 53 to 98
ROUND_MS: Final = 100  # longer than the way to a distant consumer and back
HELD_BACK: Final = 0  # the key of what is held back after a start, see held_back.py
GRACE_MS: Final = 30_000  # for one that was lost, where leases have no end


class QueueConsumer(Struct):
    """number: rises with each that joins. held: leased to it; at-most-once: sent and not
    acknowledged. most: its backlog grows up to that. credit: it may be sent something, as was last
    reported. since: when it got room, as a rising number. freed, round_ms: how many it settled in
    this round, and when that began. until_ms: when one that was lost without leases is forgotten.
    left: how many more it may be given, whatever it settles; None: that is not limited. counted: it
    is in credit mode, so that is its credit in messages. session: of which it is; what it holds is
    leased without an end, then.
    """

    key: int
    client: str
    number: int
    backlog: int
    looks: SelectorStats | None = None
    most: int = 0
    held: BitMap64 = field(default_factory=BitMap64)
    credit: bool = True
    lost: bool = False
    since: int = 0
    freed: int = 0
    round_ms: int = 0
    until_ms: int = 0
    left: int | None = None
    counted: bool = False
    session: SessionOf | None = None

    def adapt(self, now_ms: int) -> None:
        """Ends its round, if that is over."""
        passed_ms = now_ms - self.round_ms
        if self.most <= BACKLOG_LEAST or (self.freed < self.backlog and passed_ms < ROUND_MS):
            return
        kept_up = self.freed * ROUND_MS // max(passed_ms, 1)
        within = max(BACKLOG_LEAST, self.backlog // 2), min(self.most, 2 * self.backlog)
        self.backlog = min(max(kept_up, within[0]), within[1])
        self.freed, self.round_ms = 0, now_ms

    def lease_ms(self, config: QueueConfig) -> int:
        """How long a lease of it lasts, 0: for ever."""
        return 0 if self.session is not None else config.lease

    @property
    def spare(self) -> int:
        """How many more it may be given; negative after it came back with a smaller backlog."""
        spare = self.backlog - len(self.held)
        return spare if self.left is None else min(spare, self.left)


class QueueConsumers:
    """All of one queue, by key, in the order in which they joined.

    limited: keys of those that may be given so many messages only.
    """

    def __init__(self) -> None:
        self.by_key: dict[int, QueueConsumer] = {}
        self.limited: set[int] = set()
        self.in_sessions: set[int] = set()  # keys of those that are of sessions
        self.turn = 0  # number of the consumer that was last in turn
        self._last = 0

    def join(
        self, key: int, client: str, backlog: int, filtered: bool, *, adapts: bool = False
    ) -> QueueConsumer:
        """A new one. backlog: how many it may hold at most. adapts: it begins with fewer."""
        assert key not in self.by_key
        self._last += 1
        looks = SelectorStats() if filtered else None
        made = QueueConsumer(key, client, self._last, backlog, looks, since=self._last)
        if adapts:
            made.most, made.backlog = backlog, min(BACKLOG_LEAST, backlog)
        self.by_key[key] = made
        return made

    def lose(self, consumer: QueueConsumer) -> None:
        """Its connection is lost."""
        consumer.lost, consumer.looks = True, None
        self.limit(consumer, None)

    def forget(self, consumer: QueueConsumer) -> None:
        """It is over."""
        del self.by_key[consumer.key]
        self.limited.discard(consumer.key)
        self.in_sessions.discard(consumer.key)

    def limit(self, consumer: QueueConsumer, left: int | None) -> None:
        """It may be given so many more messages; None: as many as its backlog allows."""
        was_full = consumer.spare <= 0
        consumer.left = left
        if left is None:
            self.limited.discard(consumer.key)
        else:
            self.limited.add(consumer.key)
        if was_full and consumer.spare > 0:
            self._note_free(consumer)

    def take_from(self, one: QueueConsumer, positions: BitMap64) -> None:
        """It has these no more; a lost one that has nothing left is over."""
        remove(one.held, positions)
        self._look_whether_over(one)

    def _look_whether_over(self, one: QueueConsumer) -> None:
        """One that was lost, and has nothing: it may be that nothing else happens that shows it."""
        waits = one.session is not None and one.key != HELD_BACK
        if one.lost and not one.held and not waits:
            self.forget(one)

    def forget_lost(self, now_ms: int) -> None:
        """Those that were lost and hold nothing that may still be asked for. One of a session is
        there as long as that."""
        for one in self.lost():
            idle = not one.held and one.session is None
            if idle or (one.until_ms and one.until_ms <= now_ms):
                self.forget(one)

    @property
    def filtered(self) -> bool:
        """True if one has a filter."""
        return any(True for _ in self.looking())

    def current(self) -> list[QueueConsumer]:
        """Those that are not lost."""
        return [one for one in self.by_key.values() if not one.lost]

    def taking(self, config: QueueConfig) -> list[QueueConsumer]:
        """Those that may be given messages: all that are not lost; where one alone is active, that.

        It is the one that has been there longest. While that is lost and may come back, none is:
        the next one would be given messages from after those that it still has.
        """
        if not config.single_active_consumer:
            return self.current()
        many = self.current() if _next_at_once(config) else self.by_key.values()
        first = min(many, key=lambda one: one.number, default=None)
        return [] if first is None or first.lost else [first]

    def replace(self, old: QueueConsumer, new: QueueConsumer, config: QueueConfig) -> None:
        """A lost one is back as another one. If one alone is active, that has its place, unless
        the next one took over at once."""
        self.forget(old)
        if config.single_active_consumer and not _next_at_once(config):
            new.number = min(new.number, old.number)

    def lost(self) -> list[QueueConsumer]:
        """Those whose connection was lost, and that may come back."""
        return [one for one in self.by_key.values() if one.lost]

    def lost_of(self, client: str) -> list[QueueConsumer]:
        """What a client had before its connection was lost."""
        return [one for one in self.lost() if one.client == client]

    def looking(self) -> Iterator[SelectorStats]:
        """What the consumers with filters know."""
        return (one.looks for one in self.by_key.values() if one.looks is not None)

    def give(self, consumer: QueueConsumer, positions: BitMap64) -> None:
        """It has them now."""
        insert(consumer.held, positions)

    def free(self, positions: BitMap64, first: QueueConsumer | None = None) -> int:
        """No consumer has them any more. first: the one that probably had. A lost one that has
        nothing left is over.

        Returns: how many were held.
        """
        rest, count, over = positions, 0, list[QueueConsumer]()
        for one in (first, *self.by_key.values()) if first is not None else self.by_key.values():
            if not one.held or one.held.isdisjoint(rest):
                continue
            part = one.held & rest
            count += len(part)
            if one.spare <= 0:
                self._note_free(one)
            remove(one.held, part)
            one.freed += len(part)
            over.append(one)
            if len(part) == len(rest):
                break
            rest = rest - part
        for one in over:
            self._look_whether_over(one)
        return count

    def _note_free(self, consumer: QueueConsumer) -> None:
        self._last += 1
        consumer.since = self._last

    def owner(self, position: int) -> QueueConsumer | None:
        """The consumer that has it."""
        return next((one for one in self.by_key.values() if position in one.held), None)

    def gone(self, positions: BitMap64) -> None:
        """They left the queue: filters need not know them any more."""
        for looks in self.looking():
            looks.gone(positions)

    def appeared(self, positions: BitMap64) -> None:
        """They can be offered: consumers past them look at them later, unless they have."""
        for looks in self.looking():
            looks.near.appeared(without(positions, looks.looked))

    def disowned(self, positions: BitMap64) -> None:
        """They belong to another instance: the same holds for what is asked of others."""
        for looks in self.looking():
            looks.far.appeared(without(positions, looks.looked))

    def out_of_sessions(self, positions: BitMap64) -> BitMap64:
        """Those that no session holds: its leases have no end."""
        for key in self.in_sessions:
            positions = without(positions, self.by_key[key].held)
        return positions

    def others(self, leased: BitMap64, holder: QueueConsumer | None) -> BitMap64:
        """Those that another consumer has. Those held back after a start may be of any one."""
        for one in (holder, self.by_key.get(HELD_BACK)):
            leased = leased if one is None else without(leased, one.held)
        return leased

    @property
    def held_back(self) -> int:
        """How many messages may be with consumers from before a start."""
        lost = self.by_key.get(HELD_BACK)
        return 0 if lost is None else len(lost.held)

    def held(self) -> int:
        """How many messages are with consumers."""
        return sum(len(one.held) for key, one in self.by_key.items() if key != HELD_BACK)

    def check(self) -> None:
        """Asserts what is always true."""
        whole = BitMap64()
        assert self.in_sessions == {key for key, one in self.by_key.items() if one.session}
        for key, one in self.by_key.items():
            assert one.key == key
            assert (key in self.limited) == (one.left is not None)
            assert one.left is None or one.left >= 0
            assert one.held.isdisjoint(whole)
            whole |= one.held
            if one.looks is not None:
                one.looks.check()


def _next_at_once(config: QueueConfig) -> bool:
    """Nothing that a lost consumer was sent comes back, so the next one need not wait for it."""
    return config.semantics == "at-most-once"


def most_of(config: QueueConfig) -> int:
    """How many messages one consumer of a queue may hold at most.

    At-most-once messages are lost with their consumer, so it has few at a time.
    """
    most = BACKLOG_LEAST if config.semantics == "at-most-once" else BACKLOG_MOST
    return config.max_per_subscription or min(most, config.max_backlog or most)


def in_turn(consumers: Iterable[QueueConsumer], turn: int) -> list[QueueConsumer]:
    """All of them, the one after number `turn` first."""
    return sorted(consumers, key=lambda one: (one.number <= turn, one.number))
