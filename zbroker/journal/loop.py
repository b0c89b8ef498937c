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
          time, durability; [ingest] spin_us.
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

from collections.abc import Callable
from typing import Any, Final, get_args

import zmq

from zbroker.engine import effects as e
from zbroker.engine.contract import Limit, Now, TurnPlan
from zbroker.engine.events import Gone
from zbroker.engine.turn import Turn
from zbroker.journal import effects as je
from zbroker.journal.background import Background
from zbroker.journal.helper_threads import HelpersPort
from zbroker.journal.log_port import TimedLogPort
from zbroker.journal.ports import RequestsPort, WatermarksPort
from zbroker.journal.startup import open_journal
from zbroker.limits import MIB
from zbroker.log.disk import RealDisk
from zbroker.server.ports import ONE, PollPort, SupervisorPort
from zbroker.server.process import EX_OK, Process, Stats

DRAIN: Final = Limit(1_000, 4 * MIB)  # messages of one turn; the rest waits for the next group
HELPERS: Final = 4  # threads: filling, the index, rebuilding it, conflicts


def run(process: Process) -> int:
    """Recovers the log, then serves until it is asked to stop."""
    loop = JournalLoop(process)
    try:
        while not loop.done:
            loop.turn()
    finally:
        loop.close()
    return EX_OK


class JournalLoop:
    """Sockets, disk and helper threads of the journal process, and its plan."""

    def __init__(self, process: Process) -> None:
        self._process, poller = process, zmq.Poller()
        clock, paths, self._poll = process.clock, process.paths, PollPort(poller)
        self._disk = RealDisk(paths.journal)
        self._disk.lock()
        opened = self._opened = open_journal(process, self._disk, RealDisk(paths.archive))
        self._helpers = HelpersPort(poller)
        syncer = self._helpers.pool("sync", 1)
        self._background = Background(
            process, opened, self._helpers.pool("helper", HELPERS), self._helpers.pool("janitor", 1)
        )
        self._log = TimedLogPort(process, opened.writer, syncer)
        self._requests = RequestsPort(process.context, paths.ipc("journal"), poller)
        self._watermarks = WatermarksPort(process.context, paths.ipc("marks"), poller)
        self._supervisor = SupervisorPort(process, poller, self._stats)
        self._turn: Turn[Any, Any] = Turn(
            opened.core, self._plan(), self._performers(),
            lambda: Now(clock.mono_ms(), clock.wall_ns()),
        )  # fmt: skip
        self._wait_ms: int | None = 0
        self.done = False

    def _plan(self) -> TurnPlan:
        sources: list[tuple[Any, Limit]] = [
            (self._watermarks, ONE),
            (self._requests, DRAIN),
            (self._helpers, ONE),
            (self._supervisor, ONE),
        ]
        return TurnPlan(sources, get_args(je.Effect))

    def _performers(self) -> dict[type, Callable[[Any], Any]]:
        return {
            **self._log.performers,
            **self._background.performers,
            e.Answer: self._requests.answer,
            je.PublishWatermarks: self._watermarks.publish,
            je.LocatePoint: self._locate,
            e.Pace: self._poll.pace,
            e.Note: self._supervisor.note,
            e.Ready: self._ready,
            e.Exit: self._exit,
        }

    def turn(self) -> None:
        """Waits for something, then does one turn."""
        self._wait_ms = self._turn.run(self._poll.wait(self._wait_ms))

    def _locate(self, effect: je.LocatePoint) -> Gone | None:
        ask = effect.ask
        locator = self._opened.locator
        located = locator.locate(ask.cid, ask.value, effect.where, cut=ask.cut, end=ask.end)
        return self._requests.answer(e.Answer(effect.rid, located))

    def _stats(self) -> Stats:
        now_ms = self._process.clock.mono_ms()
        return {
            **self._opened.core.stats(), **self._background.stats(now_ms), **self._log.stats(),
        }  # fmt: skip

    def _ready(self, _effect: e.Ready) -> None:
        self._process.stats = self._stats()
        self._process.ready()

    def _exit(self, _effect: e.Exit) -> None:
        self.done = True

    def close(self) -> None:
        """Ends helper threads, writes what the index has, and gives up the lock."""
        self._helpers.close()
        self._background.close()
        self._opened.log.close()
        self._disk.close()
        self._process.close()
