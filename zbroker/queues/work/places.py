"""The places of the messages of one queue, and how they get from one to another. Pure.

    enter --> ready --offer--> leased --settle, lease ends--> going --fold: gone--> out
                ^ ^              |  consumer leaves            | |
                | +--------------+                             | | fold: failed
                +------- undo, fold: failed -------------------+ v
                +------- time ------------------------------- delayed

    going, until a branch of a distributed transaction is decided: locked, see locks.py.
    overdue: expired, and the next tick says so. A barrier is apart until all before it are gone.
    foreign: of a replicated queue, what belongs to another instance. It is not offered here.

Each message of the queue is in one of: ready.standing, leases.leased, delays.waiting, overdue,
going, standing_barriers, standing_foreign.

`dump_state` gives the state as bytes, for tables that only make the start fast; locks are in it.
Leases, outcomes on their way and what the process alone knows are not. Numbers are in the byte
order of the machine: the tables never leave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyroaring import BitMap64

from zbroker.engine.contract import Now
from zbroker.limits import U63_MAX
from zbroker.queues.work.delays import Delays
from zbroker.queues.work.delivery_counts import DeliveryCounts, DeliveryTally
from zbroker.queues.work.expiry import Expiry
from zbroker.queues.work.leases import MessageLeases
from zbroker.queues.work.message_locks import MessageLocks
from zbroker.queues.work.ready import ReadyMessages
from zbroker.queues.work.sets import bytes_of, first_of, insert, remove, without
from zbroker.queues.work.sizes import MessageSizes
from zbroker.queues.work.values import Arrivals

FORMAT: Final = b"1"  # of the rows of `dump_state`


class MessagePlaces:
    """here: all that did not go. going: an outcome is on its way to the log; failing: of these,
    that they come back; both: that they come back, and that they are gone; were_leased: that were
    with a consumer. expired: all that are past their expiry, in whatever place; overdue: of these,
    those that no consumer has and that no outcome is about yet. foreign: see above, also what is
    going. locks: of what is going.
    """

    def __init__(self, ready: ReadyMessages) -> None:
        self.here = BitMap64()
        self.ready = ready
        self.leases = MessageLeases()
        self.delays = Delays()
        self.expiring = Expiry(self.here)
        self.barriers = BitMap64()
        self.going = BitMap64()
        self.failing = BitMap64()
        self.both = BitMap64()
        self.were_leased = BitMap64()
        self.expired = BitMap64()
        self.overdue = BitMap64()
        self.foreign = BitMap64()
        self.locks = MessageLocks()
        self.sizes = MessageSizes()

    # -- in and out ---------------------------------------------------------------------------

    def enter(self, entered: Arrivals) -> None:
        """New messages."""
        insert(self.here, entered.positions)
        if entered.expires:
            self.expiring.enter(entered.expires)
        self.ready.enter(entered)
        self.sizes.enter(entered)
        if entered.barriers:
            insert(self.barriers, entered.barriers)
            self.ready.discard(entered.barriers)

    def drop(self, positions: BitMap64) -> BitMap64:
        """They are gone, from whatever place. Returns: those that were here."""
        found = positions & self.here
        if not found:
            return found
        if not found.issubset(self.going):
            self.pull(without(found, self.going))
        remove(self.going, found)
        self.locks.drop(found)
        if self.were_leased:
            remove(self.were_leased, found)
        if self.failing:
            remove(self.failing, found)
            remove(self.both, found)
        if self.barriers:
            remove(self.barriers, found)
        if self.expired:
            remove(self.expired, found)
        if self.foreign:
            remove(self.foreign, found)
        self.delays.drop(found)
        if self.sizes:
            self.sizes.drop(found)
        remove(self.here, found)
        self.ready.forget(found)
        return found

    def pull(self, positions: BitMap64) -> BitMap64:
        """They leave the places where they are not going. Returns: those that were leased."""
        leased = positions & self.leases.leased
        if leased:
            self.leases.done(leased)
        if len(leased) < len(positions):
            positions = positions - leased
            self.ready.discard(positions)
            self.delays.pause(positions)
            remove(self.overdue, positions)
        return leased

    # -- outcomes -----------------------------------------------------------------------------

    def take_out(self, positions: BitMap64) -> BitMap64:
        """They leave their places, since outcomes say what becomes of them. Returns: those that
        were leased."""
        leased = self.pull(positions)
        insert(self.were_leased, leased)
        return leased

    def going_to_go(self, positions: BitMap64) -> None:
        """An outcome says that they are gone; some may be failing."""
        insert(self.going, positions)
        if self.failing:
            insert(self.both, positions & self.failing)

    def going_to_fail(self, positions: BitMap64) -> None:
        """An outcome says that they come back."""
        insert(self.going, positions)
        insert(self.failing, positions)

    def open_to(self, positions: BitMap64, *, failing: bool) -> BitMap64:
        """Those that are here and that no outcome says are gone. failing: also what comes back."""
        found = positions & self.here
        if self.going and not found.isdisjoint(self.going):
            closed = found & self.going
            if failing:
                closed -= self.failing
                closed |= found & self.both
            found -= closed
        return found

    def failed(self, positions: BitMap64, due_ns: int, delay_ms: int) -> BitMap64:
        """The fold read that they failed. Returns: those that come back now."""
        found = positions & self.here
        self.locks.drop(found)
        self.delays.drop(found)
        if due_ns:
            timed = without(without(found, self.expired), self.barriers)
            self.delays.put(timed, due_ns, delay_ms)
        return self.settled(found)

    def settled(self, found: BitMap64) -> BitMap64:
        """The fold read what was decided of them, and they stay; each keeps its time. Returns:
        those that come back now."""
        if self.both:
            still = found & self.both
            remove(self.both, still)
            remove(self.failing, still)
            found = without(found, still)
        remove(self.failing, found)
        found = without(found, self.locks.all)  # these stay so
        free = without(found, self.going)
        remove(self.going, found)
        remove(self.were_leased, found)
        if free:
            self.pull(free)
        return found

    def undone(self, positions: BitMap64, fate: str) -> tuple[BitMap64, BitMap64]:
        """An outcome was refused. Returns: those that come back now, and which of these were with a
        consumer."""
        if fate == "locked":
            remove(self.locks.coming, positions)
        found = positions & self.going
        still = found & self.both
        remove(self.both, still)
        if fate == "failed":
            remove(self.failing, found)
            found = without(found, still)
        else:
            # those that are failing besides come back once the fold reads that
            found = without(found, found & self.failing)
        found = without(found, self.locks.all)  # these stay so
        remove(self.going, found)
        delivered = found & self.were_leased
        remove(self.were_leased, delivered)
        return found, delivered

    def back(self, positions: BitMap64) -> None:
        """They may be offered again, at their time if they have one, unless they are of no use any
        more."""
        self.leases.forget(positions)
        if self.foreign:
            positions = without(positions, self.foreign)
        if self.expired:
            late = positions & self.expired
            insert(self.overdue, late)
            positions = without(positions, late)
        if self.barriers:
            positions = without(positions, self.barriers)
        if self.delays.dues.known:
            positions = without(positions, self.delays.wait(positions))
        if positions:
            self.ready.add(positions)

    # -- owners -------------------------------------------------------------------------------

    def disown(self, positions: BitMap64) -> BitMap64:
        """They belong to another instance. Returns: those that were leased."""
        found = without(positions & self.here, self.foreign)
        leased = self.pull(without(found, self.going))
        insert(self.foreign, found)
        return leased

    def own(self, positions: BitMap64) -> BitMap64:
        """They belong to this instance. Returns: those that did not before."""
        found = positions & self.foreign
        if found:
            remove(self.foreign, found)
            self.back(without(found, self.going))
        return found

    # -- time ---------------------------------------------------------------------------------

    def notice(self, now: Now) -> None:
        """Moves messages that have expired, or were delayed long enough."""
        next_ns = self.expiring.next_ns
        if next_ns is not None and next_ns <= now.wall_ns:
            late = self.expiring.over(now.wall_ns)
            insert(self.expired, late)
            idle = without(without(late, self.going), self.leases.leased)
            if self.foreign:
                idle = without(idle, self.foreign)
            self.ready.discard(idle)
            self.delays.drop(late)
            insert(self.overdue, idle)
        wake_ns = self.delays.wake_ns(now.steady_ns)
        if wake_ns is not None and wake_ns <= now.steady_ns:
            self.back(self.delays.over(now.steady_ns))

    # -- look ---------------------------------------------------------------------------------

    @property
    def lowest(self) -> int | None:
        """The oldest one."""
        return first_of(self.here)

    @property
    def barrier(self) -> int | None:
        """The first barrier: no message after it is offered."""
        return first_of(self.barriers) if self.barriers else None

    @property
    def offered_before(self) -> int:
        """Only messages before this position are offered."""
        barrier = self.barrier
        return U63_MAX if barrier is None else barrier

    def barrier_due(self) -> int | None:
        """The barrier before which nothing is left."""
        barrier = self.barrier
        if barrier is None or barrier != self.lowest:
            return None
        return None if barrier in self.going or barrier in self.overdue else barrier

    def memory_bytes(self) -> int:
        """Roughly."""
        sets = (
            self.here, self.barriers, self.going, self.failing, self.both, self.were_leased,
            self.expired, self.overdue, self.foreign,
        )  # fmt: skip
        parts = (self.ready, self.leases, self.delays, self.expiring, self.locks, self.sizes)
        return bytes_of(*sets) + sum(part.memory_bytes() for part in parts)

    def check(self) -> None:
        """Asserts what is always true."""
        standing_barriers = self.barriers - self.going - self.overdue
        standing_foreign = self.foreign - self.going - self.barriers
        whole = BitMap64()
        for part in (
            self.ready.standing, self.leases.leased, self.delays.waiting, self.overdue,
            self.going, standing_barriers, standing_foreign,
        ):  # fmt: skip
            assert part.isdisjoint(whole)
            whole |= part
        assert whole == self.here
        assert self.failing.issubset(self.going)
        assert self.both.issubset(self.failing)
        assert self.were_leased.issubset(self.going)
        assert self.barriers.issubset(self.here)
        assert self.overdue.issubset(self.expired)
        assert self.expired.issubset(self.here)
        assert self.foreign.issubset(self.here)
        assert self.foreign.isdisjoint(self.overdue)
        assert self.expired.issubset(self.overdue | self.going | self.leases.leased | self.foreign)
        self.ready.check(self.here)
        self.leases.check(self.ready.standing)
        self.delays.check()
        self.expiring.check()
        self.locks.check()
        self.sizes.check(self.here)
        assert self.locks.all.issubset(self.going)


def dump_state(places: MessagePlaces, counting: DeliveryCounts) -> dict[str, bytes]:
    """The fold of a queue as rows by name."""
    rows = {
        "format": FORMAT,
        "here": _bytes(places.here),
        "barriers": _bytes(places.barriers),
        "expired": _bytes(places.expired),
        "runs": places.expiring.dump(),
    }
    rows["delayed"], rows["dues"], rows["longest_delay"] = places.delays.dump()
    if places.foreign:
        rows["foreign"] = _bytes(places.foreign)
    if places.locks:
        rows["locked"] = places.locks.dump()
    if over := places.locks.dump_over():
        rows["over"] = over
    if places.sizes:
        rows["sized"], rows["sizes"] = places.sizes.dump()
    known = places.ready.dump()
    if known is not None:
        rows["known"], rows["numbers"] = known
    for name, tally in (("failures", counting.failures), ("cancels", counting.cancels)):
        for at, digit in enumerate(tally.dump()):
            rows[f"{name}.{at}"] = _bytes(digit)
    return rows


def load_state(rows: Mapping[str, bytes], places: MessagePlaces, counting: DeliveryCounts) -> None:
    """Raises: ValueError, for anything that is not a dump of such a queue."""
    if rows.get("format") != FORMAT:
        raise ValueError(f"tables of format {rows.get('format')!r}")
    try:
        _load(rows, places, counting)
    except (KeyError, OverflowError) as error:
        raise ValueError(f"tables are not complete: {error}") from None


def _load(rows: Mapping[str, bytes], places: MessagePlaces, counting: DeliveryCounts) -> None:
    insert(places.here, BitMap64.deserialize(rows["here"]))
    insert(places.barriers, BitMap64.deserialize(rows["barriers"]))
    insert(places.expired, BitMap64.deserialize(rows["expired"]))
    if "foreign" in rows:
        insert(places.foreign, BitMap64.deserialize(rows["foreign"]))
    places.delays.load(rows["delayed"], rows["dues"], rows.get("longest_delay"))
    if "locked" in rows:
        places.locks.load(rows["locked"])
        insert(places.going, places.locks.all)
    if "over" in rows:
        places.locks.load_over(rows["over"])
    if "sizes" in rows:
        places.sizes.load(rows["sized"], rows["sizes"])
    apart = places.foreign | places.going
    insert(places.overdue, places.expired - apart)
    timed = places.delays.wait(places.delays.dues.known - apart)
    standing = places.here - places.barriers - places.overdue - timed - apart
    known = (rows["known"], rows["numbers"]) if "known" in rows else None
    places.ready.load(known, standing)
    places.expiring.load(rows["runs"])
    _load_tally(rows, "failures", counting.failures)
    _load_tally(rows, "cancels", counting.cancels)
    for part in (
        places.barriers, places.expired, places.delays.waiting, counting.failures.counted,
        counting.cancels.counted, places.foreign, places.locks.all,
    ):  # fmt: skip
        if without(part, places.here):
            raise ValueError("tables contradict each other")


def _load_tally(rows: Mapping[str, bytes], name: str, tally: DeliveryTally) -> None:
    digits: list[BitMap64] = []
    while f"{name}.{len(digits)}" in rows:
        digits.append(BitMap64.deserialize(rows[f"{name}.{len(digits)}"]))
    tally.load(digits)


def _bytes(positions: BitMap64) -> bytes:
    return bytes(positions.serialize())
