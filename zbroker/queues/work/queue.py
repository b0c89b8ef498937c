"""One queue: a fold of the log, and what is done meanwhile. Pure; time comes in.

    fold   entered, gone, failed, barrier_delivered, returned, suspect: true, in order, no time
    work   join, offer, settle, tick ...: decides, and says what is to be committed (Outcome)

An outcome is true once the fold has read it. Until then its messages are going: nobody is offered
them. If its unit is refused, `undo` puts them back. Where a message stands: see places.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyroaring import BitMap64

from zbroker.config.queues import QueueConfig
from zbroker.engine.contract import Now
from zbroker.queues.work import places, reasons
from zbroker.queues.work.columns import only
from zbroker.queues.work.consumers import GRACE_MS, QueueConsumer, QueueConsumers, next_unlooked
from zbroker.queues.work.delivery_counts import COUNT_MAX, DeliveryCounts
from zbroker.queues.work.grouped import Grouped
from zbroker.queues.work.leases import end_of
from zbroker.queues.work.offers import Offers, once
from zbroker.queues.work.outcomes import Outcomes
from zbroker.queues.work.places import MessagePlaces
from zbroker.queues.work.ranked import Ranked
from zbroker.queues.work.ready import Plain, ReadyMessages
from zbroker.queues.work.sets import below, insert, remove, without
from zbroker.queues.work.values import Arrivals, Numbers, Offer, Outcome, SettleResult, Standing


class Queue:
    """more: something may be left that the last `offer` could not give; ask again."""

    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self.places = MessagePlaces(_ready_of(config))
        self.consumers = QueueConsumers()
        self.counting = DeliveryCounts()
        self.more = False
        self._offering = Offers(self.places, self.consumers)
        self._ending = Outcomes(config, self.places, self.consumers, self.counting)
        self._now = Now(0, 0)

    def alter(self, config: QueueConfig) -> None:
        """Other settings from now on; what is leased stays leased as it was."""
        self.config = self._ending.config = config

    # -- fold ---------------------------------------------------------------------------------

    def entered(self, entered: Arrivals) -> None:
        """Messages that were published; none of them is here."""
        self.places.enter(entered)

    def gone(self, positions: BitMap64) -> None:
        """They left the queue, from wherever they stood. Those that are not here are ignored."""
        if not self._once:
            self._free(positions)
        found = self.places.drop(positions)
        self.counting.drop(found)
        self.consumers.gone(found)

    def failed(self, positions: BitMap64, why: str, due_ns: int, delay_ms: int = 0) -> None:
        """A delivery of each failed; they come back, and are not offered before `due_ns`, which was
        `delay_ms` ahead (0: not known)."""
        found = positions & self.here
        self.counting.failed(found, why)
        self._free(found)
        self.places.back(self.places.failed(found, due_ns, delay_ms))

    def barrier_delivered(self, position: int) -> None:
        """The barrier went to every consumer."""
        self.gone(BitMap64([position]))

    def returned(self, positions: BitMap64, entered: Arrivals) -> None:
        """Dead letters that are messages again; their counts begin anew."""
        self.counting.drop(positions & self.here)
        fresh = without(entered.positions, self.here)
        if not fresh:
            return
        if self._once:
            self.consumers.free(fresh)  # whoever was sent them before, and never said so
        self.places.leases.forget(fresh)
        self.places.expiring.forget(fresh)
        self.places.enter(only(entered, fresh))

    def suspect(self, below_: int) -> None:
        """After a restart: what stands before this may have been delivered, and counts as that.

        Not part of a dump: it is told anew after each restart.
        """
        if not self._once:
            self.counting.suspects = below(self.here, below_)

    def unreadable(self, positions: BitMap64) -> list[Outcome]:
        """They are to go, since they cannot be read."""
        if self._once:
            self.consumers.free(positions)
        found = self.places.open_to(positions, failing=True)
        return self._ending.go(found, "unreadable", delivered=False)

    # -- consumers ----------------------------------------------------------------------------

    def join(self, key: int, client: str, backlog: int, filtered: bool, now: Now) -> int:
        """A new consumer. backlog: what it asks for, 0: the most. Returns: what it gets."""
        self._now = now
        self.consumers.forget_lost(now.mono_ms)
        most = self.config.max_per_subscription
        granted = min(backlog or most, most)
        self.consumers.join(key, client, granted, filtered)
        self._watch()
        return granted

    def leave(self, key: int, now: Now) -> None:
        """It ends: what it holds comes back at once, flagged and not counted."""
        self._now = now
        one = self.consumers.by_key[key]
        self.consumers.forget(one)
        self._watch()
        self._come_back(one.held)

    def unsent(self, key: int, positions: BitMap64, now: Now) -> None:
        """What could not be sent comes back at once; that was no delivery."""
        self._now = now
        one = self.consumers.by_key.get(key)
        mine = BitMap64() if one is None or self._once else positions & one.held
        if one is not None and mine:
            remove(one.held, mine)
            self.places.leases.done(mine)
            self.places.back(mine)

    def lose(self, key: int, now: Now) -> None:
        """Its connection is lost: what it holds waits for it, but at most as long as a lease."""
        self._now = now
        one = self.consumers.by_key[key]
        self.consumers.lose(one)
        self._watch()
        if self._once:
            one.until_ms = now.mono_ms + GRACE_MS
        else:
            self._wait_for(one.held, now)
        self.consumers.forget_lost(now.mono_ms)

    def _wait_for(self, held: BitMap64, now: Now) -> None:
        """What a lost consumer holds is leased to it at most for so long."""
        end = end_of(now.mono_ms, self.config.lease or GRACE_MS)
        assert end is not None
        self.places.leases.cap(held, end)

    def reclaim(self, key: int, client: str, holding: BitMap64, now: Now) -> BitMap64:
        """A client is back: it keeps what it holds of what waits for it; the rest of that comes
        back. Kept leases begin anew. Returns: what it keeps."""
        self._now = now
        new, kept = self.consumers.by_key[key], BitMap64()
        for old in self.consumers.lost_of(client):
            both = old.held & holding
            kept |= both
            self.consumers.forget(old)
            self._come_back(without(old.held, both))
        insert(new.held, kept)
        if kept and not self._once:
            self.places.leases.move(kept, end_of(now.mono_ms, self.config.lease))
        return kept

    def unlooked(self, key: int, limit: int) -> BitMap64:
        """The lowest messages that can be offered and that this consumer's filter was not compared
        with yet; none if it knows enough that fit."""
        one, ready = self.consumers.by_key[key], self.places.ready
        if one.looks is None:
            return BitMap64()
        if ready.appeared:
            self.consumers.appeared(ready.appeared)
            ready.appeared.clear()
        return next_unlooked(one.looks, ready, self.places.behind, limit, one.backlog)

    def looked(self, key: int, positions: BitMap64, matching: BitMap64) -> None:
        """What it was compared with, and which of it fits."""
        looks = self.consumers.by_key[key].looks
        if looks is not None:
            known = positions & self.here
            insert(looks.looked, known)
            insert(looks.matching, known & matching)
            remove(looks.missed, positions)

    # -- work ---------------------------------------------------------------------------------

    def offer(self, now: Now, room: Mapping[int, bool]) -> list[Offer]:
        """Leases messages to consumers that have room; to nobody whose `room` is False. Offers are
        to be sent in this order."""
        self._now = now
        self.places.notice(now)
        for one in self.consumers.current():
            one.credit = room.get(one.key, True)
        offered = self._offering.offer(self.config, now)
        self.more = offered.more
        return offered.offers

    def settle(  # noqa: PLR0913 - each is one thing that the command says
        self, key: int | None, positions: BitMap64, verb: str, now: Now, *,
        delay_ms: int = 0, reason: str = "", lease_ms: int = 0,
    ) -> SettleResult:  # fmt: skip
        """What a consumer, or anybody (None), says of messages.

        ack, reject: also of what is not leased. release, extend: only of what is leased. Where
        leasing is strict, nothing of what others have.
        """
        self._now = now
        holder = self.consumers.by_key[key] if key is not None else None
        strict = self.config.leasing == "strict"
        freed = 0
        if self._once and verb != "extend":
            mine = positions if holder is None or not strict else positions & holder.held
            freed = self.consumers.free(mine, holder) if holder or not strict else 0
        found = self.places.open_to(positions, failing=verb == "ack")
        if strict or verb in ("release", "extend"):
            found = self._of(holder, found, only_leased=verb in ("release", "extend"))
        taken = freed + len(found)
        outcomes: list[Outcome] = []
        if verb == "extend":
            end = end_of(now.mono_ms, lease_ms or self.config.lease)
            self.places.leases.move(found, end)
            if end is None:  # what waits for a consumer to come back does not wait for ever
                for one in self.consumers.lost():
                    self._wait_for(found & one.held, now)
        elif verb == "release":
            outcomes = self._ending.fail(found, "cancelled", now, delay_ms, holder)
        elif verb == "reject":
            outcomes = self._ending.go(found, "rejected", reason or "rejected", holder)
        else:
            outcomes = self._ending.go(found, "acked", holder=holder)
        return SettleResult(outcomes, taken, len(positions) - taken)

    def undo(self, outcome: Outcome) -> None:
        """Its unit was refused: they can be offered again."""
        if self._once:
            self.consumers.free(outcome.positions)
        found, delivered = self.places.undone(outcome.positions, outcome.fate)
        self.counting.uncounted.add(delivered)
        self.places.back(found)

    def tick(self, now: Now) -> list[Outcome]:
        """Leases that have ended, and messages that have expired; also ends what was delayed."""
        self._now = now
        self.places.notice(now)
        ended = self.places.leases.over(now.mono_ms)
        outcomes = self._ending.fail(ended, "lease_ended", now) if ended else []
        if self.places.overdue:
            outcomes += self._ending.go(self.places.overdue.copy(), "time_limit", "time_limit")
        self.consumers.forget_lost(now.mono_ms)
        return outcomes

    def next_wake(self, now: Now) -> int | None:
        """Monotonic ms of the next tick that has something to do."""
        wakes = [one.until_ms for one in self.consumers.by_key.values() if one.until_ms]
        if self.places.overdue:
            wakes.append(now.mono_ms)
        if self.places.leases.next_ms is not None:
            wakes.append(self.places.leases.next_ms)
        expires_ns = self.places.expiring.next_ns
        due_ns = self.places.delays.wake_ns(now.steady_ns)
        wakes += [now.ahead_ms(expires_ns - now.wall_ns)] if expires_ns is not None else []
        wakes += [now.ahead_ms(due_ns - now.steady_ns)] if due_ns is not None else []
        return min(wakes, default=None)

    def purge(self, positions: BitMap64 | None, before: int, leased: bool) -> list[Outcome]:
        """These are to go, or all that stand before a position; 0: all. leased: also what consumers
        have."""
        found = self.purgeable(before, leased)
        return self._ending.go(found if positions is None else found & positions, "purged")

    def purgeable(self, before: int, leased: bool) -> BitMap64:
        """What a purge takes."""
        found = below(self.here, before) if before else self.here.copy()
        found = self.places.open_to(found, failing=False)
        return found if leased else without(found, self.places.leases.leased)

    # -- look ---------------------------------------------------------------------------------

    @property
    def here(self) -> BitMap64:
        """All that did not go."""
        return self.places.here

    @property
    def going(self) -> BitMap64:
        """Those of which an outcome is on its way."""
        return self.places.going

    @property
    def lowest(self) -> int | None:
        """The oldest one."""
        return self.places.lowest

    @property
    def barrier(self) -> int | None:
        """The first barrier."""
        return self.places.barrier

    def leased(self, key: int | None) -> BitMap64:
        """What a consumer has, or all that is leased."""
        if key is None:
            return self.places.leases.leased.copy()
        return self.consumers.by_key[key].held.copy()

    def held_by(self, key: int) -> tuple[int, int | None]:
        """How many messages a consumer has, and the monotonic ms when the first lease ends."""
        one = self.consumers.by_key.get(key)
        return (0, None) if one is None else (
            len(one.held), self.places.leases.first_end(one.held)
        )  # fmt: skip

    def deliveries_of(self, positions: BitMap64) -> list[int] | None:
        """How often each was delivered, with this time, aligned with the sorted positions; None: it
        is the first time for all."""
        before = self.counting.before(positions)
        if not before:
            return None
        count = self.counting.deliveries
        return [min(COUNT_MAX, count(at) + 1) if at in before else 1 for at in positions]

    def where(self, position: int) -> Standing:
        """Where one message stands."""
        return reasons.where(self, position)

    def why_nothing(self, now: Now) -> list[str]:
        """Why nothing is offered, the most important reason first; empty: nothing is in the way."""
        self.places.notice(now)
        return reasons.why_nothing(self, now)

    def counts(self) -> Numbers:
        """Messages by state."""
        return reasons.counts(self)

    def mono_ms(self, due_ns: int) -> int:
        """The monotonic ms at which a delay ends."""
        return self._now.ahead_ms(due_ns - self._now.steady_ns)

    def memory_bytes(self) -> int:
        """Roughly."""
        held = sum(200 + 60 * bool(one.held) for one in self.consumers.by_key.values())
        return self.places.memory_bytes() + self.counting.memory_bytes() + held

    def dump(self) -> dict[str, bytes]:
        """The fold, for tables: as if nothing were leased, and no outcome on its way."""
        return places.dump(self.places, self.counting)

    def load(self, rows: Mapping[str, bytes]) -> None:
        """What `dump` gave; nothing else was done before. Raises: ValueError."""
        places.load(rows, self.places, self.counting)

    def check(self) -> None:
        """Asserts what is always true."""
        self.places.check()
        self.consumers.check()
        self.counting.check(self.here)
        if not self._once:
            held = [one.held for one in self.consumers.by_key.values()]
            assert BitMap64.union(BitMap64(), *held) == self.places.leases.leased

    # -- helpers ------------------------------------------------------------------------------

    @property
    def _once(self) -> bool:
        return once(self.config)

    def _free(self, positions: BitMap64) -> None:
        """Consumers have them no more, if they had."""
        if not positions.isdisjoint(self.places.leases.leased):
            self.consumers.free(positions & self.places.leases.leased)

    def _of(self, holder: QueueConsumer | None, found: BitMap64, *, only_leased: bool) -> BitMap64:
        """What somebody may have a say in."""
        leased = found & self.places.leases.leased
        if self.config.leasing == "strict":
            others = leased if holder is None else without(leased, holder.held)
            found, leased = without(found, others), without(leased, others)
        return leased if only_leased else found

    def _come_back(self, positions: BitMap64) -> None:
        if positions and not self._once:
            self.counting.uncounted.add(positions)
            self.places.leases.done(positions)
            self.places.back(positions)

    def _watch(self) -> None:
        """Somebody has a filter, or nobody has: that is whether it counts what can be offered."""
        ready = self.places.ready
        if not self.consumers.filtered:
            ready.appeared = None
        elif ready.appeared is None:
            ready.appeared = BitMap64()


def _ready_of(config: QueueConfig) -> ReadyMessages:
    if config.priority:
        return Ranked()
    return Grouped() if config.group_key else Plain()
