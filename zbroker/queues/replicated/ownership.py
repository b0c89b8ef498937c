"""To which instance the messages of a replicated queue belong. Pure.

    scope         a new message belongs to
    distributed   the instance that accepted it; if several did, to the one with the lowest id
    group-local   the initial owner of the queue, wherever it was published

Records move messages to other instances. Each says a number, one more than the one it was held
under, so the highest number is the newest; of equal ones a takeover beats a transfer, then the
higher (instance, generation, position of the record) holds. Instances read these records in
different orders and come to the same owner. A message that two instances accepted belongs to the
lower one from the beginning: what the other one gave away under number 1 is void.

An owner is an instance, whatever its generation: a host that was set back keeps what it owns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import msgpack
from pyroaring import BitMap64

from zbroker.queues.replicated.origin_runs import OriginRuns
from zbroker.queues.work.sets import bytes_of, insert, remove, without


class OwnerClaim(NamedTuple):
    """What a record says of some messages; the highest one holds.

    instance, generation, position: of the record. to: the instance that owns them from then on.
    back: see Moved.
    """

    number: int
    takeover: bool
    instance: int
    generation: int
    position: int
    to: int
    back: bool = False


class Ownership:
    """The owners in one queue, as the instance `me` sees it. claimed: what any claim is about.

    initial: of a group-local queue, whether this instance is the initial owner; None: distributed.
    """

    def __init__(self, me: int, runs: OriginRuns, initial: bool | None = None) -> None:
        self._me, self._runs, self._initial = me, runs, initial
        self.claimed = BitMap64()
        self._claims: dict[OwnerClaim, BitMap64] = {}
        self._tied: dict[int, BitMap64] = {}  # by lowest instance, where that is not where it is of

    def owns_new(self, instance: int) -> bool:
        """Whether a new message that this instance accepted belongs here."""
        if self._initial is not None:
            return self._initial
        return instance in (self._me, 0)  # 0: of a release that named no origins

    def apply(self, claim: OwnerClaim, positions: BitMap64) -> BitMap64:
        """A record says so of messages that are here. Returns: those for which it holds."""
        if claim.number == 1 and not claim.takeover and self._initial is None:
            positions = self._first(positions).get(claim.instance, BitMap64())
        if not positions.isdisjoint(self.claimed):
            for known, part in [*self._claims.items()]:
                both = positions & part
                if not both:
                    continue
                if known >= claim:
                    positions = positions - both
                else:
                    self._shrink(known, both)
        if positions:
            insert(self._claims.setdefault(claim, BitMap64()), positions)
            insert(self.claimed, positions)
        return positions

    def _shrink(self, claim: OwnerClaim, part: BitMap64) -> None:
        left = self._claims[claim]
        remove(left, part)
        if not left:
            del self._claims[claim]

    def tie(self, instance: int, positions: BitMap64) -> BitMap64:
        """This instance accepted them, too. Returns: those whose owner may have changed."""
        if self._initial is not None:
            return BitMap64()
        lowered = BitMap64()
        for first, part in self._first(positions).items():
            if first > instance:
                lowered |= part
        for part in self._tied.values():
            remove(part, lowered & part)
        insert(self._tied.setdefault(instance, BitMap64()), lowered)
        self._tied = {one: part for one, part in self._tied.items() if part}
        for claim in [*self._claims]:
            if claim.number == 1 and not claim.takeover and claim.instance != instance:
                void = self._claims[claim] & lowered
                remove(self.claimed, void)
                self._shrink(claim, void)
        return without(lowered, self.claimed)

    def _first(self, positions: BitMap64) -> dict[int, BitMap64]:
        """By the instance that they belonged to as new messages."""
        found = self._runs.by_instance(positions)
        for instance, tied in self._tied.items():
            both = positions & tied
            if both:
                for part in found.values():
                    part -= both
                found.setdefault(instance, BitMap64()).update(both)
        return {instance: part for instance, part in found.items() if part}

    def mine(self, positions: BitMap64) -> BitMap64:
        """Those that belong to this instance."""
        found = BitMap64()
        for claim, part in self._claims.items() if self.claimed else ():
            if claim.to == self._me:
                found |= positions & part
        if self._initial is None:
            first = self._first(without(positions, self.claimed))
            for instance, part in first.items():
                if self.owns_new(instance):
                    found |= part
        elif self._initial:
            found |= without(positions, self.claimed)
        return found

    def owners(self, positions: BitMap64) -> dict[int, BitMap64]:
        """By owner; 0: the initial owner of a group-local queue."""
        found, rest = self._claimed_by(positions, lambda claim: claim.to)
        if rest and self._initial is not None:
            insert(found.setdefault(0, BitMap64()), rest)
        elif rest:
            for instance, part in self._first(rest).items():
                insert(found.setdefault(instance, BitMap64()), part)
        return found

    def may_own(self) -> set[int]:
        """All that `owners` may give, and perhaps more."""
        found = {claim.to for claim in self._claims}
        if self._initial is None:
            return found | self._tied.keys() | self._runs.instances()
        return found if self._initial else found | {0}

    def numbers(self, positions: BitMap64) -> dict[int, BitMap64]:
        """By the number that they are held under."""
        found, rest = self._claimed_by(positions, lambda claim: claim.number)
        return {0: rest, **found} if rest else found

    def _claimed_by(
        self, positions: BitMap64, key: Callable[[OwnerClaim], int]
    ) -> tuple[dict[int, BitMap64], BitMap64]:
        """Those that a claim is about, by something of it; and the others."""
        found: dict[int, BitMap64] = {}
        for claim, part in self._claims.items():
            both = positions & part
            if both:
                insert(found.setdefault(key(claim), BitMap64()), both)
        return found, without(positions, self.claimed)

    def number(self, position: int) -> int:
        """The number that one is held under."""
        if position not in self.claimed:
            return 0
        return next(claim.number for claim, part in self._claims.items() if position in part)

    def granted(self) -> list[tuple[OwnerClaim, BitMap64]]:
        """What other instances gave this one, but for what had been its own."""
        return [
            (claim, part) for claim, part in self._claims.items()
            if claim.to == self._me and claim.instance != self._me
            and not claim.takeover and not claim.back
        ]  # fmt: skip

    def taken_over(self) -> BitMap64:
        """Those whose owner has them by a takeover."""
        return BitMap64.union(
            BitMap64(), *(part for claim, part in self._claims.items() if claim.takeover)
        )

    def drop(self, positions: BitMap64) -> None:
        """They left the queue."""
        for part in self._tied.values():
            remove(part, part & positions)
        self._tied = {one: part for one, part in self._tied.items() if part}
        if self.claimed.isdisjoint(positions):
            return
        for claim, part in [*self._claims.items()]:
            both = part & positions
            if both:
                self._shrink(claim, both)
        remove(self.claimed, self.claimed & positions)

    def memory_bytes(self) -> int:
        """Roughly."""
        sets = [self.claimed, *self._claims.values(), *self._tied.values()]
        return bytes_of(*sets) + 300 * len(self._claims)

    def dump(self) -> bytes:
        """For `load`."""
        return msgpack.encode([
            [(*claim, bytes(part.serialize())) for claim, part in self._claims.items()],
            [(instance, bytes(part.serialize())) for instance, part in self._tied.items()],
        ])  # fmt: skip

    def load(self, data: bytes) -> None:
        """What `dump` gave; nothing else was done before. Raises: ValueError."""
        claims, tied = msgpack.decode(data, type=_Dump)
        for *claim, part in claims:
            self._claims[OwnerClaim(*claim)] = BitMap64.deserialize(part)
        for instance, part in tied:
            self._tied[instance] = BitMap64.deserialize(part)
        self.claimed = BitMap64.union(BitMap64(), *self._claims.values())

    def check(self, here: BitMap64) -> None:
        """Asserts what is always true."""
        whole = BitMap64()
        for part in self._claims.values():
            assert part
            assert part.isdisjoint(whole)
            whole |= part
        assert whole == self.claimed
        assert whole.issubset(here)
        tied = BitMap64()
        for part in self._tied.values():
            assert part.isdisjoint(tied)
            tied |= part
        assert tied.issubset(here)


_Dump = tuple[
    list[tuple[int, bool, int, int, int, int, bool, bytes]], list[tuple[int, bytes]]
]  # fmt: skip
