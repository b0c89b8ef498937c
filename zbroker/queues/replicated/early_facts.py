"""Facts that came before the messages that they are about; they wait, and none is dropped. Pure.

Records of different origins are in no order: an acknowledgement by a consumer at C may be here
before the message, which comes from A. They are kept by origin and position of the message, until
the log was read beyond that position. Acknowledgements are one set for each origin, so they cost
little however many there are, those of replayable queues likewise; the other facts are kept one by
one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct, msgpack
from pyroaring import BitMap64

from zbroker.ids import Origin
from zbroker.limits import MIB
from zbroker.log.queue_records import AnyQueueFact, OriginsGone, OriginsNoted
from zbroker.queues.replicated.ownership import OwnerClaim
from zbroker.queues.work.sets import bytes_of

EARLY_MAX_BYTES: Final = 16 * MIB  # of one queue; then records of their origins wait in the log
_FACT_BYTES: Final = 400


class EarlyFact(NamedTuple):
    """A fact about messages of one origin. at: where it is in this log. claim: of a Moved."""

    fact: AnyQueueFact
    positions: BitMap64
    at: int
    claim: OwnerClaim | None = None


class EarlyFacts:
    """Those of one queue. bytes: of memory, roughly."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self.bytes = 0
        self._max_bytes = EARLY_MAX_BYTES if max_bytes is None else max_bytes
        self._gone: dict[Origin, BitMap64] = {}
        self._noted: dict[Origin, BitMap64] = {}
        self._others: dict[Origin, list[EarlyFact]] = {}
        self._since: dict[Origin, int] = {}  # where the oldest of them may be in this log

    def __bool__(self) -> bool:
        """Something waits."""
        return bool(self._since)

    @property
    def full(self) -> bool:
        """No more may be added: their record has to be read again later."""
        return self.bytes >= self._max_bytes

    @property
    def roomy(self) -> bool:
        """Records that wait in the log may be read again."""
        return not self.full and self.bytes <= self._max_bytes // 2

    @property
    def lowest(self) -> int | None:
        """The log is needed from there on."""
        return min(self._since.values(), default=None)

    def add(self, origin: Origin, early: EarlyFact) -> None:
        """It waits."""
        self._since.setdefault(origin, early.at)
        if isinstance(early.fact, OriginsGone | OriginsNoted):
            sets = self._gone if isinstance(early.fact, OriginsGone) else self._noted
            known = sets.get(origin)
            if known is None:
                known = sets[origin] = BitMap64()
            else:
                self.bytes -= bytes_of(known)
            known |= early.positions
            self.bytes += bytes_of(known)
            return
        self._others.setdefault(origin, []).append(early)
        self.bytes += _FACT_BYTES + bytes_of(early.positions)

    def waits(self, origin: Origin) -> bool:
        """True if something waits for messages of this origin."""
        return origin in self._since

    def take(self, origin: Origin, through: int) -> tuple[BitMap64, list[EarlyFact], int]:
        """What waited for messages up to `through`: those that are gone, other facts in their
        order, and where the oldest of all may be in this log."""
        since = self._since[origin]
        others = self._others.get(origin)
        taken = self._taken(self._gone, origin, through)
        noted = self._taken(self._noted, origin, through)
        due = [EarlyFact(OriginsNoted([]), noted, since)] if noted else []
        if others is not None:
            left: list[EarlyFact] = []
            for early in others:
                self.bytes -= _FACT_BYTES + bytes_of(early.positions)
                part, rest = _cut(early.positions, through)
                if part:
                    due.append(early._replace(positions=part))
                if rest:
                    left.append(early._replace(positions=rest))
                    self.bytes += _FACT_BYTES + bytes_of(rest)
            if left:
                self._others[origin] = left
            else:
                del self._others[origin]
        if not any(origin in many for many in (self._gone, self._noted, self._others)):
            del self._since[origin]
        return taken, due, since

    def _taken(self, sets: dict[Origin, BitMap64], origin: Origin, through: int) -> BitMap64:
        known = sets.pop(origin, None)
        if known is None:
            return BitMap64()
        self.bytes -= bytes_of(known)
        taken, rest = _cut(known, through)
        if rest:
            sets[origin] = rest
            self.bytes += bytes_of(rest)
        return taken

    def dump(self) -> bytes:
        """For `load`."""
        return msgpack.encode(
            _Dump(
                [(*origin, at) for origin, at in self._since.items()],
                [(*origin, bytes(one.serialize())) for origin, one in self._gone.items()],
                [
                    (*origin, early.fact, bytes(early.positions.serialize()), early.at, early.claim)
                    for origin, many in self._others.items()
                    for early in many
                ],
                [(*origin, bytes(one.serialize())) for origin, one in self._noted.items()],
            )
        )

    def load(self, data: bytes) -> None:
        """What `dump` gave; nothing else was done before. Raises: ValueError."""
        found = msgpack.decode(data, type=_Dump)
        for sets, rows in ((self._gone, found.gone), (self._noted, found.noted)):
            for instance, generation, positions in rows:
                known = sets[Origin(instance, generation)] = BitMap64.deserialize(positions)
                self.bytes += bytes_of(known)
        for instance, generation, fact, positions, at, claim in found.others:
            early = EarlyFact(
                fact, BitMap64.deserialize(positions), at, claim and OwnerClaim(*claim)
            )
            self._others.setdefault(Origin(instance, generation), []).append(early)
            self.bytes += _FACT_BYTES + bytes_of(early.positions)
        self._since = {Origin(row[0], row[1]): row[2] for row in found.since}

    def check(self) -> None:
        """Asserts what is always true."""
        waiting = self._gone.keys() | self._noted.keys() | self._others.keys()
        assert self._since.keys() == waiting
        sets = [*self._gone.values(), *self._noted.values()]
        for many in self._others.values():
            sets += [early.positions for early in many]
        assert all(sets)
        count = sum(map(len, self._others.values()))
        assert self.bytes == bytes_of(*sets) + _FACT_BYTES * count


class _Dump(Struct):
    since: list[tuple[int, int, int]]
    gone: list[tuple[int, int, bytes]]
    others: list[tuple[int, int, AnyQueueFact, bytes, int, OwnerClaim | None]]
    noted: list[tuple[int, int, bytes]] = []  # left out by earlier releases


def _cut(positions: BitMap64, through: int) -> tuple[BitMap64, BitMap64]:
    """Those up to `through`, and the rest."""
    count = positions.rank(through)
    return positions[:count], positions[count:]
