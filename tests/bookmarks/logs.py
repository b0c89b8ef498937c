"""Logs for the tests of the index: batches at places, as the journal would have put them."""

from __future__ import annotations

from dataclasses import dataclass, field

from zbroker.log.format import DATA_AT, FLAG_LATE, KIND_NOOP, KIND_PUBLISH, Batch, pad

INSTANCE = 0x1122334455667788
HEADER = 120


@dataclass
class Publisher:
    """What a publisher has in the log: its highest sequence and what is missing below it."""

    high: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)  # first, count


@dataclass
class FakeLog:
    """A plain list of batches and their segments; grows at the end."""

    entries: list[tuple[Batch, int]] = field(default_factory=list)
    serial: int = 1
    offset: int = DATA_AT
    position: int = 1
    time: int = 1_000
    publishers: dict[int, Publisher] = field(default_factory=dict)

    def publish(
        self, publisher: int = 5, count: int = 1, size: int = 100, *, later: int = 1, hole: int = 0
    ) -> Batch:
        """The publisher's next `count` messages; `hole` of them are left out before."""
        known = self.publishers.setdefault(publisher, Publisher())
        if hole:
            known.holes.append((known.high + 1, hole))
        first = known.high + 1 + hole
        known.high = first + count - 1
        return self._append(KIND_PUBLISH, publisher, first, count, size, later)

    def publish_late(self, publisher: int, size: int = 100, *, part: int = 1_000_000) -> bool:
        """Fills (a part of) the newest hole of this publisher; False if it has none."""
        known = self.publishers.get(publisher)
        if known is None or not known.holes:
            return False
        first, missing = known.holes.pop()
        count = min(part, missing)
        if count < missing:
            known.holes.append((first + count, missing - count))
        self._append(KIND_PUBLISH, publisher, first, count, size, 1).flags = FLAG_LATE
        return True

    def control(self, size: int = 100) -> Batch:
        return self._append(KIND_NOOP, 0, 0, 1, size, 1)

    def roll_over(self) -> None:
        self.serial += 1
        self.offset = DATA_AT

    def _append(
        self, kind: int, publisher: int, first: int, count: int, size: int, later: int
    ) -> Batch:
        self.time += later
        batch = Batch(kind, self.position, publisher, 1, first, first - 1, count, self.time, ["t"],
                      b"", 0, size, offset=self.offset, header_length=HEADER)  # fmt: skip
        self.entries.append((batch, self.serial))
        self.position += count
        self.offset += HEADER + pad(size)
        return batch

    def cut(self, entries: int, *, same_segment: bool = False) -> int:
        """Gives up all but the first batches; returns the position after them."""
        del self.entries[entries:]
        self.publishers.clear()
        for batch, _ in self.entries:
            if batch.kind != KIND_PUBLISH:
                continue
            known = self.publishers.setdefault(batch.publisher, Publisher())
            known.high = max(known.high, batch.sequence + batch.taken - 1)
        self.position = self.entries[-1][0].end_position if self.entries else 1
        self.time = self.entries[-1][0].log_time if self.entries else 1_000
        if same_segment and self.entries:
            last, self.serial = self.entries[-1]
            self.offset = last.end_offset
        else:
            self.roll_over()
        return self.position
