"""The journal's work besides its log: the next segment, the index, conflicts, removal of files.

Most of it runs in helper threads and ends as an event; no acknowledgement waits for it. A failure
to make the next segment is a failure of the disk: it ends this process.

A rebuild of the bookmark index reads the log in a helper thread while the old index serves, then
takes its place between two commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from zbroker import known_log
from zbroker.bookmarks.rebuild import Rebuild, batches_of
from zbroker.errors import StorageError, ZBrokerError
from zbroker.ids import Origin
from zbroker.journal import effects as je
from zbroker.journal import events as ev
from zbroker.journal.conflicts import Conflicts
from zbroker.journal.effects import RebuildIndex
from zbroker.journal.events import IndexRebuilt
from zbroker.journal.helper_threads import Helpers
from zbroker.journal.segment_removal import remove_through, retire
from zbroker.journal.startup import OpenJournal
from zbroker.limits import MIB
from zbroker.log.inventory import RecoveryFinding
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Log
from zbroker.server.process import Process, Stats
from zbroker.wire.internal import Done

INDEX_COMMIT_BYTES: Final = 32 * MIB  # log bytes per LMDB transaction; lost entries are rebuilt
FILL_PAUSE_S: Final = 0.005  # between steps of filling ahead of time: syncs go first
FINDINGS_REPORTED: Final = 10  # of a start, in the statistics; all are in the log
FINDING_CHARS: Final = 200
COUNT_MS: Final = 5_000  # between two looks into the directories
SHARE: Final = 0.5  # of the time of one core: publishers and readers go first
ROUNDS_MAX: Final = 10  # of catching up in the helper; the rest is little, and read at once


class Background:
    """Performs the background effects of one open journal. `performers`: by type of effect."""

    def __init__(
        self, process: Process, opened: OpenJournal, helpers: Helpers, janitor: Helpers
    ) -> None:
        """helpers: several threads. janitor: one, which removes files."""
        self._process, self._opened = process, opened
        self._helpers, self._janitor = helpers, janitor
        self._running: set[str] = set()
        self._conflicts = Conflicts(process.paths.conflicts)
        self._reindexing = Reindexing(process, opened, helpers)
        self._places = SegmentPlaces(opened.disk, opened.archive)  # for the janitor alone
        self._segments = self._bytes = self._oldest = 0
        self._counted_serial = self._count_ms = 0
        self._noted_serial = 0
        self.performers: dict[type, Callable[[Any], Any]] = {
            je.IndexGroup: self.committed,
            je.Maintain: self.maintain,
            je.KeepConflicts: self.keep_conflicts,
            je.MeasureSegments: self.measure,
            je.Unlink: self.unlink,
            je.ForgetRemoved: self.forget_removed,
            je.RetireCopy: self.retire,
            je.RebuildIndex: self._reindexing.begin,
        }

    # -- the next segment ---------------------------------------------------------------------

    def committed(self, effect: je.IndexGroup) -> None:
        """What no receipt waits for."""
        self._opened.index.add_all(effect.batches, effect.serial)
        self.prepare()

    def prepare(self) -> None:
        """Has a helper thread fill the next segment with zeros, if it is time."""
        if "filling" not in self._running and self._opened.writer.wants_preparing:
            self._begin("filling", self._fill)

    def _begin(self, name: str, work: Callable[[], None]) -> None:
        """Has a helper thread do this work; the caller begins one of each name at a time."""
        self._running.add(name)
        self._helpers.submit(work, lambda _: self._running.discard(name))

    def _fill(self) -> None:
        writer = self._opened.writer
        while not self._process.stopping and writer.prepare_step():
            if not writer.must_hurry:
                time.sleep(FILL_PAUSE_S)

    # -- beats --------------------------------------------------------------------------------

    def maintain(self, _effect: je.Maintain) -> ev.IndexRebuilt | None:
        """Raises: StorageError."""
        idle = "indexing" not in self._running
        ended = self._reindexing.finish() if idle else None
        index = self._opened.index
        if idle and (index.forgetting or index.pending_bytes >= INDEX_COMMIT_BYTES):
            self._begin("indexing", partial(index.commit, index.take()))
        self._note()
        self.prepare()
        return ended

    def _note(self) -> None:
        """Keeps beside the log how far it is, at the start and with each new segment."""
        serial = self._opened.writer.serial
        if "noting" not in self._running and serial != self._noted_serial:
            self._noted_serial = serial
            core = self._opened.core
            self._begin("noting", partial(self._write_note, core.origin, core.persisted))

    def _write_note(self, origin: Origin, position: int) -> None:
        """Best effort: a log that vanishes is found out by the index as well, if that is there."""
        try:
            known_log.write(self._process.paths.data, origin, position)
        except OSError as error:
            self._process.log.warning("journal.not_noted: %s; nothing depends on it now", error)

    def keep_conflicts(self, effect: je.KeepConflicts) -> None:
        """Writes them to a file for people."""
        done = lambda _: ev.ConflictsKept(self._conflicts.failed)  # noqa: E731
        self._helpers.submit(partial(self._conflicts.keep, effect.conflicts), done)

    # -- removal ------------------------------------------------------------------------------

    def measure(self, effect: je.MeasureSegments) -> ev.SegmentsMeasured:
        """As many as can be read; sizes of all copies together."""
        log = self._opened.log
        log.refresh()
        sizes = {
            serial: sum(place.file_bytes for place in copies)
            for serial, copies in log.places.by_serial().items()
        }
        found = [
            ev.SegmentSize(start.serial, start.position, sizes.get(start.serial, 0))
            for start in log.starts
        ]
        return ev.SegmentsMeasured(effect.rid, effect.ask, found)

    def unlink(self, effect: je.Unlink) -> None:
        """Begins; one thread does it, so one after the other."""
        through = effect.through
        work = partial(remove_through, self._places, through)
        self._janitor.submit(work, lambda freed: ev.Unlinked(through, freed), _not_unlinked)

    def forget_removed(self, effect: je.ForgetRemoved) -> None:
        """What the index knows of removed segments goes with its next commits."""
        self._opened.log.refresh()
        self._opened.index.forget_before(effect.log_start)

    def retire(self, effect: je.RetireCopy) -> None:
        """Begins, likewise."""
        rid, cid = effect.rid, effect.ask.cid

        def refused(error: Exception) -> ev.CopyRetired:
            if not isinstance(error, ZBrokerError):
                raise error
            return ev.CopyRetired(rid, Done(cid, code=error.code, reason=error.reason))

        work = partial(retire, self._places, effect.ask, effect.open_serial)
        self._janitor.submit(work, lambda _: ev.CopyRetired(rid, Done(cid)), refused)

    # -- statistics ---------------------------------------------------------------------------

    def stats(self, now_ms: int) -> Stats:
        """What `status` and the alarms know of the files."""
        opened = self._opened
        if opened.writer.serial != self._counted_serial or now_ms >= self._count_ms:
            self._count(now_ms)
        return {
            "segments": self._segments,
            "bytes": self._bytes,
            "oldest": self._oldest,
            "findings": len(opened.findings),
            "damage": sum(1 for finding in opened.findings if finding.end > finding.first),
            "finding_texts": _text_of(opened.findings),
            "conflicts_kept": self._conflicts.kept,
            "index_failed": opened.index.failed,
        }

    def _count(self, now_ms: int) -> None:
        """Looks into the directories; not on each beat, since a log may have many segments."""
        copies = self._opened.log.places.by_serial()
        self._segments = len(copies)
        self._bytes = sum(place.file_bytes for found in copies.values() for place in found)
        self._oldest = min(copies, default=0)
        self._counted_serial, self._count_ms = self._opened.writer.serial, now_ms + COUNT_MS

    def close(self) -> None:
        """Writes what the index has, and how far the log is; helper threads have ended."""
        self._write_note(self._opened.core.origin, self._opened.writer.synced)
        index = self._opened.index
        if "indexing" not in self._running:
            index.commit(index.take())
        index.close()


def _not_unlinked(error: Exception) -> ev.NotUnlinked:
    if not isinstance(error, StorageError):
        raise error
    return ev.NotUnlinked(str(error))


def _text_of(findings: list[RecoveryFinding]) -> str:
    texts = [f"{one.code}: {one.means}"[:FINDING_CHARS] for one in findings[:FINDINGS_REPORTED]]
    more = len(findings) - len(texts)
    return "; ".join(texts) + (f"; and {more} more, see the log" if more > 0 else "")


class Reindexing:
    """One rebuild at a time; `finish` swaps, when no commit of the old index runs."""

    def __init__(self, process: Process, opened: OpenJournal, helpers: Helpers) -> None:
        self._process = process
        self._opened = opened
        self._helpers = helpers
        self._asked: RebuildIndex | None = None
        self._ready: Rebuild | None = None
        self._log: Log | None = None  # in one thread after the other

    def begin(self, asked: RebuildIndex) -> None:
        """Begins; the core asks for one at a time."""
        self._asked = asked
        self._helpers.submit(self._read, self._read_all, self._end)

    def _read(self) -> Rebuild | None:
        """In the helper thread; None if the process is stopping."""
        process, core = self._process, self._opened.core
        paths, generation = process.paths, core.origin.generation
        self._log = log = Log(paths.journal, paths.archive)
        rebuild = Rebuild(paths.index, paths.instance, generation, batches_of(log), share=SHARE)
        for _ in range(ROUNDS_MAX):
            until = core.persisted
            if not rebuild.run(until, lambda: process.stopping):
                rebuild.give_up()
                return None
            if core.persisted == until:
                break
        return rebuild

    def _read_all(self, rebuild: Rebuild | None) -> None:
        self._ready = rebuild

    def finish(self) -> IndexRebuilt | None:
        """Swaps, if it is time. Call it while no commit of the index runs."""
        rebuild, self._ready = self._ready, None
        if rebuild is None:
            return None
        opened = self._opened
        try:
            opened.use(rebuild.finish(opened.core.persisted, opened.index))
        except StorageError as error:
            return self._end(error)
        self._process.log.info(
            "journal.reindexed: the bookmark index was rebuilt from %(batches)d batches",
            {"batches": rebuild.batches},
        )
        self._helpers.submit(rebuild.remove_old, lambda _: self._end(None))
        return None

    def _end(self, error: Exception | None) -> IndexRebuilt:
        asked, self._asked = self._asked, None
        assert asked is not None
        if self._log is not None:
            self._log.close()
        if isinstance(error, ZBrokerError):
            return IndexRebuilt(asked.rid, Done(asked.cid, code=error.code, reason=error.reason))
        if error is not None:
            raise error
        return IndexRebuilt(asked.rid, Done(asked.cid))
