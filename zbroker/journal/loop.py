"""The journal process: the one writer of the log.

Purpose   takes record batches from the other processes, gives them positions, writes and syncs
          them in groups, sends receipts, publishes watermarks, keeps the bookmark index, answers
          look-ups; writes a state snapshot into each new segment; raises the log start and alone
          removes segments, when no reader needs them (zbroker.journal.retention).
Sockets   ROUTER ipc journal (hello, open, append, locate, holds; of queues: commit, ask_named; of
          the admin: holders, leases, remove, retire, reindex); XPUB ipc marks for watermarks.
Owns      <data>/journal (under a flock of its own), segments in <data>/archive, <data>/conflicts,
          <data>/journal.json, and <data>/index, which may be deleted.
Settings  [journal] directory, archive_directory, segment_size, preallocate, flush_interval,
          time, durability.
Exits     0 when asked to stop; 74 when the disk failed (nothing is acknowledged then; recovery
          decides at the next start), or when segments are missing; 78 when the directory is not
          this instance's. A full disk ends nothing: publishers are refused `disk_full` until there
          is space again, everything else goes on.
Weakness  the sync runs in this thread, so a slow disk delays beats and logons by one sync; after
          a sync of more than SLOW_SYNC_S a helper thread does it until syncs are fast again.
          Allocating a segment that was not prepared, and raising the log start, take a moment in
          this thread, too. Leases are forgotten with this process; the admin repeats them. A start
          on a full disk that has to begin a new segment fails until there is space for it.
"""

from __future__ import annotations

from typing import Final, get_args

from zbroker.engine import effects as e
from zbroker.engine.contract import Limit, Performers, Source, TurnPlan
from zbroker.engine.events import Gone
from zbroker.journal import effects as je
from zbroker.journal.background import Background
from zbroker.journal.events import GenerationBegun
from zbroker.journal.helper_threads import HelpersPort
from zbroker.journal.log_port import TimedLogPort
from zbroker.journal.ports import RequestsPort, WatermarksPort
from zbroker.journal.startup import open_journal
from zbroker.limits import MIB
from zbroker.log.disk import RealDisk
from zbroker.server.process import Process, Stats
from zbroker.server.process_loop import ONE, ProcessLoop

DRAIN: Final = Limit(1_000, 4 * MIB)  # messages of one turn; the rest waits for the next group
HELPERS: Final = 4  # threads: filling, the index, rebuilding it, conflicts


def run(process: Process) -> int:
    """Recovers the log, then serves until it is asked to stop."""
    return JournalLoop(process).run()


class JournalLoop(ProcessLoop):
    """Sockets, disk and helper threads of the journal process, and its plan."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        paths = process.paths
        self._disk = RealDisk(paths.journal)
        self._disk.lock()
        opened = self._opened = open_journal(process, self._disk, RealDisk(paths.archive))
        self._helpers = HelpersPort(self.poller)
        syncer = self._helpers.pool("sync", 1)
        self._background = Background(
            process, opened, self._helpers.pool("helper", HELPERS), self._helpers.pool("janitor", 1)
        )
        self._log = TimedLogPort(process, opened.writer, syncer)
        self._log.note = opened.note
        self._requests = RequestsPort(process.context, paths.ipc("journal"), self.poller)
        watermarks = WatermarksPort(process.context, paths.ipc("marks"), self.poller)
        sources: list[tuple[Source, Limit]] = [
            (watermarks, ONE),
            (self._requests, DRAIN),
            (self._helpers, ONE),
            (self.supervisor, ONE),
        ]
        performers: Performers = {
            **self._log.performers,
            **self._background.performers,
            e.Answer: self._requests.answer,
            je.PublishWatermarks: watermarks.publish,
            je.LocatePoint: self._locate,
            je.BeginGeneration: self._begin_generation,
        }
        self.begin(opened.core, TurnPlan(sources, get_args(je.Effect)), performers)

    def stats(self) -> Stats:
        """With those of the helper threads and of the disk."""
        now_ms = self.process.clock.mono_ms()
        return {**super().stats(), **self._background.stats(now_ms), **self._log.stats()}

    def close(self) -> None:
        """Ends helper threads, writes what the index has, and gives up the lock."""
        self._helpers.close()
        if self._opened.note is not None:
            self._opened.note.close()
        self._background.close()
        self._opened.log.close()
        self._disk.close()

    def _begin_generation(self, effect: je.BeginGeneration) -> GenerationBegun:
        begun = self._log.begin_generation(effect)
        if begun.serial:
            self._opened.index.set_generation(effect.generation)
        return begun

    def _locate(self, effect: je.LocatePoint) -> Gone | None:
        ask = effect.ask
        locator = self._opened.locator
        located = locator.locate(
            ask.cid, ask.value, effect.where, cut=ask.cut, end=ask.end, closed=ask.closed
        )
        return self._requests.answer(e.Answer(effect.rid, located))
