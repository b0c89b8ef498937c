"""Rebuilds a bookmark index from the log, beside the one that serves, then replaces it.

    <index>.new   being made: an interrupted one is thrown away when the index is opened
    <index>.old   the one that was replaced, until it is removed

    rebuild = Rebuild(path, instance, generation, batches_of(log))
    rebuild.run(until)            also in a helper thread, again for what came since
    index = rebuild.finish(until, old)   where `old` is used: the rest, then the new one instead

Only what is durable may be added: a stamp above the log's end would prove a loss (see recovery).
For the same reason an index that is ahead of the log is never replaced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from zbroker.bookmarks import files
from zbroker.bookmarks.index import Index
from zbroker.bookmarks.keys import BLOCK_BYTES
from zbroker.errors import StorageError
from zbroker.limits import MIB
from zbroker.log.format import Batch
from zbroker.log.reader import Log

COMMIT_BYTES: Final = 32 * MIB  # of log per transaction
TELL_S: Final = 0.2  # between two calls of `progress`

#: (from, until) -> what an index needs of the batches from position `from` below `until`: lists in
#: log order, each from one segment, with its serial and the number of batches that it covers. Gaps
#: are left out.
Batches = Callable[[int, int], Iterable[tuple[Sequence[object], int, int]]]


def batches_of(log: Log) -> Batches:
    """The batches for a Rebuild of this log, which no other code uses at the same time."""

    def read(start: int, until: int) -> Iterable[tuple[Sequence[object], int, int]]:
        log.refresh()
        cursor = log.seek(max(start, log.first_position))
        return log.sparse_lists(cursor, until, BLOCK_BYTES)

    return read


class RebuildProgress(NamedTuple):
    """How far a rebuild is: positions below `position` of those below `until`."""

    position: int
    until: int
    batches: int
    batches_per_s: int


Tell = Callable[[RebuildProgress], None]


class _Teller:
    """Tells of the progress, but not all the time."""

    def __init__(self, tell: Tell) -> None:
        self.batches = 0
        self._tell = tell
        self._worked_s = self._reported_s = 0.0

    def tell(self, position: int, until: int, batches: int, worked_s: float) -> None:
        """That many batches more, in that time."""
        self.batches += batches
        self._worked_s += worked_s
        now = time.monotonic()
        if now >= self._reported_s + TELL_S:
            self._reported_s = now
            self.end(position, until)

    def end(self, position: int, until: int) -> None:
        """Once more, whenever the last time was."""
        rate = round(self.batches / max(self._worked_s, 1e-9))
        self._tell(RebuildProgress(position, until, self.batches, rate))


def _adding(index: Index, read: Batches, until: int) -> Iterator[int]:
    """Adds and commits what the log has below `until`; how many batches after each list."""
    for found, serial, batches in read(index.end, until):
        index.add_all([batch for batch in found if isinstance(batch, Batch)], serial)
        if index.pending_bytes >= COMMIT_BYTES:
            index.commit(index.take())
        yield batches
    index.skip_to(until)
    index.commit(index.take())


def catch_up(index: Index, read: Batches, until: int, tell: Tell) -> None:
    """Gives an index that is in use what it lacks; for a start, before anything else is added."""
    if index.end >= until:
        return
    teller, begun = _Teller(tell), time.monotonic()
    for batches in _adding(index, read, until):
        now = time.monotonic()
        teller.tell(index.end, until, batches, now - begun)
        begun = now


class Rebuild:
    """One rebuild. `end`: positions below it were added.

    share: of the time in which it works; it sleeps the rest, so that others get their turn.
    Raises: StorageError "index_failed" where the new index cannot be written; the old one stays.
    """

    def __init__(
        self,
        path: Path,
        instance: int,
        generation: int,
        batches: Batches,
        progress: Tell = lambda _: None,
        *,
        share: float = 1.0,
    ) -> None:
        self._path = path
        self._instance = instance
        self._read = batches
        self._teller = _Teller(progress)
        self._rest = 1 / share - 1
        files.remove(files.new_path(path))
        self._index = Index(files.new_path(path), instance)
        self._index.set_generation(generation)
        self._check()

    @property
    def batches(self) -> int:
        """That were looked at."""
        return self._teller.batches

    @property
    def end(self) -> int:
        """Positions below it are in the new index."""
        return self._index.end

    def run(self, until: int, stopping: Callable[[], bool] = lambda: False) -> bool:
        """Adds what the log has below position `until` and commits it; False if it was stopped."""
        begun = time.monotonic()
        for batches in _adding(self._index, self._read, until):
            self._check()
            worked_s = time.monotonic() - begun
            self._teller.tell(self.end, until, batches, worked_s)
            if stopping():
                return False
            if self._rest:
                time.sleep(worked_s * self._rest)
            begun = time.monotonic()
        self._check()
        self._teller.end(self.end, until)
        return True

    def _check(self) -> None:
        if why := self._index.failed:
            self.give_up()
            raise StorageError(
                "index_failed",
                f"the new bookmark index cannot be written: {why}; the old one stays",
                "free space or repair the disk, then try again",
            )

    def finish(self, until: int, old: Index | None = None) -> Index:
        """Adds the rest up to `until`; the new index, open in the place of `old`, which is closed.

        `remove_old` is still to be called: to remove a large file takes a moment. After an error
        the old index is still open and in its place.
        Raises: also StorageError "tail_damaged" if the old one holds more than the log has.
        """
        self.run(until)
        if old is not None and old.stamp > self._index.stamp:
            self.give_up()
            raise StorageError(
                "tail_damaged",
                f"the bookmark index proves positions up to {old.stamp.position - 1} of generation "
                f"{old.stamp.generation}, the log ends at {until}: messages are missing there",
                "keep the index: `zbroker start` says what is lost",
            )
        self._index.close()
        try:
            files.swap(self._path)
        except OSError as error:
            files.settle(self._path)
            raise StorageError(
                "index_failed", f"{self._path} cannot be replaced: {error}; the old one stays"
            ) from error
        if old is not None:
            old.close()
        return Index(self._path, self._instance, settle=False)

    def remove_old(self) -> None:
        """Removes the index that was replaced; from any thread. Best effort."""
        files.remove(files.old_path(self._path))

    def give_up(self) -> None:
        """Throws the new index away."""
        self._index.close()
        files.remove(files.new_path(self._path))
