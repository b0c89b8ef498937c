"""Which batches of this log a destination lacks, and whether they go there from here. Pure.

`after` of a record is the one before it of its origin in this log, sent or not, so a destination
that lacks something in between refuses it.

Where a part of this log is damaged, it is not known which records it had. From there on an origin
is sent only if the next complete state snapshot proves that the destination has all of it up to
that snapshot; the others stop there, and the mark stays before the damage until it is proved that
the destination needs nothing of it. A generation begins there after all that this log had of the
older ones went, whatever stopped or delayed them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from zbroker.ids import Origin
from zbroker.log.format import KIND_NOOP, KIND_TIE, Batch
from zbroker.log.reader import Gap
from zbroker.replication.holdings import Holdings
from zbroker.replication.records import record_of
from zbroker.replication.snapshot_rows import Rows, SnapshotRows
from zbroker.wire.internal import Record

_DAMAGE: Final = Origin(0, 0)  # of all that a damaged range had
_NO_MARK: Final = frozenset({KIND_TIE, KIND_NOOP})  # no client waits for them


class Pending(NamedTuple):
    """A record at `position` that the destination lacks, as far as is known."""

    position: int
    origin: Origin
    last: int


Sent = tuple[Record, bytes | memoryview]


class LinkSelection:
    """The log as it is read for one destination, which holds what `peer` says.

    pending: what the destination lacks, in the order of the log. stopped: origins that do not go
    on, and why: since a record of theirs was refused, or a gap.
    """

    def __init__(self, instance: int, peer: Holdings, digest: int) -> None:
        self._instance, self._peer, self._digest = instance, peer, digest
        self.pending: deque[Pending] = deque()
        self.stopped: dict[Origin, str] = {}
        self._passed: dict[Origin, int] = {}  # the newest record of each origin that was read
        self._given: dict[Origin, int] = {}  # the newest one that was sent
        self._crcs: dict[Origin, tuple[int, int]] = {}  # of the newest one read: position, CRC
        self._compared: set[Origin] = set()  # whose first record of this session was sent
        self._gap: SnapshotRows | None = None  # a damaged range was read: the snapshot after it
        self._whole: set[Origin] = set()  # of which nothing is missing since then

    def forget(self) -> None:
        """Reading is over, or begins again."""
        self.pending.clear()
        self._gap = None
        self._whole.clear()

    def begin(self) -> dict[Origin, int]:
        """It begins where the destination is, which is returned."""
        self.stopped.clear()
        self._given.clear()
        self._compared.clear()
        rows = self._peer.rows
        self._passed = {origin: self._peer.position(origin, self._digest) for origin in rows}
        return dict(self._passed)

    def found(self, crcs: Mapping[Origin, tuple[int, int]]) -> None:
        """crcs: of the newest record of each origin before the place where reading begins."""
        self._crcs = dict(crcs)

    def covered(self) -> None:
        """Forgets what is pending as far as the destination holds it by now."""
        pending = self.pending
        while pending and self._covers(pending[0]):
            pending.popleft()

    def _covers(self, pending: Pending) -> bool:
        if pending.origin != _DAMAGE:
            return self._peer.position(pending.origin, self._digest) >= pending.last
        rows = self._gap.complete if self._gap is not None else None
        return rows is not None and all(
            self._peer.position(origin, self._digest) >= at for origin, (at, _) in rows.items()
        )

    def judged(self, batch: Batch) -> Sent | None:
        """The record of a batch if it has to be sent; else it is noted."""
        origin, last = batch.origin, batch.origin_position + batch.taken - 1
        after = self._passed.get(origin, 0)
        if last <= after:  # read again, below what the destination has
            if last == after:
                self._crcs[origin] = (last, batch.content_crc)
            return None
        held = max(self._peer.position(origin, self._digest), self._given.get(origin, 0))
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
        self._gap = SnapshotRows()
        self._whole.clear()
        self.pending.append(Pending(gap.first, _DAMAGE, 0))

    def proved(self, batch: Batch) -> None:
        """A part of a state snapshot after a damaged range."""
        gap = self._gap
        if gap is None or gap.complete is not None or not gap.add(batch.body):
            return
        rows: Rows = gap.complete or {}
        for origin, (at, crc) in rows.items():
            if self._passed.get(origin, 0) < at:
                self._passed[origin], self._crcs[origin] = at, (at, crc)

    def _is_whole(self, origin: Origin, held: int) -> bool:
        """Whether the destination lacks nothing of this origin that was in the damaged range."""
        if self._gap is None or origin in self._whole:
            return True
        rows = self._gap.complete
        if rows is None or held < rows.get(origin, (0, 0))[0]:
            return False
        self._whole.add(origin)
        return True

    def _goes(self, origin: Origin, held: int) -> bool:
        """Whether records of this origin are sent from here now."""
        if not self._is_whole(origin, held):
            self.stopped.setdefault(origin, "gap")
        if origin in self.stopped:
            return False
        if origin.instance == self._peer.instance:
            goes = origin.generation < self._peer.generation
        else:
            own = origin.instance == self._instance
            goes = own or origin.instance not in self._peer.sources
        if goes and not held and not self._older_went(origin):
            self.stopped[origin], goes = "gap", False
        return goes

    def _older_went(self, origin: Origin) -> bool:
        """Whether what this log had of older generations is there, or on its way: readers there
        take the first record of a generation for the end of them (zbroker.journal.link_sessions).
        """
        return not any(
            at > max(self._peer.position(one, self._digest), self._given.get(one, 0))
            for one, at in self._passed.items()
            if (origin.instance, 0) <= one < origin
            and self.stopped.get(one) != "fork"  # a new generation is the way out of it
            and self._crcs.get(one, (0, -1))[1] >= 0  # else it may be of a record that stays here
        )

    def _given_as(self, batch: Batch, last: int, after: int, after_crc: int | None) -> Sent:
        self._given[batch.origin] = last
        return record_of(batch, after, after_crc)
