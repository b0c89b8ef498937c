"""Doing one thing to one segment: a whole new copy first, then the journal lets go of the old one.

    archive   copy into the archive directory -> Retire what is in the journal directory
    compress  packed file beside the raw one  -> Retire the raw ones

Either may be done again at any time: a copy that is already whole is found to be so. A crash leaves
an unfinished file (thrown away at the next start) or two whole copies (finished then). Only the
journal unlinks segments, so nothing here can lose one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing, suppress
from threading import Event
from typing import Final, Literal

from msgspec.structs import asdict, replace

from zbroker.admin.history import HistoryEntry, JobProgress
from zbroker.admin.journal_link import AdminJournalLink, Answer
from zbroker.admin.requests import RemovalQuery
from zbroker.admin.survey import Catalog, Survey, Tools, on_one_disk
from zbroker.errors import ClientError, StorageError
from zbroker.limits import MIB
from zbroker.log import archive
from zbroker.log.disk import RealDisk
from zbroker.log.places import SegmentPlace, SegmentPlaces
from zbroker.log.reader import Log
from zbroker.paths import Paths
from zbroker.wire import internal as m

#: of a segment; each byte is written, compared and checked, so thrice that for the disk. On a busy
#: machine with two cores compressing at 32 MiB/s doubled the p99 of publishing, 16 did nearly, 8
#: added a third; it is the syncs, not the CPU, so a lower priority changes nothing
PACE_BYTES_S: Final = 8 * MIB  # while messages are published
PACE_IDLE_BYTES_S: Final = 256 * MIB  # while none are
PACE_LOOK_S: Final = 1.0  # so long it takes to notice a change
SUMMARIES_MAX_S: Final = 2.0  # of one evaluation; a log that never had any is planned for, too

Rewrite = Literal["archive", "compress"]
Tell = Callable[[int], None]  # bytes of the segment that are done


class JobStopped(Exception):
    """The work was given up half way; nothing of it is left."""


class Jobs:
    """For the worker's thread. segment_bytes: what the journal's next file takes."""

    def __init__(
        self, paths: Paths, link: AdminJournalLink, stop: Event, segment_bytes: int
    ) -> None:
        self._paths = paths
        self._link = link
        self._stop = stop
        self._segment_bytes = segment_bytes

    def _open(self) -> SegmentPlaces:
        """Both directories, for new files; opened for each job, so that no file is kept open."""
        paths = self._paths
        return SegmentPlaces(RealDisk(paths.journal), RealDisk(paths.archive), paths.instance)

    def tidy(self) -> int:
        """Throws away unfinished files; how many there were. Raises: StorageError."""
        with closing(self._open()) as places:
            return len(archive.tidy(places))

    def summarize(self, catalog: Catalog, until: Callable[[], bool]) -> bool:
        """Makes summaries that are missing, the oldest first, for SUMMARIES_MAX_S or `until`.

        Returns: True if none is missing any more. Raises: StorageError.
        """
        begun = time.monotonic()
        missing = [row.serial for row in catalog.rows() if not row.is_open and not row.summarized]
        if not missing:
            return True
        with closing(Log(places=self._open())) as log:
            for serial in missing:
                if until() or time.monotonic() - begun > SUMMARIES_MAX_S:
                    return False
                with suppress(StorageError):  # without one its age is that of the next segment
                    catalog.learn(serial, archive.summary(log, serial, keep=True))
        return True

    def rewrite(self, action: Rewrite, serial: int, tell: Tell) -> None:
        """Archives or compresses one segment.

        Raises: Stopped, ZBrokerError (refused, differs, or the journal did not let go), OSError.
        """
        make = archive.copy if action == "archive" else archive.pack
        with closing(self._open()) as places:
            steps = make(places, serial, keep_free_bytes=self._keep_free(action))
            with closing(steps):  # gives up when it is not at its end
                made = self._run(steps, tell)
            copies = places.by_serial().get(serial, [])
        self._retire(copies, made.place)

    def _run(self, steps: archive.Steps, tell: Tell) -> archive.CopyResult:
        """Every step, at the pace: processes that serve clients go first."""
        pace, before = JobPace(self._link), 0
        while True:
            try:
                done = next(steps)
            except StopIteration as stop:
                made: archive.CopyResult = stop.value
                return made
            tell(done)
            wait_s, before = pace.wait_s(done - before), done
            if self._stop.wait(wait_s):
                raise JobStopped

    def _keep_free(self, action: Rewrite) -> int:
        """The journal's next file must find its space, and what is written meanwhile."""
        paths = self._paths
        shared = action == "compress" or on_one_disk(paths.journal, paths.archive)
        return 2 * self._segment_bytes if shared else 0

    def _retire(self, copies: list[SegmentPlace], made: SegmentPlace) -> None:
        """Asks the journal to unlink every copy that the new one replaces."""
        assert made in copies, "the new copy is there before an old one goes"
        for old in copies:
            if old.archived < made.archived or old.packed < made.packed:
                done = self._link.ask(
                    m.Done, m.Retire, serial=old.serial, archived=old.archived, packed=old.packed
                )
                if done.code:
                    raise ClientError(done.code, done.reason)


class JobPace:
    """How fast one piece of work may go on: slowly while the log grows."""

    def __init__(self, link: AdminJournalLink) -> None:
        self._link = link
        self._persisted = self._look()
        self._looked_s = self._due_s = time.monotonic()
        self._busy = True

    def wait_s(self, done_bytes: int) -> float:
        """How long to wait after a step of so many bytes."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= PACE_LOOK_S:
            before, self._persisted = self._persisted, self._look()
            self._busy = self._persisted != before
            self._looked_s = now_s
        pace = PACE_BYTES_S if self._busy else PACE_IDLE_BYTES_S
        self._due_s = max(self._due_s, now_s - PACE_LOOK_S) + done_bytes / pace
        return max(0.0, self._due_s - now_s)

    def _look(self) -> int:
        """The end of the log, -1 while the journal does not say."""
        try:
            return self._link.ask(m.Holders, m.AskHolders).persisted
        except ClientError:
            return -1


End = Callable[[HistoryEntry, str, str, float], None]  # entry, result, reason, seconds


class JournalActions:
    """Actions that the journal carries out: removals and reindexing.

    Any thread begins one; the thread of the worker follows it. A removal is done when its last file
    is gone, which may take as long as a reader has it open.
    """

    def __init__(self, tools: Tools, survey: Survey, end: End) -> None:
        self._tools = tools
        self._survey = survey
        self._end = end
        self._lock = threading.Lock()
        self._removals: list[HistoryEntry] = []
        self._indexing: list[tuple[HistoryEntry, Future[Answer], float]] = []

    @property
    def anything(self) -> bool:
        """True while something is under way."""
        return bool(self._removals or self._indexing)

    def entries(self) -> list[HistoryEntry]:
        """The actions under way."""
        with self._lock:
            return [*self._removals, *(entry for entry, _, _ in self._indexing)]

    def remove(
        self, entry: HistoryEntry, ask: RemovalQuery, share_max: int
    ) -> tuple[HistoryEntry | None, m.Removal]:
        """Asks the journal, when it knows all leases; what becomes of it is followed.

        Returns: None for the entry if nothing is removed. Raises: ClientError not_ready.
        """
        tools = self._tools
        sizes = {segment.serial: segment.bytes for segment in tools.catalog.segments()}
        tools.leases.secure(tools.link)
        removal = tools.link.ask(m.Removal, m.Remove, share_max=share_max, **asdict(ask))
        if ask.dry_run or not removal.serials:
            return None, removal
        entry = replace(
            entry,
            serials=removal.serials,
            bytes=sum(sizes.get(serial, 0) for serial in removal.serials),
            result="running",
            reason=removal.blocked,
            progress=JobProgress(0, len(removal.serials)),
        )
        with self._lock:
            entry = tools.history.new(entry)
            self._removals.append(entry)
        return entry, removal

    def adopt(self, entry: HistoryEntry) -> None:
        """A removal that was under way when the last process ended: the journal goes on with it."""
        with self._lock:
            self._removals.append(entry)

    def reindex(self, entry: HistoryEntry) -> HistoryEntry:
        """Asks for a new index, and returns at once."""
        with self._lock:
            entry = self._tools.history.new(replace(entry, result="running"))
            future = self._tools.link.send(m.Reindex)
            self._indexing.append((entry, future, time.monotonic()))
        return entry

    def look(self) -> bool:
        """Ends what is done; True if a removal was."""
        for item in [item for item in self._indexing if item[1].done()]:
            with self._lock:
                self._indexing.remove(item)
            self._indexed(*item)
        if not self._removals:
            return False
        try:
            left = set(self._survey.holders().removing)
            left |= {segment.serial for segment in self._tools.catalog.segments()}
        except (ClientError, StorageError):
            return False  # asked again in a moment
        gone = [self._gone(entry, left) for entry in list(self._removals)]
        return any(gone)

    def _gone(self, entry: HistoryEntry, left: set[int]) -> bool:
        waiting = sum(serial in left for serial in entry.serials)
        if waiting:
            total = len(entry.serials)
            self._tools.history.progress(entry.id, total - waiting, total)
            return False
        with self._lock:
            self._removals.remove(entry)
        self._end(entry, "done", entry.reason, 0.0)
        return True

    def _indexed(self, entry: HistoryEntry, future: Future[Answer], begun: float) -> None:
        took_s = time.monotonic() - begun
        error = future.exception()
        if error is not None:
            self._end(entry, "failed", getattr(error, "reason", str(error)), took_s)
            return
        answer = future.result()
        assert isinstance(answer, m.Done)
        self._end(entry, "failed" if answer.code else "done", answer.reason, took_s)
