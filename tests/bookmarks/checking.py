"""Compares what an index says with the plain list of batches that it was given."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from tests.bookmarks.logs import FakeLog
from zbroker.bookmarks import keys
from zbroker.bookmarks.index import Hint, Index
from zbroker.bookmarks.keys import BLOCK_BYTES
from zbroker.log.format import FLAG_LATE, KIND_PUBLISH, Batch

KIB = 1024


def add_all(index: Index, log: FakeLog) -> None:
    for batch, serial in log.entries:
        index.add(batch, serial)


def place(entry: tuple[Batch, int]) -> Hint:
    return Hint(entry[1], entry[0].offset, entry[0].position)


def entries_in(path: Path) -> list[tuple[bytes, int]]:
    """Key and position of every place in a closed index."""
    with lmdb.open(str(path), readonly=True, lock=False) as env, env.begin() as txn:
        places = [(bytes(key), keys.decode_place(key, value)) for key, value in txn.cursor()
                  if key != keys.STAMP]  # fmt: skip
    return [(key, place.position) for key, place in places if isinstance(place, keys.Hint)]


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
    """Looks everything up that is at or above `log_start` and compares with the list."""

    def __init__(self, log: FakeLog, index: Index, log_start: int = 0) -> None:
        self.log = log
        self.index = index
        self.log_start = log_start
        self.first = sum(batch.position < log_start for batch, _ in log.entries)
        self.places = {place(entry): at for at, entry in enumerate(log.entries)}

    def check(self) -> None:
        for at, (batch, _) in enumerate(self.log.entries):
            if at < self.first:
                self.removed(batch)
                continue
            self.near(at, self.index.at_or_before(batch.end_position - 1))
            if batch.kind == KIND_PUBLISH:
                self.bookmark(at, batch)
            self.time(batch.log_time)
            self.time(batch.log_time + 1)
        assert self.index.at_or_before(max(self.log_start - 1, 0)) is None
        assert self.index.before_bookmark(999, 5) is None
        self.time(0)

    def removed(self, batch: Batch) -> None:
        """Below the log start a hint is none, or one of what is kept."""
        for hint in (
            self.index.before_bookmark(batch.publisher, batch.sequence),
            self.index.before_time(batch.log_time + 1),
        ):
            assert hint is None or self.places[hint] >= self.first

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
        """It is earlier, as is everything before it; none only when no kept one is earlier.

        Or when all earlier ones have the time of one below the log start: that one has the entry.
        """
        hint = self.index.before_time(ns)
        kept = self.log.entries[self.first :]
        if hint is None:
            below = [batch.log_time for batch, _ in self.log.entries[: self.first]]
            assert not any(max(below, default=-1) < batch.log_time < ns for batch, _ in kept[:1])
            return
        at = self.places[hint]
        assert at >= self.first
        assert all(batch.log_time < ns for batch, _ in self.log.entries[: at + 1])
