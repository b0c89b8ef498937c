"""The journal process: the one writer of the log.

Purpose   takes record batches from the other rooms, gives them positions, writes and syncs them in
          groups, sends receipts, publishes marks, keeps the bookmark index, answers look-ups.
Sockets   ROUTER ipc journal (hello, open, append, locate); XPUB ipc marks.
Owns      <data>/journal (under a flock of its own) and <data>/index, which may be deleted.
Settings  [journal] segment_size, time, durability; [ingest] spin_us.
Exits     0 when told to stop; 74 when the disk failed (nothing is acknowledged then; recovery
          decides at the next start); 78 when the directory is not this instance's.
Weakness  the sync runs in this thread, so a slow disk delays beats and logons by one sync; after
          a sync of more than SLOW_SYNC_S a helper thread does it until syncs are fast again.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import zmq

from zbroker import sockets
from zbroker.bookmarks.index import Index
from zbroker.journal.core import Body, Group, JournalCore, Send, Settings
from zbroker.journal.disk import RealDisk
from zbroker.journal.fold import Fold
from zbroker.journal.locate import Locator, Where
from zbroker.journal.reader import Log
from zbroker.journal.recover import Recovered, recover
from zbroker.journal.writer import Writer
from zbroker.limits import BEAT_MS, MIB
from zbroker.process import EX_OK, Process
from zbroker.wire import codec
from zbroker.wire.internal import Append, Locate

SLOW_SYNC_S: Final = 0.02  # from here on a helper thread syncs, until syncs are fast again
INDEX_COMMIT_BYTES: Final = 32 * MIB  # log bytes per LMDB transaction; what is lost is rebuilt
DRAIN_BYTES: Final = 4 * MIB  # of one turn; the rest waits for the next group
DRAIN_MAX: Final = 1_000  # messages, likewise
SMALL_GROUP: Final = 4  # messages: who publishes one at a time waits for each ack
FILL_PAUSE_S: Final = 0.005  # between steps of filling ahead of time: syncs go first


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
        self._index = Index(process.paths.index, process.paths.instance, progress=process.progress)
        self._open_log()
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="journal")
        self._filling: Future[None] | None = None
        self._indexing: Future[None] | None = None
        self._syncing: Future[int] | None = None
        self._pending: Group | None = None  # written, not synced
        self._sync_s = 0.0
        self._small = False
        self._spin_s = process.config.ingest.spin_us / 1e6
        self._groups = self._group_bytes = self._beat_ms = 0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._router = sockets.inner_router(process.context)
        self._router.bind(process.paths.ipc("journal"))
        self._marks = sockets.marks_publisher(process.context)
        self._marks.bind(process.paths.ipc("marks"))
        self._poller = zmq.Poller()
        for readable in (self._router, self._marks, process.link, self._wake):
            self._poller.register(readable, zmq.POLLIN)

    def _open_log(self) -> None:
        """Recovery, the publisher table and what the index lacks, all in one pass over the log."""
        process, config = self._process, self._process.config.journal
        fold = Fold(self._disk, self._index, self._index.end)
        recovered = recover(
            self._disk,
            process.paths.instance,
            evidence=self._index.stamp,
            accept_loss=config.accept_tail_loss,
            on_batch=fold,
            progress=process.progress,
            segment_bytes=config.segment_size,
        )
        self._tell(recovered)
        self._index.set_generation(recovered.generation)
        if recovered.next_position < self._index.end:
            self._index.forget_after(recovered.next_position)
        settings = Settings(
            process.paths.instance,
            process.incarnation,
            config.durability,
            config.time == "publisher",
        )
        self.core = JournalCore(
            settings,
            fold.sessions,
            recovered.generation,
            recovered.next_position,
            recovered.last_log_time,
        )
        self._writer = Writer(self._disk, recovered.tail, segment_bytes=config.segment_size)
        self._log = Log(process.paths.journal)
        self.core.floor = recovered.floor
        self.core.serial = self._writer.serial
        self._locator = Locator(self._log, self._index, fold.sessions)

    def _tell(self, recovered: Recovered) -> None:
        log = self._process.log
        for finding in recovered.findings:
            log.warning("%s: %s; %s", finding.code, finding.means, finding.next)
        if self._index.found:
            log.warning("the bookmark index is made anew from the log: %s", self._index.found)

    # -- one turn -----------------------------------------------------------------------------

    def turn(self) -> None:
        """Receives all that waits, commits it in groups, answers; then beats and chores."""
        wait_ms = 0 if self.core.backlog and self._syncing is None else self._process.wait_ms()
        events = dict(self._wait(wait_ms))
        if self._marks in events:
            self._greet()
        if self._router in events:
            self._receive()
        if self._syncing is not None and self._syncing.done():
            os.eventfd_read(self._wake)
            position, self._syncing = self._syncing.result(), None
            self._sync_done(position)
        if self._syncing is None and self.core.backlog:
            self._commit()
        now_ms = self._process.clock.mono_ms()
        if now_ms >= self._beat_ms:
            self._beat_ms = now_ms + BEAT_MS
            self._beat()
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
            if isinstance(message, Locate):
                self._locate(rid, message)
                continue
            bodies: list[Body] = [frame.buffer for frame in frames[1:]]
            if isinstance(message, Append):
                size += sum(map(len, bodies))
            for send in self.core.receive(rid, message, bodies):
                self._emit(send)

    def _locate(self, rid: bytes, ask: Locate) -> None:
        core = self.core
        where = Where(core.settings.instance, core.generation, core.floor, core.persisted)
        self._emit(Send(rid, self._locator.locate(ask.cid, ask.value, where)))

    # -- commit -------------------------------------------------------------------------------

    def _commit(self) -> None:
        group = self.core.group(self._process.clock.wall_ns())
        if group is None:
            self._announce()
            return
        self._writer.write(group.batches, group.log_time)
        self.core.serial = self._writer.serial
        self.core.written_to(group.end_position)
        self._groups += 1
        self._group_bytes += sum(batch.body_length for batch in group.batches)
        self._pending = group
        self._small = group.end_position - group.batches[0].position <= SMALL_GROUP
        self._prepare()
        if self._sync_s > SLOW_SYNC_S:
            self._syncing = self._workers.submit(self._sync)
            self._syncing.add_done_callback(lambda _: os.eventfd_write(self._wake, 1))
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
        for batch in group.batches:
            self._index.add(batch, self._writer.serial)

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

    # -- beats and chores ---------------------------------------------------------------------

    def _beat(self) -> None:
        for send in self.core.beat():
            self._emit(send)
        for job in (self._filling, self._indexing):
            if job is not None and job.done():
                job.result()  # a failure of a chore is a failure of this process
        indexed = self._indexing is None or self._indexing.done()
        if indexed and self._index.pending_bytes >= INDEX_COMMIT_BYTES:
            self._indexing = self._workers.submit(self._index.commit, self._index.take())
        self._prepare()
        self._process.stats = self.stats()

    def _prepare(self) -> None:
        """Has a helper thread fill the next segment with zeros, if it is time."""
        idle = self._filling is None or self._filling.done()
        if idle and self._writer.wants_preparing:
            self._filling = self._workers.submit(self._fill)

    def _fill(self) -> None:
        while not self._process.stopping and self._writer.prepare_step():
            if not self._writer.behind:
                time.sleep(FILL_PAUSE_S)

    def stats(self) -> dict[str, int | float | str]:
        """What `status` shows of the journal."""
        core = self.core
        segments = [size for name, size in self._disk.list() if name.endswith(".journal")]
        return {
            "first_position": core.floor,
            "written": core.written,
            "persisted": core.persisted,
            "generation": core.generation,
            "segments": len(segments),
            "bytes": sum(segments),
            "durability": core.settings.durability,
            "messages": core.messages,
            "groups": self._groups,
            "bytes_written": self._group_bytes,
            "publishers": len(core.sessions),
            "duplicates": core.duplicates,
            "refused": core.refused,
            "conflicts": core.conflicts,
            "sync_ms": round(self._sync_s * 1_000, 3),
            "unprepared": self._writer.unprepared,
            "index_failed": self._index.failed,
        }

    def close(self) -> None:
        """Ends chores, writes what the index has, and gives up the lock."""
        self._workers.shutdown(wait=True)
        if self._indexing is None or self._indexing.exception() is None:
            self._index.commit(self._index.take())
        self._index.close()
        self._log.close()
        self._disk.close()
        self._process.close()
        os.close(self._wake)
