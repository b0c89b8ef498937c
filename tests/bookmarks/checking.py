"""Compares what an index says with the plain list of batches that it was given."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bookmarks.logs import FakeLog
from zbroker.bookmarks.index import Hint, Index
from zbroker.bookmarks.keys import BLOCK_BYTES
from zbroker.journal.format import FLAG_LATE, KIND_PUBLISH, Batch

KIB = 1024


def add_all(index: Index, log: FakeLog) -> None:
    for batch, serial in log.entries:
        index.add(batch, serial)


def place(entry: tuple[Batch, int]) -> Hint:
    return Hint(entry[1], entry[0].offset, entry[0].position)


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Writes that make the data file longer fail, as they do on a full disk."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (path / "data.mdb").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


class Checker:
    """Looks everything up and compares with the list."""

    def __init__(self, log: FakeLog, index: Index) -> None:
        self.log = log
        self.index = index
        self.places = {place(entry): at for at, entry in enumerate(log.entries)}

    def check(self) -> None:
        for at, (batch, _) in enumerate(self.log.entries):
            self.near(at, self.index.at_or_before(batch.end_position - 1))
            if batch.kind == KIND_PUBLISH:
                self.bookmark(at, batch)
            self.time(batch.log_time)
            self.time(batch.log_time + 1)
        assert self.index.at_or_before(0) is None
        assert self.index.before_bookmark(999, 5) is None
        self.time(0)

    def near(self, at: int, hint: Hint | None) -> None:
        """At or before, and less than a block of log away."""
        assert hint is not None
        assert self.places[hint] <= at
        batch, serial = self.log.entries[at]
        assert hint.serial == serial
        assert batch.offset - hint.offset < BLOCK_BYTES

    def bookmark(self, at: int, batch: Batch) -> None:
        hint = self.index.before_bookmark(batch.publisher, batch.sequence + batch.taken - 1)
        ever_late = any(
            other.flags & FLAG_LATE and other.publisher == batch.publisher
            for other, _ in self.log.entries
        )
        if ever_late:
            assert hint is not None
            assert self.places[hint] <= at
        else:
            self.near(at, hint)

    def time(self, ns: int) -> None:
        """Everything before the hint is earlier; it is the newest indexed one of that kind."""
        hint = self.index.before_time(ns)
        if not self.log.entries:
            assert hint is None
            return
        assert hint is not None
        at = self.places[hint]
        assert all(batch.log_time < ns for batch, _ in self.log.entries[:at])
        if at:
            assert self.log.entries[at][0].log_time < ns
