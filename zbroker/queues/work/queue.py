"""One queue: a fold of the log, and what is done meanwhile. Pure; time comes in.

    fold   entered, gone, failed, returned, suspect, own, disown: true, in order, no time
    work   join, offer, settle, tick ...: decides, and says what is to be committed (Outcome)

    acked, rejected, purged, unreadable -----------------------------------------> gone
    released, lease ended --expired? too many deliveries? too many releases?--yes--> gone
                            +--no--> failed: back to its place, after a delay

An outcome is true once the fold has read it. Until then its messages are going: no consumer is
offered them. If its unit is refused, `undo` puts them back. See places.py for where messages are.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyroaring import BitMap64

from zbroker.config.queues import QueueConfig
from zbroker.engine.contract import Now
from zbroker.queues.work import grants, reasons
from zbroker.queues.work.consumers import GRACE_MS, QueueConsumer, QueueConsumers, most_of
from zbroker.queues.work.delays import due_of
from zbroker.queues.work.delivery_counts import COUNT_MAX, DeliveryCounts
from zbroker.queues.work.grouped import Grouped
from zbroker.queues.work.leases import end_of
from zbroker.queues.work.offers import Offers, once
from zbroker.queues.work.places import MessagePlaces, dump_state, load_state
from zbroker.queues.work.ranked import Ranked
from zbroker.queues.work.ready import ReadyMessages
from zbroker.queues.work.selector_stats import NextNames
from zbroker.queues.work.sets import below, insert, remove, without
from zbroker.queues.work.values import Arrivals, Numbers, Offer, Outcome, SettleResult, Standing


class Queue:
    """A work queue.

    here: all messages that are in it. going: those of which an outcome is on its way to the log.
    more: something may be left that the last `offer` could not give; ask again. late_before: up to
    there filters of consumers are compared with messages of other instances, to ask for them.
    """

    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self.places = MessagePlaces(_ready_of(config))
        self.here, self.going = self.places.here, self.places.going
        self.consumers = QueueConsumers()
        self.counting = DeliveryCounts()
        self.more, self.late_before = False, 0
        self._offering = Offers(self.places, self.consumers)

    # -- fold ---------------------------------------------------------------------------------

    def entered(self, entered: Arrivals) -> None:
        """Messages that were published; none of them is here."""
        self.places.enter(entered)

    def gone(self, positions: BitMap64) -> None:
        """They left the queue, from whatever place. Those that are not here are ignored."""
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

    def returned(self, positions: BitMap64, entered: Arrivals) -> None:
        """Dead letters that are messages again; they are counted from 0 again."""
        self.counting.drop(positions & self.here)
        fresh = without(entered.positions, self.here)
        if not fresh:
            return
        if self._once:
            self.consumers.free(fresh)  # a consumer was sent them before, and never settled them
        self.places.leases.forget(fresh)
        self.places.expiring.forget(fresh)
        self.places.enter(entered.part(fresh))

    def suspect(self, position: int) -> None:
        """After a restart: messages before this position may have been delivered, and count so.

        Not part of a dump: each restart sets it again.
        """
        if not self._once:
            self.counting.suspects = below(self.here, position)

    def flag(self, positions: BitMap64) -> None:
        """Another instance may have delivered them, and that counts."""
        if not self._once:
            insert(self.counting.suspects, positions & self.here)

    def disown(self, positions: BitMap64) -> BitMap64:
        """They belong to another instance: they are not offered here; consumers that have
        some may still acknowledge them. Returns: those."""
        self._free(positions)
        self.consumers.disowned(positions)
        return self.places.disown(positions)

    def own(self, positions: BitMap64) -> None:
        """They belong to this instance from here on."""
        self.places.own(positions)

    def untaken(self) -> BitMap64 | None:
        """Those that no consumer here can take of all that can be offered; None: all of them."""
        return grants.untaken(self)

    def spare(self) -> int:
        """How many messages of other instances consumers without filters could use."""
        return grants.spare(self)

    def seeking(self) -> bool:
        """Whether a consumer with a filter could use some."""
        return grants.seeking(self)

    def seek(self, now_ms: int) -> NextNames:
        """Which ones consumers with filters ask for now."""
        return grants.seek(self, now_ms)

    def grant(
        self, limit: int, among: BitMap64 | None = None, *, leaving: bool = False
    ) -> list[Outcome]:
        """The oldest messages are to go to another instance, see grants.py: of those `among` these.
        From now on they are offered to no consumer here."""
        return grants.grant(self, limit, among, leaving=leaving)

    def granted(self, positions: BitMap64) -> None:
        """The fold read that these were given away, whether that holds or not."""
        places = self.places
        gone = places.going - places.failing  # acknowledged meanwhile
        places.back(places.settled(without(positions & self.here, gone)))

    def unreadable(self, positions: BitMap64) -> list[Outcome]:
        """They are to go, since they cannot be read."""
        if self._once:
            self.consumers.free(positions)
        found = self.places.open_to(positions, failing=True)
        return self._finish(found, "unreadable", delivered=False)

    # -- consumers ----------------------------------------------------------------------------

    def join(self, key: int, client: str, backlog: int, filtered: bool, now: Now) -> int:
        """A new consumer. backlog: what it asks for, 0: what the queue says, or what adapts.

        Returns: how many messages it may hold at most.
        """
        self.consumers.forget_lost(now.mono_ms)
        most = most_of(self.config)
        granted = min(backlog or most, most)
        adapts = not backlog and not self.config.max_per_subscription
        self.consumers.join(key, client, granted, filtered, adapts=adapts)
        self._watch()
        return granted

    def has(self, key: int) -> bool:
        """Whether this consumer takes part."""
        return key in self.consumers.by_key

    def leave(self, key: int) -> None:
        """It ends: what it holds comes back at once, flagged and not counted."""
        one = self.consumers.by_key[key]
        self.consumers.forget(one)
        self._watch()
        self._come_back(one.held)

    def unsent(self, key: int, positions: BitMap64) -> None:
        """What could not be sent comes back at once; that was no delivery."""
        one = self.consumers.by_key.get(key)
        mine = BitMap64() if one is None or self._once else positions & one.held
        if one is not None and mine:
            self.consumers.take_from(one, mine)
            self.places.leases.done(mine)
            self.places.back(mine)

    def lose(self, key: int, now: Now) -> None:
        """Its connection is lost: what it holds waits for it, a lease or for its session."""
        one = self.consumers.by_key[key]
        self.consumers.lose(one)
        self._watch()
        if self._once:
            one.until_ms = now.mono_ms + GRACE_MS
        elif one.session is None:
            self._wait_for(one.held, now)
        self.consumers.forget_lost(now.mono_ms)

    def _wait_for(self, held: BitMap64, now: Now) -> None:
        """What a lost consumer holds is leased to it at most for so long."""
        end = end_of(now.mono_ms, self.config.lease or GRACE_MS)
        assert end is not None
        self.places.leases.cap(held, end)

    def reclaim(self, key: int, client: str, holding: BitMap64, now: Now) -> BitMap64:
        """A client is back: it keeps what it holds of what waits for it; the rest of that comes
        back. Kept leases start over. Returns: what it keeps."""
        new, kept = self.consumers.by_key[key], BitMap64()
        for old in self.consumers.lost_of(client):
            both = old.held & holding
            kept |= both
            self.consumers.replace(old, new, self.config)
            self._come_back(without(old.held, both))
        insert(new.held, kept)
        if kept and not self._once:
            self.places.leases.move(kept, end_of(now.mono_ms, new.lease_ms(self.config)))
        return kept

    def unlooked(self, key: int, limit: int, now: Now) -> BitMap64:
        """The lowest messages that this consumer's filter was not compared with yet: `limit` that
        can be offered now, and as many that may be asked for; none if it knows enough that fit."""
        one, places = self.consumers.by_key[key], self.places
        if one.looks is None:
            return BitMap64()
        places.notice(now)
        if places.ready.appeared:
            self.consumers.appeared(places.ready.appeared)
            places.ready.appeared.clear()
        stop = places.offered_before
        found = one.looks.next_near(places.ready, stop, limit, one.backlog)
        if self.late_before:
            found |= one.looks.next_far(places.foreign, min(stop, self.late_before), limit)
        return found

    def looked(self, key: int, positions: BitMap64, matching: BitMap64) -> None:
        """What it was compared with, and which of it fits."""
        if (looks := self.consumers.by_key[key].looks) is not None:
            looks.learn(positions, positions & self.here, matching)

    # -- work ---------------------------------------------------------------------------------

    def offer(self, now: Now, credit: Mapping[int, bool]) -> list[Offer]:
        """Leases messages to consumers that have room, but to none whose `credit` is False. Offers
        are to be sent in this order."""
        self.places.notice(now)
        for one in self.consumers.current():
            one.credit = credit.get(one.key, True)
            one.adapt(now.mono_ms)
        offers, self.more = self._offering.offer(self.config, now)
        return offers

    def settle(  # noqa: PLR0913 - each is one thing that the command says
        self, key: int | None, positions: BitMap64, verb: str, now: Now, *,
        delay_ms: int = 0, reason: str = "", lease_ms: int = 0,
    ) -> SettleResult:  # fmt: skip
        """What a consumer, or anybody (None), says of messages.

        ack, reject: also of what is not leased. release, extend: only of what is leased. Where
        leasing is strict, nothing of what others have.
        """
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
            found = self.consumers.out_of_sessions(found)
            self.places.leases.move(found, end)
            if end is None:  # what waits for a consumer to come back does not wait for ever
                for one in self.consumers.lost():
                    self._wait_for(found & one.held, now)
        elif verb == "release":
            outcomes = self._fail(found, "cancelled", now, delay_ms, holder)
        elif verb == "reject":
            if self.places.foreign:  # only the owner gives up a message
                found = without(found, self.places.foreign)
                taken = freed + len(found)
            outcomes = self._finish(found, "rejected", reason or "rejected", holder)
        else:
            outcomes = self._finish(found, "acked", holder=holder)
        return SettleResult(outcomes, taken, len(positions) - taken)

    def undo(self, outcome: Outcome) -> None:
        """Its unit was refused: they can be offered again."""
        if self._once:
            self.consumers.free(outcome.positions)
        fate = "failed" if outcome.fate == "granted" else outcome.fate
        found, delivered = self.places.undone(outcome.positions, fate)
        self.counting.uncounted.add(delivered)
        self.places.back(found)

    def tick(self, now: Now) -> list[Outcome]:
        """Leases that have ended, and messages that have expired; also ends what was delayed."""
        self.places.notice(now)
        ended = self.places.leases.over(now.mono_ms)
        outcomes = self._fail(ended, "lease_ended", now) if ended else []
        if self.places.overdue:
            outcomes += self._finish(self.places.overdue.copy(), "time_limit", "time_limit")
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

    def purge(self, before: int, leased: bool, *, owned: bool = False) -> list[Outcome]:
        """Removes all messages before a position; 0: all. leased: also those of consumers. owned:
        only those that belong to this instance."""
        return self._finish(self.purgeable(before, leased, owned=owned), "purged")

    def purgeable(self, before: int, leased: bool, *, owned: bool = False) -> BitMap64:
        """The messages that `purge` takes."""
        found = below(self.here, before) if before else self.here.copy()
        found = self.places.open_to(found, failing=False)
        if owned:
            found = without(found, self.places.foreign)
        return found if leased else without(found, self.places.leases.leased)

    # -- look ---------------------------------------------------------------------------------

    @property
    def lowest(self) -> int | None:
        """The oldest one."""
        return self.places.lowest

    def leased(self, key: int | None) -> BitMap64:
        """What a consumer has, or all that is leased."""
        found = self.places.leases.leased if key is None else self.consumers.by_key[key].held
        return found.copy()

    def holds(self, key: int, positions: BitMap64) -> bool:
        """Whether a consumer has all of these, and nothing was decided of them meanwhile."""
        one = self.consumers.by_key.get(key)
        if one is None or not positions.issubset(one.held - self.places.foreign):
            return False
        return self.places.open_to(positions, failing=False) == positions

    def held_by(self, key: int) -> tuple[int, int, int | None]:
        """A consumer's backlog, how many messages it has, and the ms when the first lease ends."""
        one = self.consumers.by_key.get(key)
        if one is None:
            return 0, 0, None
        return one.backlog, len(one.held), self.places.leases.first_end(one.held)

    def deliveries_of(self, positions: BitMap64) -> list[int] | None:
        """How often each was delivered, with this time, aligned with the sorted positions; None: it
        is the first time for all."""
        before = self.counting.before(positions)
        if not before:
            return None
        count = self.counting.deliveries
        return [min(COUNT_MAX, count(at) + 1) if at in before else 1 for at in positions]

    def where(self, position: int, now: Now) -> Standing:
        """The state of one message."""
        return reasons.where(self, position, now)

    def why_nothing(self, now: Now) -> list[str]:
        """Why nothing is offered, the most important reason first; empty: nothing is in the way."""
        self.places.notice(now)
        return reasons.why_nothing(self, now)

    def counts(self) -> Numbers:
        """Messages by state."""
        return reasons.counts(self)

    def memory_bytes(self) -> int:
        """Roughly."""
        held = sum(200 + 60 * bool(one.held) for one in self.consumers.by_key.values())
        return self.places.memory_bytes() + self.counting.memory_bytes() + held

    def dump(self) -> dict[str, bytes]:
        """The fold, for tables: as if nothing were leased, and no outcome on its way."""
        return dump_state(self.places, self.counting)

    def load(self, rows: Mapping[str, bytes]) -> None:
        """What `dump` gave; nothing else was done before. Raises: ValueError."""
        load_state(rows, self.places, self.counting)

    def check(self) -> None:
        """Asserts what is always true."""
        self.places.check()
        self.consumers.check()
        self.counting.check(self.here)
        if not self._once:
            held = [one.held for one in self.consumers.by_key.values()]
            assert BitMap64.union(BitMap64(), *held) == self.places.leases.leased

    # -- outcomes -----------------------------------------------------------------------------

    def _finish(
        self, found: BitMap64, why: str, letter: str = "", holder: QueueConsumer | None = None,
        *, delivered: bool = True,
    ) -> list[Outcome]:  # fmt: skip
        """They are to leave the queue.

        holder: the consumer that probably has them. delivered: False if no consumer got them.
        """
        if not found:
            return []
        leased = self._take_out(found, holder)
        if not delivered:
            remove(self.places.were_leased, leased)
        self.places.going_to_go(found)
        return [Outcome(found, "gone", why, letter=letter if self.config.dead_letter else "")]

    def _fail(
        self, found: BitMap64, why: str, now: Now, delay_ms: int = 0,
        holder: QueueConsumer | None = None,
    ) -> list[Outcome]:  # fmt: skip
        """They come back, unless they have expired, or came back too often."""
        self._take_out(found, holder)
        outcomes: list[Outcome] = []
        for reason, over in self._given_up(found, why):
            part = over & found
            outcomes += self._finish(part, reason, reason)
            found = without(found, part)
        for part, delay in self._delays(found, delay_ms):
            self.places.going_to_fail(part)
            due_ns = due_of(now.steady_ns, delay)
            outcomes.append(Outcome(part, "failed", why, due_ns, delay_ms=delay))
        return outcomes

    def _given_up(self, found: BitMap64, why: str) -> list[tuple[str, BitMap64]]:
        """Messages that do not come back, by reason; the first reason of a message counts."""
        config, counting = self.config, self.counting
        given_up = [("time_limit", found & self.places.expired)]
        if config.max_deliveries:
            over = counting.delivered(config.max_deliveries - 1, found)
            given_up.append(("max_deliveries", over))
        if config.max_cancels and why == "cancelled":
            most = config.max_cancels - 1
            given_up.append(("max_cancels", counting.cancels.least(most, found) if most else found))
        return given_up

    def _delays(self, found: BitMap64, delay_ms: int) -> list[tuple[BitMap64, int]]:
        """How long each waits that comes back: as was asked, or by how often it failed."""
        retry = self.config.retry_delay
        if not found:
            return []
        if delay_ms or not retry:
            return [(found, delay_ms)]
        steps = self.counting.by_failures(found, len(retry))
        return [(part, retry[step]) for step, part in steps]

    def _take_out(self, found: BitMap64, holder: QueueConsumer | None) -> BitMap64:
        leased = self.places.take_out(found)
        if leased:
            self.consumers.free(leased, holder)
        return leased

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
            others = self.consumers.others(leased, holder)
            found, leased = without(found, others), without(leased, others)
        return leased if only_leased else found

    def _come_back(self, positions: BitMap64) -> None:
        if positions and not self._once:
            self.counting.uncounted.add(positions)
            self.places.leases.done(positions)
            self.places.back(positions)

    def _watch(self) -> None:
        """What can be offered is only noted while a consumer has a filter."""
        ready = self.places.ready
        if not self.consumers.filtered:
            ready.appeared = None
        elif ready.appeared is None:
            ready.appeared = BitMap64()


def _ready_of(config: QueueConfig) -> ReadyMessages:
    if config.priority:
        return Ranked()
    return Grouped() if config.group_key else ReadyMessages()
