"""The places of batches in the log, by position, bookmark and log time; for the journal only.

    add --> tail --take--> uncommitted --commit--> LMDB      every lookup sees all three

Everything in it can be rebuilt from the log, so damage to its files does not raise an error:
an index that cannot be used is set aside (`found` says why) and begins empty; while LMDB fails
(`failed` says how) entries stay in memory and go with the next commit. When a lookup meets damage
(`damaged`), lookups that need LMDB know nothing; reopening the index then sets it aside.

One entry per 64 KiB of log, and per publisher in it. A hint is never after the wanted place,
however the entries came about; how far it is before only costs reading, and so does None: read the
log from its beginning. Callers verify the batch that they find.

Threads: everything is called from one thread, but `commit` may run in another one meanwhile.

A rebuild while the old index serves (rebuild.py) fills a second Index in another directory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from zbroker.bookmarks import files, keys
from zbroker.bookmarks.keys import BLOCK_BYTES, EMPTY, Hint, Stamp
from zbroker.bookmarks.stored import (
    MAP_BYTES,
    DamagedError,
    IndexTail,
    StoredEntries,
    StoredError,
    Sweep,
    TailEntries,
)
from zbroker.errors import Bug
from zbroker.log.format import FLAG_LATE, KIND_PUBLISH, Batch

__all__ = ["Hint", "Index", "PendingEntries", "Stamp"]

Progress = Callable[[str], None]

_position = attrgetter("position")
_LAST_TIME = keys.time_key((1 << 63) - 1)


class PendingEntries(NamedTuple):
    """What one commit writes."""

    tails: tuple[IndexTail, ...]
    stamp: Stamp
    sweep: Sweep | None = None


class Index:
    """The bookmark index of one instance.

    found: why an older index was set aside when this one was opened, or "".
    failed: what went wrong last with LMDB, or ""; a commit that succeeds clears it.
    damaged: LMDB holds wrong entries; lookups that need them answer None.
    end: positions below it were added; `add` steps over batches that begin below it.
    pending_bytes: of the log, that were added since the last `take`.
    """

    def __init__(
        self,
        path: Path,
        instance: int,
        *,
        progress: Progress = lambda _: None,
        map_bytes: int = MAP_BYTES,
        settle: bool = True,
    ) -> None:
        """`settle`: throw away what an interrupted rebuild left beside it."""
        self.found = ""
        self.failed = ""
        self.damaged = False
        self._path = path
        self._instance = instance
        self._map_bytes = map_bytes
        self._generation = 0
        self._stored: StoredEntries | None = None
        self._clear()
        if settle:
            files.settle(path)
        self._open(progress)

    def _clear(self) -> None:
        self._tail = IndexTail()
        self._uncommitted: tuple[IndexTail, ...] = ()
        self._busy = False
        self.end = 0
        self.pending_bytes = 0
        self._time: int | None = None  # of the newest entry by time
        self._log_start = 0  # hints below it are not given
        self._sweep: Sweep | None = None
        self._begin_block()

    def _begin_block(self) -> None:
        self._serial = 0
        self._block_end = 0
        self._seen: set[int] = set()  # publishers that have an entry for this block

    # -- opening and closing ------------------------------------------------------------------

    def _open(self, progress: Progress) -> None:
        why = files.reason_not_to_open(self._path, progress)
        if not why:
            try:
                self._load()
            except StoredError as error:
                why = str(error)
        if why:
            self._begin_empty(why)

    def _load(self) -> None:
        self._stored = stored = StoredEntries(self._path, self._instance, self._map_bytes)
        self._generation, self.end = stored.stamp
        newest = stored.newest(keys.TIME, _LAST_TIME)
        self._time = keys.time_of(newest[0]) if newest else None

    def _begin_empty(self, why: str) -> None:
        """Sets the index aside; when not even that works, everything stays in memory."""
        self._close_stored()
        self._clear()
        self.found, self.damaged = why, False
        try:
            files.set_aside(self._path)
            self._load()
        except (StoredError, OSError) as error:
            self.failed = str(error)
            self._close_stored()

    def close(self) -> None:
        """Closes the environment; entries without a commit have to be added again next time."""
        if self._busy:
            raise Bug("an index is closed while a commit runs")
        self._close_stored()
        if not self.damaged:
            files.note_closed(self._path)

    def _close_stored(self) -> None:
        if self._stored is not None:
            self._stored.close()
            self._stored = None

    # -- adding -------------------------------------------------------------------------------

    @property
    def stamp(self) -> Stamp:
        """Positions below its position are in LMDB, as of its generation; (0, 0) when empty."""
        return self._stored.stamp if self._stored is not None else EMPTY

    def set_generation(self, generation: int) -> None:
        """The journal's generation; the next commit or `forget_after` puts it into the stamp."""
        self._generation = generation

    def add(self, batch: Batch, serial: int) -> None:
        """Takes note of a batch in segment `serial`; in the order of the log."""
        if batch.position < self.end:
            return
        if batch.offset >= self._block_end or serial != self._serial:
            self._add_block(batch, serial)
        self.pending_bytes += batch.header_length + batch.body_length
        self.end = batch.end_position
        if batch.kind == KIND_PUBLISH:
            if batch.flags & FLAG_LATE:
                self._add_late(batch, serial)
            elif batch.publisher not in self._seen:
                self._add_run(batch, serial)

    def add_all(self, batches: Sequence[Batch], serial: int) -> None:
        """The same for batches that follow each other in one segment: a tight loop for rebuilds."""
        first = bisect_left(batches, self.end, key=_position)
        if first == len(batches):
            return
        seen, block_end = self._seen, self._block_end if serial == self._serial else 0
        for batch in islice(batches, first, None):
            if batch.offset >= block_end:
                self._add_block(batch, serial)
                block_end = self._block_end
            if batch.kind == KIND_PUBLISH:
                if batch.flags & FLAG_LATE:
                    self._add_late(batch, serial)
                elif batch.publisher not in seen:
                    self._add_run(batch, serial)
        last = batches[-1]
        self.pending_bytes += last.end_offset - batches[first].offset
        self.end = last.end_position

    def skip_to(self, position: int) -> None:
        """There is nothing more below `position`: batches that were not added are unreadable."""
        self.end = max(self.end, position)

    def _add_block(self, batch: Batch, serial: int) -> None:
        """A batch's log time is that of its last message: all before it are at most as late."""
        self._serial = serial
        self._block_end = batch.offset // BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES
        self._seen.clear()
        hint = Hint(serial, batch.offset, batch.position)
        self._tail.positions.put(batch.position, hint)
        if self._time is None or batch.log_time > self._time:
            self._time = batch.log_time
            self._tail.times.put(batch.log_time, hint)

    def _add_run(self, batch: Batch, serial: int) -> None:
        line = self._tail.runs.setdefault(batch.publisher, TailEntries())
        if line.last is not None and batch.sequence <= line.last:
            self._add_late(batch, serial)  # late without its flag
            return
        self._seen.add(batch.publisher)
        line.put(batch.sequence, Hint(serial, batch.offset, batch.position))

    def _add_late(self, batch: Batch, serial: int) -> None:
        """Sequences below earlier ones: those after it keep their place."""
        line = self._tail.runs.setdefault(batch.publisher, TailEntries())
        after = batch.sequence + batch.taken
        place = self._before_bookmark(batch.publisher, after)
        if place is not None:
            line.put(after, place)
        line.put(batch.sequence, Hint(serial, batch.offset, batch.position))

    # -- committing ---------------------------------------------------------------------------

    def take(self) -> PendingEntries:
        """All that is not in LMDB, for one `commit`, which must end before the next take."""
        if self._busy:
            raise Bug("the index is taken from while a commit runs")
        self._busy = True
        self._uncommitted = (*self._uncommitted, self._tail)
        self._tail = IndexTail()
        self.pending_bytes = 0
        return PendingEntries(self._uncommitted, Stamp(self._generation, self.end), self._sweep)

    def commit(self, pending: PendingEntries) -> None:
        """One synced transaction; when it fails everything stays in memory for the next one."""
        try:
            if self._stored is None or self.damaged:
                return  # `failed` says why
            self._stored.write(pending.tails, pending.stamp, pending.sweep)
            self._uncommitted = ()  # not before: a lookup reads memory first, then LMDB
            self.failed = ""
            files.note_opened(self._path, 1)
        except DamagedError as error:
            self._condemn(error)
        except StoredError as error:
            self.failed = str(error)
        finally:
            self._busy = False

    def forget_before(self, log_start: int) -> None:
        """Entries of batches before it are never given again; commits take them out of LMDB.

        Each commit takes out a bounded number: `forgetting` says whether there may be more. Entries
        left at the end of a process are removed when the next one sets its log start.
        """
        if log_start > self._log_start:
            self._log_start = log_start
            self._sweep = Sweep(log_start)

    @property
    def forgetting(self) -> bool:
        """True while commits, also of nothing new, have entries to take out."""
        usable = self._stored is not None and not self.damaged
        return usable and self._sweep is not None and not self._sweep.done

    def forget_later_generations(self, end_of: Callable[[int], int | None]) -> None:
        """Drops entries of positions that the log gave to other messages meanwhile.

        For an index that is older than the log, as one from a backup may be: `end_of` tells at
        which position a later generation than the one given begins.
        """
        end = end_of(self._generation)
        if end is not None and end < self.end:
            self.forget_after(end)

    def forget_after(self, position: int) -> None:
        """Drops entries at or above `position`, which the journal gave up, and lowers the stamp.

        If that fails the index begins empty, so look at `stamp` before adding.
        """
        if self._busy:
            raise Bug("the index forgets while a commit runs")
        for tail in (*self._uncommitted, self._tail):
            tail.forget_after(position)
        self.end = min(self.end, position)
        self._begin_block()
        try:
            if self._stored is not None:
                stamp = Stamp(self._generation, min(self.stamp.position, position))
                self._stored.forget_after(position, stamp)
            self._time = self._newest_time()
        except StoredError as error:
            self._begin_empty(str(error))

    def _newest_time(self) -> int | None:
        for tail in self._tails():
            if tail.times.last is not None:
                return tail.times.last
        newest = self._stored.newest(keys.TIME, _LAST_TIME) if self._stored is not None else None
        return keys.time_of(newest[0]) if newest else None

    # -- looking up ---------------------------------------------------------------------------

    def at_or_before(self, position: int) -> Hint | None:
        """The newest indexed batch that begins at or below `position`."""
        entries = (tail.positions.at_or_before(position) for tail in self._tails())
        return self._newest_of(entries, keys.POSITION, keys.position_key(position))

    def before_time(self, ns: int) -> Hint | None:
        """The newest indexed batch that is earlier than `ns`, as is all before it.

        Strictly earlier, so that a scan from there meets the first message of that time. None
        when none is earlier: the log is read from its beginning.
        """
        entries = (tail.times.at_or_before(ns - 1) for tail in self._tails())
        return self._newest_of(entries, keys.TIME, keys.time_key(ns - 1))

    def _newest_of(
        self, entries: Iterable[tuple[int, Hint] | None], prefix: bytes, key: bytes
    ) -> Hint | None:
        """The first of these entries in memory, or else the newest in LMDB up to `key`."""
        found = next((hint for _, hint in filter(None, entries)), None)
        if found is None:
            with suppress(StoredError):
                stored = self._newest(prefix, key)
                found = stored[1] if stored is not None else None
        return self._kept(found)

    def _kept(self, hint: Hint | None) -> Hint | None:
        """Nothing below the log start."""
        return hint if hint is None or hint.position >= self._log_start else None

    def before_bookmark(self, publisher: int, sequence: int) -> Hint | None:
        """A batch at or before the one with this sequence, if there is such a one."""
        return self._kept(self._before_bookmark(publisher, sequence))

    def _before_bookmark(self, publisher: int, sequence: int) -> Hint | None:
        best: tuple[int, Hint] | None = None
        for tail in self._tails():
            line = tail.runs.get(publisher)
            entry = line.at_or_before(sequence) if line is not None else None
            if entry is not None and (best is None or entry[0] > best[0]):
                best = entry
        try:
            stored = self._newest(keys.run_prefix(publisher), keys.run_key(publisher, sequence))
        except StoredError:
            return None
        if stored is not None and (best is None or keys.sequence_of(stored[0]) > best[0]):
            return stored[1]
        return best[1] if best is not None else None

    def _tails(self) -> tuple[IndexTail, ...]:
        """The entries in memory, newest first."""
        return (self._tail, *reversed(self._uncommitted))

    def _newest(self, prefix: bytes, key: bytes) -> tuple[bytes, Hint] | None:
        """What LMDB says. Remembers damage: the files are not believed again."""
        if self._stored is None:
            return None
        if self.damaged:
            raise StoredError(self.failed)
        try:
            return self._stored.newest(prefix, key)
        except StoredError as error:
            self._condemn(error)
            raise

    def _condemn(self, error: StoredError) -> None:
        self.failed, self.damaged = str(error), True
        files.note_opened(self._path, files.CRASHES_MAX)
