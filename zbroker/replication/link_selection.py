"""Which batches of this log a destination lacks, and whether they go there from here. Pure.

`after` of a record is the one before it of its origin in this log, sent or not, so a destination
that lacks something in between refuses it.

Where a part of this log is damaged, it is not known which records it had. From there on an origin
is sent only if the next complete state snapshot proves that the destination has all of it up to
that snapshot; the others stop there, and the mark stays before the damage until it is proved that
the destination needs nothing of it.

Records that were removed at the beginning of this log, or never were in it, do not go from here: an
origin of which the destination lacks some is `expired` until another instance has sent them, or a
person has them skipped (missing). A generation begins there after all that this log had of the
older ones went, whatever stopped or delayed them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec import DecodeError

from zbroker.ids import Origin
from zbroker.log.format import KIND_CLOSED, KIND_NOOP, KIND_TIE, Batch
from zbroker.log.reader import Gap
from zbroker.log.records import ORIGIN
from zbroker.replication.damaged_range import DamagedRange
from zbroker.replication.holdings import Holdings
from zbroker.replication.own_holdings import OwnHoldings
from zbroker.replication.records import record_of
from zbroker.wire.internal import Record

EXPIRED: Final = "expired"
GAP: Final = "gap"
#: why a record is refused for a while, or until something else than a skip is done
PASSING: Final = frozenset(
    {"disk_full", "not_ready", "dropped", "origin_gap", "name_missing", "fork", "digest_differs"}
)
_DAMAGE: Final = Origin(0, 0)  # of all that a damaged range had
_NO_MARK: Final = frozenset({KIND_TIE, KIND_NOOP, KIND_CLOSED})  # no client waits for them


class Pending(NamedTuple):
    """A record at `position` that the destination lacks, as far as is known."""

    position: int
    origin: Origin
    last: int


Sent = tuple[Record, bytes | memoryview]


class LinkSelection:
    """The log as it is read for one destination, which holds what `peer` says.

    pending: what the destination lacks, in the order of the log. stopped: origins that do not go
    on, and why: since a record of theirs was refused, or a gap. missing: the range of those of
    which the destination lacks something that this log does not have.
    """

    def __init__(self, own: OwnHoldings, peer: Holdings, digest: int) -> None:
        self._own, self._peer, self._digest = own, peer, digest
        self.pending: deque[Pending] = deque()
        self.stopped: dict[Origin, str] = {}
        self.missing: dict[Origin, tuple[int, int]] = {}
        self.refused: dict[Origin, tuple[int, int]] = {}  # likewise, of a record that never goes
        self._passed: dict[Origin, int] = {}  # the newest record of each origin that was read
        self._given: dict[Origin, int] = {}  # the newest one that was sent
        self._crcs: dict[Origin, tuple[int, int]] = {}  # of the newest one read: position, CRC
        self._compared: set[Origin] = set()  # whose first record of this session was sent
        self._damage = DamagedRange()

    def forget(self) -> None:
        """Reading is over, or begins again."""
        self.pending.clear()
        self._damage.forget()

    def begin(self) -> dict[Origin, int]:
        """It begins where the destination is, which is returned."""
        self.stopped.clear()
        self.missing.clear()
        self._given.clear()
        self._compared.clear()
        self._passed = {origin: self._holds(origin) for origin in self._peer.rows}
        old = {one: end for one, end in self._own.closed.items() if self._peer.has_all_of(one)}
        return {**old, **self._peer.closed, **self._passed}

    def _holds(self, origin: Origin) -> int:
        """Up to where the destination has what this link sends of an origin."""
        position = self._peer.position(origin, self._digest)
        if not position and origin in self._own.closed and self._peer.has_all_of(origin):
            return self._own.closed[origin]
        return position

    def found(
        self, position: int, crcs: Mapping[Origin, tuple[int, int]], below: Mapping[Origin, int]
    ) -> None:
        """It begins to read at `position`. crcs: of the newest record of each origin before that.
        below: up to where messages of each one are not in this log."""
        self._crcs = dict(crcs)
        for origin, last in below.items():
            self._lacks(position, origin, last)

    def _lacks(self, position: int, origin: Origin, last: int) -> None:
        """What this log has of an origin from `position` on begins after `last`."""
        held = self._holds(origin)
        if self._passed.get(origin, 0) > last or not last:
            return
        self._passed[origin], self._crcs[origin] = last, (last, -1)
        if held < last:
            self.stopped[origin], self.missing[origin] = EXPIRED, (held + 1, last)
            self.pending.append(Pending(position, origin, last))

    def skipped(self, batch: Batch) -> None:
        """This log says what the row of an origin means: something may never have been here."""
        with suppress(DecodeError, UnicodeDecodeError):
            record = ORIGIN.decode(batch.body)
            if record.skipped:
                origin = Origin(record.instance, record.generation)
                self._lacks(batch.position, origin, record.position)

    @property
    def lacks(self) -> list[int]:
        """Instances of which this log lacks something that the destination needs first."""
        ours = (origin.instance for origin, why in self.stopped.items() if why in (EXPIRED, GAP))
        return sorted(set(ours))

    def was_refused(self, origin: Origin, last: int, code: str) -> None:
        """A record that ends at `last` was not taken there. The first refusal is the reason: the
        records after it are refused because that one is missing."""
        if origin not in self.stopped and code not in PASSING:
            self.refused[origin] = self._holds(origin) + 1, last
        self.stopped.setdefault(origin, code)

    @property
    def skippable(self) -> dict[Origin, tuple[int, int]]:
        """Ranges that hold an origin up until a person gives them up, or another instance helps."""
        return {**self.refused, **self.missing}

    @property
    def overcome(self) -> bool:
        """The destination is beyond such a range."""
        ranges = self.skippable
        self.refused = {one: at for one, at in self.refused.items() if not self._has(one, at[1])}
        return any(self._has(one, last) for one, (_, last) in ranges.items())

    def _has(self, origin: Origin, last: int) -> bool:
        return self._holds(origin) >= last

    def covered(self) -> None:
        """Forgets what is pending as far as the destination holds it by now."""
        pending = self.pending
        while pending and self._covers(pending[0]):
            pending.popleft()

    def _covers(self, pending: Pending) -> bool:
        if pending.origin != _DAMAGE:
            return self._holds(pending.origin) >= pending.last
        return self._damage.is_covered(self._holds)

    def judged(self, batch: Batch) -> Sent | None:
        """The record of a batch if it has to be sent; else it is noted."""
        origin, last = batch.origin, batch.origin_position + batch.taken - 1
        after = self._passed.get(origin, 0)
        if last <= after:  # read again, below what the destination has
            if last == after:
                self._crcs[origin] = (last, batch.content_crc)
            return None
        held = max(self._holds(origin), self._given.get(origin, 0))
        covered = last <= held
        crc = self._crcs.get(origin, (0, -1))
        self._passed[origin] = last
        self._crcs[origin] = (last, batch.content_crc)
        if covered:
            return None
        if batch.kind not in _NO_MARK:
            self.pending.append(Pending(batch.position, origin, last))
        if not self._goes(origin, held):
            return None
        if origin not in self._compared:
            if batch.origin_position <= after:  # a relay has sent a part of it: CRCs are compared
                self._compared.add(origin)
                return self._given_as(batch, last, batch.origin_position - 1, None)
            if held > after or (after and crc[0] != after):
                self.stopped[origin] = "fork"
                return None
            self._compared.add(origin)
            known = after and crc[1] >= 0
            return self._given_as(batch, last, after, crc[1] if known else None)
        return self._given_as(batch, last, after, None)

    def damaged(self, gap: Gap) -> None:
        """A range of the log cannot be read."""
        self._damage.begin()
        self.pending.append(Pending(gap.first, _DAMAGE, 0))

    def proved(self, batch: Batch) -> None:
        """A part of a state snapshot; it counts after a damaged range."""
        for origin, (at, crc) in self._damage.proved(batch.body).items():
            if self._passed.get(origin, 0) < at:
                self._passed[origin], self._crcs[origin] = at, (at, crc)

    def _goes(self, origin: Origin, held: int) -> bool:
        """Whether records of this origin are sent from here now."""
        if not self._damage.is_whole(origin, held):
            self.stopped.setdefault(origin, GAP)
        if origin in self.stopped:
            return False
        if origin.instance == self._peer.instance:
            goes = origin.generation < self._peer.generation
        else:
            own = origin.instance == self._own.instance
            goes = own or origin.instance not in self._peer.sources
        if goes and not held and not self._older_went(origin):
            self.stopped[origin], goes = GAP, False
        return goes

    def _older_went(self, origin: Origin) -> bool:
        """Whether what this log had of older generations is there, or on its way: readers there
        take the first record of a generation for the end of them (zbroker.journal.link_sessions).
        """
        return not any(
            at > max(self._holds(one), self._given.get(one, 0))
            for one, at in self._passed.items()
            if (origin.instance, 0) <= one < origin
            and self.stopped.get(one) != "fork"  # a new generation is the way out of it
            # else it may be of a record that stays here
            and (self._crcs.get(one, (0, -1))[1] >= 0 or one in self.missing)
        )

    def _given_as(self, batch: Batch, last: int, after: int, after_crc: int | None) -> Sent:
        self._given[batch.origin] = last
        return record_of(batch, after, after_crc)
