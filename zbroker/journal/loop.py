"""The journal process: the one writer of the log.

Purpose   takes record batches from the other rooms, gives them positions, writes and syncs them in
          groups, sends receipts, publishes marks, keeps the bookmark index, answers look-ups;
          writes a state snapshot into each new segment; raises the floor and alone removes
          segments, when no reader needs them (zbroker.journal.requests).
Sockets   ROUTER ipc journal (hello, open, append, locate, holds; of queues: commit, ask_named; of
          the admin: holders, leases, remove, retire, reindex); XPUB ipc marks.
Owns      <data>/journal (under a flock of its own), segments in <data>/archive, <data>/conflicts,
          <data>/journal.json, and <data>/index, which may be deleted.
Settings  [journal] directory, archive_directory, segment_size, preallocate, flush_interval,
          time, durability; [ingest] spin_us.
Exits     0 when told to stop; 74 when the disk failed (nothing is acknowledged then; recovery
          decides at the next start), or when segments are missing; 78 when the directory is not
          this instance's. A full disk ends nothing: publishers are refused `disk_full` until there
          is space again, everything else goes on.
Weakness  the sync runs in this thread, so a slow disk delays beats and logons by one sync; after
          a sync of more than SLOW_SYNC_S a helper thread does it until syncs are fast again.
          Allocating a segment that was not prepared, and raising the floor, take a moment in this
          thread, too. Leases are forgotten with this process; the admin says them again. A start on
          a full disk that has to begin a new segment fails until there is space for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import zmq

from zbroker import sockets
from zbroker.journal.background import Chores
from zbroker.journal.core import Body, Group, Send
from zbroker.journal.helper_threads import Helpers
from zbroker.journal.locate import Where
from zbroker.journal.requests import ASKS, Requests
from zbroker.journal.startup import open_journal
from zbroker.limits import BEAT_MS, MIB
from zbroker.log.disk import RealDisk
from zbroker.server.process import EX_OK, Process, Stats
from zbroker.wire import codec
from zbroker.wire.internal import Hello, Locate

SLOW_SYNC_S: Final = 0.02  # from here on a helper thread syncs, until syncs are fast again
DRAIN_BYTES: Final = 4 * MIB  # of one turn; the rest waits for the next group
DRAIN_MAX: Final = 1_000  # messages, likewise
SMALL_GROUP: Final = 4  # messages: who publishes one at a time waits for each ack
CHORES: Final = 4  # threads: filling, the index, making it anew, conflicts


def run(process: Process) -> int:
    """Recovers the log, then serves until told to stop."""
    room = JournalRoom(process)
    try:
        process.stats = room.stats()
        process.ready()
        while not process.stopping:
            room.turn()
    finally:
        room.close()
    return EX_OK


class JournalRoom:
    """Moves bytes between sockets, core, writer and index."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._disk = RealDisk(process.paths.journal)
        self._disk.lock()
        opened = open_journal(process, self._disk, RealDisk(process.paths.archive))
        self._opened = opened
        self.core, self._writer = opened.core, opened.writer
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._helpers = Helpers("chores", CHORES, self._woken)
        self._janitor = Helpers("janitor", 1, self._woken)
        self._chores = Chores(process, opened, self._helpers)
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._syncing: Future[int] | None = None
        self._pending: Group | None = None  # written, not synced
        self._written_s = self._sync_s = 0.0
        self._flush_s = process.config.journal.flush_interval / 1e6
        self._small = False
        self._spin_s = process.config.ingest.spin_us / 1e6
        self._groups = self._group_bytes = self._beat_ms = 0
        self._router = sockets.inner_router(process.context)
        self._router.bind(process.paths.ipc("journal"))
        self._marks = sockets.marks_publisher(process.context)
        self._marks.bind(process.paths.ipc("marks"))
        self._requests = Requests(
            process, opened, self._emit, self._janitor, self._chores.reindexing
        )
        self._handlers: dict[type, Callable[[bytes, Any], None]] = {
            Hello: self._hello,
            Locate: self._locate,
            **dict.fromkeys(ASKS, self._requests.handle),
        }
        self._poller = zmq.Poller()
        for readable in (self._router, self._marks, process.link, self._wake):
            self._poller.register(readable, zmq.POLLIN)

    def _woken(self) -> None:
        """From helper threads."""
        os.eventfd_write(self._wake, 1)

    # -- one turn -----------------------------------------------------------------------------

    def turn(self) -> None:
        """Receives all that waits, commits it in groups, answers; then beats and chores."""
        wait_ms = 0 if self.core.backlog and self._syncing is None else self._process.wait_ms()
        events = dict(self._wait(wait_ms))
        if self._marks in events:
            self._greet()
        if self._router in events:
            self._receive()
        if self._wake in events:
            self._finish()
        if self._syncing is None and self.core.backlog:
            self._commit()
        now_ms = self._process.clock.mono_ms()
        if now_ms >= self._beat_ms:
            self._beat_ms = now_ms + BEAT_MS
            self._beat(now_ms)
        if self._requests.due and self._syncing is None:
            self._requests.step(now_ms)
        self._process.turn()

    def _wait(self, wait_ms: int) -> list[tuple[object, int]]:
        """After a small group the next publish is looked for before sleeping, as ingest does."""
        if wait_ms and self._small and (events := sockets.spin(self._poller, self._spin_s)):
            return events
        return self._poller.poll(wait_ms)

    def _greet(self) -> None:
        """A new reader subscribed to the marks: it gets them at once."""
        while sockets.receive(self._marks) is not None:
            self._emit(self.core.marks())

    def _receive(self) -> None:
        taken = size = 0
        while taken < DRAIN_MAX and size < DRAIN_BYTES:
            received = sockets.receive_from(self._router, frames_max=0)
            if received is None:
                return
            rid, frames, _ = received
            message = codec.TO_JOURNAL.decode(frames[0].buffer)
            taken += 1
            handler = self._handlers.get(type(message))
            if handler is not None:
                handler(rid, message)
                continue
            bodies: list[Body] = [frame.buffer for frame in frames[1:]]
            size += sum(map(len, bodies))
            for send in self.core.receive(rid, message, bodies):
                self._emit(send)

    def _hello(self, rid: bytes, hello: Hello) -> None:
        self._requests.hello(hello.room)
        for send in self.core.receive(rid, hello, []):
            self._emit(send)

    def _locate(self, rid: bytes, ask: Locate) -> None:
        core = self.core
        where = Where(
            core.settings.instance, core.generation, core.floor, core.persisted, core.fenced
        )
        located = self._opened.locator.locate(ask.cid, ask.value, where, cut=ask.cut, end=ask.end)
        self._emit(Send(rid, located))

    def _finish(self) -> None:
        """A helper thread has done something."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        if self._syncing is not None and self._syncing.done():
            position, self._syncing = self._syncing.result(), None
            self._sync_done(position)
        self._helpers.finish()
        self._janitor.finish()

    # -- commit -------------------------------------------------------------------------------

    def _commit(self) -> None:
        core, writer, space = self.core, self._writer, self._chores.space
        core.accepting = space.admit(core.next_group_bytes(), self._process.clock.mono_ms())
        core.state_fits, core.room = space.state_fits, space.room
        group = core.group(self._process.clock.wall_ns())
        if group is None:
            self._announce()
            return
        self._written_s = time.perf_counter()
        writer.write(group.batches, group.log_time)
        if core.serial != writer.serial:
            core.serial = writer.serial
            core.want_state()
        core.written_to(group.end_position)
        if self._requests.floor.eager:
            self._emit(core.marks())
        self._groups += 1
        self._group_bytes += sum(batch.body_length for batch in group.batches)
        self._pending = group
        self._small = group.end_position - group.batches[0].position <= SMALL_GROUP
        self._chores.prepare()
        if self._sync_s > SLOW_SYNC_S:
            self._syncing = self._syncer.submit(self._sync)
            self._syncing.add_done_callback(lambda _: self._woken())
        else:
            self._sync_done(self._sync())

    def _sync(self) -> int:
        begun = time.perf_counter()
        position = self._writer.sync()
        self._sync_s = time.perf_counter() - begun
        return position

    def _sync_done(self, position: int) -> None:
        group, self._pending = self._pending, None
        assert group is not None
        assert position == group.end_position
        self._announce()
        took_s = time.perf_counter() - self._written_s
        if took_s > self._flush_s:
            self._chores.late(took_s)
        self._opened.index.add_all(group.batches, self._writer.serial)

    def _announce(self) -> None:
        """Receipts, logons and marks of everything that is durable now."""
        for send in self.core.synced(self._writer.synced):
            self._emit(send)

    def _emit(self, send: Send) -> None:
        header = codec.encode(send.message)
        if send.rid is None:
            self._marks.send(header, zmq.NOBLOCK)
        elif not sockets.send_to(self._router, send.rid, header):
            self.core.gone(send.rid)

    # -- beats --------------------------------------------------------------------------------

    def _beat(self, now_ms: int) -> None:
        space = self._chores.space
        for send in self.core.beat():
            self._emit(send)
        self._chores.beat(now_ms)
        self.core.accepting, self.core.state_fits = space.accepting, space.state_fits
        self._requests.due = True
        self._process.stats = self.stats()

    def stats(self) -> Stats:
        """What `status` shows of the journal."""
        return {
            **self._chores.stats(self._process.clock.mono_ms()),
            "groups": self._groups,
            "bytes_written": self._group_bytes,
            "sync_ms": round(self._sync_s * 1_000, 3),
            "removing": len(self._requests.floor.going),
        }

    def close(self) -> None:
        """Ends chores, writes what the index has, and gives up the lock."""
        self._syncer.shutdown(wait=True)
        self._janitor.close()
        self._helpers.close()
        self._chores.close()
        self._opened.log.close()
        self._disk.close()
        self._process.close()
        os.close(self._wake)
