"""The publish store in a directory: a message is in it before `publish()` returns.

    put (mapped_queue.py) --> append: a batch, as it is sent --> popleft, when persisted
    a kill at any point: the next start finds the batches and the messages staged after them

With `sync` a power cut is survived, too: messages are synced where they are staged, and stay there
until the batches that have them are synced. Numbers are noted, and synced, before they can be lost.

Bodies are kept in memory, too, as long as they are few; a large store costs some 400 bytes per
batch. Files whose batches are all settled are removed, or used again.

The space of the next segment is taken before it is needed, and a settled segment becomes the next
one. So whatever else fills the disk (messages that are staged, too), an acknowledgement
makes room for later messages. To open a store that owes something takes no space either: messages
that were staged and have none stay staged until there is some.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path
from typing import Final, Literal

from zbroker import durable_files
from zbroker.client.publisher import mapped_queue, packer, store_files
from zbroker.client.publisher.mapped_queue import Staging
from zbroker.client.publisher.packer import PackedBatch
from zbroker.client.publisher.store import MemoryStore
from zbroker.client.publisher.store_files import CacheDisk
from zbroker.clock import Clock, SystemClock
from zbroker.errors import StorageError
from zbroker.ids import publisher_id
from zbroker.limits import KIB, MIB
from zbroker.log import format as log
from zbroker.log.disk import Disk, RealDisk, failed
from zbroker.log.segments import read_header, segment_name
from zbroker.log.writer import Writer

RESIDENT_BYTES: Final = 64 * MIB  # of bodies in memory: twice what may be under way
HEADERS_BYTES: Final = 80 * KIB  # of a batch with columns, and of its group


class FileStore(MemoryStore):
    """Batches of the client `client` in `directory`; one process at a time has it open."""

    def __init__(
        self,
        directory: str | PathLike[str],
        client: str,
        disk: Disk | None = None,
        clock: Clock | None = None,
        sync: Sync = None,
    ) -> None:
        """sync: what a power cut does not touch: None is nothing, "each" all that was put, a
        number of seconds all that was put so long ago.

        Raises: ZBrokerError store_in_use, bad_field; StorageError store_damaged, disk_full.
        """
        super().__init__()
        self._sync = sync
        self._directory = Path(fspath(directory))
        self._publisher = publisher_id(client)
        self._disk = disk or _disk(self._directory, durable=sync is not None)
        self._clock = clock or SystemClock()
        self._resident = 0
        self._syncing: Syncing | None = None
        try:
            self._open(client)
        except BaseException:
            self._disk.close()
            raise

    def _open(self, client: str) -> None:
        found = store_files.open_files(self._disk, client, self._publisher)
        self._note, self._serials = found.note, deque(found.serials)
        self.may_lag = found.rebooted
        self._writer = Writer(
            self._disk, found.tail, segment_bytes=store_files.SEGMENT_BYTES, files=0,
            clock=self._clock,
        )  # fmt: skip
        for batch in found.batches:
            super().append(batch)
        self.recorded = found.note.recorded
        self.next_sequence = max(found.note.next_sequence, found.last + 1 if found.last else 0)
        items = mapped_queue.leftover(self._directory, self._writer.position)
        if not found.tail.allocated:
            self._allocate_next(owed=bool(items or self.batches))
        self.leftover = items[self._adopt(items) :]
        self._make_durable()
        kept = mapped_queue.forget(self._directory, self._writer.position, len(self.leftover))
        end = self._writer.position + len(self.leftover)
        self.staging = Staging(self._directory, end, kept)
        self.staging.each = self._sync == "each"
        if isinstance(self._sync, float):
            self._syncing = Syncing(self.staging.sync, self._sync)

    def _make_durable(self) -> None:
        """All that is in files, and their names, before what was staged goes."""
        self._writer.sync()
        for name in (store_files.CLIENT, store_files.BOOT, store_files.SETTLED):
            self._disk.sync(name)
        self._disk.sync_dir()
        if self._sync is not None:
            durable_files.sync_directory(self._directory.parent)

    def _allocate_next(self, *, owed: bool) -> None:
        """Without space for it what is owed is sent all the same, which makes room.

        Raises: StorageError disk_full, if nothing is owed.
        """
        try:
            self._writer.allocate_next()
        except StorageError as error:
            if error.code != "disk_full" or not owed:
                raise

    def _adopt(self, items: list[mapped_queue.StagedMessage]) -> int:
        """Makes batches of what an earlier process staged, before new ones. Returns: how many.

        The rest found no space. It stays where it is, and is packed when the broker makes room.
        """
        adopted = 0
        for start in range(0, len(items), packer.BATCH_MESSAGES):
            part = items[start : start + packer.BATCH_MESSAGES]
            for run in packer.split(packer.rows(part)):
                batch = packer.pack(run)
                if not self.secure(batch.size):
                    return adopted
                batch.first, batch.prev = self.next_sequence, self.next_sequence - 1
                batch.last = batch.first + batch.count - 1
                self.append(batch)
                adopted += batch.count
        return adopted

    # -- as in memory -------------------------------------------------------------------------

    def load(self, index: int) -> PackedBatch:
        """Reads what is not in memory. Raises: StorageError store_damaged."""
        batch = self.batches[index]
        return batch if batch.body else store_files.load(self._disk, batch)

    def append(self, batch: PackedBatch) -> None:
        """Writes it down first. Raises: StorageError."""
        stored = log.Batch(
            log.KIND_PUBLISH, self._writer.position, self._publisher, 0, batch.first, batch.prev,
            batch.count, self._clock.wall_ns(),
            batch.topics if batch.topics is not None else [batch.topic or ""], batch.body,
            batch.crc, batch.size, columns=batch.columns,
        )  # fmt: skip
        self._writer.write([stored], stored.log_time)
        if self._writer.serial != self._serials[-1]:
            self._serials.append(self._writer.serial)
        entry = store_files.kept(stored, self._writer.serial)
        batch.place, entry.mandatory = entry.place, batch.mandatory
        super().append(batch if self._resident + batch.size <= RESIDENT_BYTES else entry)
        if self.staging is not None:
            if self.staging.frees(self._writer.position):
                self._writer.sync()
            self.staging.packed(self._writer.position)

    def begin(self, next_sequence: int) -> None:
        """Notes it before the first message: one that is staged then gets its number later."""
        if next_sequence > self.next_sequence:
            self._writer.sync()  # later messages would get other numbers in the next process
            self.next_sequence = self._note.next_sequence = next_sequence
            self._note.write(self._disk)
            self._disk.sync(store_files.SETTLED)

    def settled(self) -> None:
        """Notes how far the broker is, and removes files that are not needed any more."""
        through = self.batches[0].first - 1 if self.batches else self.next_sequence - 1
        note = self._note
        if (note.recorded, note.settled) == (self.recorded, through):
            return
        note.recorded, note.settled, note.next_sequence = self.recorded, through, self.next_sequence
        note.write(self._disk)
        place = self.batches[0].place if self.batches else None
        needed = place[0] if place else self._writer.serial
        if self._serials[0] < needed:
            self._disk.sync(store_files.SETTLED)  # it alone knows then which numbers were given
        while self._serials[0] < needed:
            self._give_up(self._serials.popleft())

    def _give_up(self, serial: int) -> None:
        header = read_header(self._disk, serial)
        if not isinstance(header, log.SegmentHeader) or not self._writer.reuse(serial, header.size):
            self._disk.unlink(segment_name(serial))
        self._disk.sync_dir()  # before the file is written to under another name

    def secure(self, size: int) -> bool:
        return self._writer.secure(size + HEADERS_BYTES)

    def close(self) -> None:
        if self._syncing is not None:
            self._syncing.close()
        if self.staging is not None:
            self.staging.close()
        self._disk.close()

    def _count(self, batch: PackedBatch, sign: int) -> None:
        super()._count(batch, sign)
        self._resident += sign * len(batch.body)


def _disk(directory: Path, *, durable: bool) -> RealDisk:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise failed("create", str(directory), error) from None
    if not directory.is_dir():
        raise StorageError("disk_error", f"{directory} is not a directory")
    return RealDisk(directory) if durable else CacheDisk(directory)


Sync = Literal["each"] | float | None  # before each put returns; every so many seconds; never

_log: Final = logging.getLogger("zbroker.client")


class Syncing:
    """A thread that syncs every so many seconds."""

    def __init__(self, sync: Callable[[], None], interval_s: float) -> None:
        self._sync = sync
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zbroker store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Syncs once more, and ends."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._interval_s):
                self._sync()
            self._sync()
        except StorageError as error:  # after it the result of a sync means nothing
            _log.error("client.store_not_synced: a power cut loses what is published: %s", error)
