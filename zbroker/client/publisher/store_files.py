"""The files of a publish store in a directory, and what an earlier process left in them.

    client                 who publishes from here
    0000000007.journal     segments of the journal's own format, with the batches as they are sent
    acked-through          of the segments, as in every journal
    boot                   which run of the machine wrote here last
    settled                two slots, written in turn: up to where the broker has everything
    staged-...             messages that are not packed yet: mapped_queue.py

A position in these segments is the number of a message in the store. Without `sync` nothing is
synced: a file survives the death of its writer, not that of the machine; after that the newest of
it may be gone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from operator import attrgetter
from pathlib import Path
from typing import Final, cast

from msgspec.structs import replace

from zbroker.checksums import crc32c
from zbroker.client.publisher import packer
from zbroker.errors import StorageError, ZBrokerError
from zbroker.limits import MIB
from zbroker.log.disk import Disk, RealDisk
from zbroker.log.format import (
    DATA_AT,
    GROUP_LENGTH,
    Batch,
    ParseStop,
    SegmentHeader,
    decode_batch_header,
    pad,
)
from zbroker.log.scan import ScannedGroup, SegmentScan
from zbroker.log.segments import (
    NOTE_FILE,
    NOTE_FILE_BYTES,
    PLAIN,
    discard,
    list_segments,
    publish,
    random_salt,
    read_header,
    segment_name,
)
from zbroker.log.writer import LogTail

SEGMENT_BYTES: Final = 4 * MIB
CLIENT: Final = "client"
BOOT: Final = "boot"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
SETTLED: Final = "settled"
SLOTS: Final = (0, 512)
#: magic, version, -, counter, recorded, settled, next sequence, crc
_NOTE: Final = struct.Struct("<4sHHQQQQI")
_MAGIC: Final = b"zbPS"


class CacheDisk(RealDisk):
    """A directory whose files only have to survive this process: the page cache does."""

    def sync(self, name: str) -> None:
        """Nothing: see above."""

    def sync_dir(self) -> None:
        """Nothing: see above."""


@dataclass
class StoreNote:
    """recorded: highest sequence that is durable in the log. settled: up to it nothing is owed."""

    counter: int = 0
    recorded: int = 0
    settled: int = 0
    next_sequence: int = 0

    def write(self, disk: Disk) -> None:
        """To the other slot than last time."""
        self.counter += 1
        head = _NOTE.pack(
            _MAGIC, 1, 0, self.counter, self.recorded, self.settled, self.next_sequence, 0
        )[:-4]
        slot = head + crc32c(head).to_bytes(4, "little")
        disk.write(SETTLED, SLOTS[self.counter % 2], [slot])


@dataclass
class FoundBatches:
    """The contents of the files: where they go on, and what the broker may not have."""

    tail: LogTail
    note: StoreNote
    batches: list[packer.PackedBatch] = field(default_factory=list)
    last: int = 0  # highest sequence in any batch
    serials: list[int] = field(default_factory=list)
    rebooted: bool = False  # the machine was started since: the newest of it may be missing


def open_files(disk: Disk, client: str, publisher: int) -> FoundBatches:
    """Raises: ZBrokerError store_in_use, bad_field; StorageError store_damaged, disk_full, ..."""
    try:
        disk.lock()
    except StorageError as error:
        raise ZBrokerError("store_in_use", error.reason, "each client needs its own") from None
    _check_client(disk, client)
    note = _read_note(disk)
    if not disk.exists(NOTE_FILE):
        disk.create(NOTE_FILE, NOTE_FILE_BYTES)  # the journal's writer keeps one
    rebooted = _check_boot(disk)
    segments = list_segments(disk)
    if not segments:
        return FoundBatches(_first_segment(disk, publisher), note, serials=[1], rebooted=rebooted)
    walk = _StoreWalk(disk, note.settled)
    for serial, size in segments:
        walk.segment(serial, size)
    assert walk.tail is not None, "there are segments"
    serials = [serial for serial, _ in segments]
    return FoundBatches(walk.tail, note, walk.batches, walk.last, serials, rebooted)


def load(disk: Disk, batch: packer.PackedBatch) -> packer.PackedBatch:
    """A batch with the body and columns from its file. Raises: StorageError."""
    assert batch.place is not None
    serial, offset, length = batch.place
    data = disk.read(segment_name(serial), offset, length)
    header = read_header(disk, serial)
    seed = header.seed if isinstance(header, SegmentHeader) else 0
    found = decode_batch_header(data, 0, offset, seed)
    body = b"" if isinstance(found, ParseStop) else data[found.header_length :][: batch.size]
    if isinstance(found, ParseStop) or crc32c(body) != batch.crc:
        raise damaged(f"the batch from sequence {batch.first} on")
    return replace(batch, body=body, columns=found.columns)


def damaged(what: str) -> StorageError:
    """Messages that the broker lacks cannot be read any more."""
    return StorageError(
        "store_damaged",
        f"{what} in the publish store cannot be read",
        "move the directory away to publish again; as the folder `journal` of a data directory "
        "`zbroker-admin --data-dir DIRECTORY journal dump` shows what it has",
    )


def _check_client(disk: Disk, client: str) -> None:
    if not disk.exists(CLIENT):
        discard(disk, CLIENT + ".new")
        disk.create(CLIENT + ".new")
        disk.write(CLIENT + ".new", 0, [client.encode()])
        disk.rename(CLIENT + ".new", CLIENT)
        return
    known = disk.read(CLIENT, 0, 4_096).decode(errors="replace")
    if known != client:
        raise ZBrokerError(
            "bad_field", f"the publish store belongs to the client {known!r}, not {client!r}",
            "give each client a directory of its own",
        )  # fmt: skip


def _check_boot(disk: Disk) -> bool:
    """Whether the machine was started since the store was open."""
    boot = BOOT_ID.read_bytes().strip()
    if disk.exists(BOOT):
        known = disk.read(BOOT, 0, 100)
        boot = boot.ljust(len(known))  # in place: on a full disk there is no other
        if known == boot:
            return False
    else:
        disk.create(BOOT)
    disk.write(BOOT, 0, [boot])
    return True


def _read_note(disk: Disk) -> StoreNote:
    if not disk.exists(SETTLED):
        disk.create(SETTLED, SLOTS[-1] + 512)
        return StoreNote()
    newest = StoreNote()
    for at in SLOTS:
        slot = disk.read(SETTLED, at, _NOTE.size)
        if len(slot) == _NOTE.size:
            magic, version, _, *values, crc = _NOTE.unpack(slot)
            good = magic == _MAGIC and version == 1 and crc32c(slot[:-4]) == crc
            note = StoreNote(*values) if good else newest
            newest = max(newest, note, key=attrgetter("counter"))
    return newest


def _first_segment(disk: Disk, publisher: int) -> LogTail:
    discard(disk, PLAIN)
    disk.create(PLAIN, SEGMENT_BYTES)
    header = SegmentHeader(publisher & 0xFFFFFFFF, 1, 1, 1, 0, 0, random_salt(), 0, SEGMENT_BYTES)
    publish(disk, PLAIN, header)
    return LogTail(header, DATA_AT, 1, 0, 0)


class _StoreWalk:
    """Over all segments, oldest first."""

    def __init__(self, disk: Disk, settled: int) -> None:
        self.batches: list[packer.PackedBatch] = []
        self.last = 0
        self.tail: LogTail | None = None
        self._disk = disk
        self._settled = settled
        # bytes of the next segment that an earlier process allocated; 0 if it has not enough
        size = dict(disk.list()).get(PLAIN, 0)
        self._allocated = size if size >= SEGMENT_BYTES else 0

    def segment(self, serial: int, size: int) -> None:
        """Its good groups; the rest was not written whole, and does not count."""
        header = read_header(self._disk, serial)
        if isinstance(header, ParseStop):
            raise damaged(f"segment {serial}")
        if self.tail is not None and header.first_position != self.tail.position:
            raise damaged(f"message {self.tail.position}")
        end, position, crc = DATA_AT, header.first_position, 0
        for item in _whole_groups(SegmentScan(self._disk, header, size)):
            self._group(item, header)
            group = item.header
            end, crc = group.offset + group.length, group.crc
            position = group.first_position + group.positions
        self.tail = LogTail(header, end, position, crc, 0, allocated=self._allocated)

    def _group(self, group: ScannedGroup, header: SegmentHeader) -> None:
        at = group.header.offset + GROUP_LENGTH
        name, end = segment_name(header.serial), group.header.offset + group.header.length
        bad = {batch.offset for batch in group.bad}
        while at < end:
            data = self._disk.read(name, at, end - at)
            batch = decode_batch_header(data, 0, at, header.seed)
            if isinstance(batch, ParseStop):
                raise damaged(f"message {group.header.first_position}")
            self._batch(batch, header.serial, unreadable=at in bad)
            at += batch.header_length + pad(batch.body_length)

    def _batch(self, batch: Batch, serial: int, *, unreadable: bool) -> None:
        self.last = batch.sequence + batch.count - 1
        if self.last <= self._settled:
            return
        if unreadable:
            raise damaged(f"the batch from sequence {batch.sequence} on")
        self.batches.append(kept(batch, serial))


def _whole_groups(scan: SegmentScan) -> Iterator[ScannedGroup]:
    """The groups of a segment; not a last one whose body was not written whole."""
    last: ScannedGroup | None = None
    for item in takewhile(lambda item: isinstance(item, ScannedGroup), scan.items()):
        if last is not None:
            yield last
        last = cast(ScannedGroup, item)
    if last is not None and not last.bad:
        yield last


def kept(batch: Batch, serial: int) -> packer.PackedBatch:
    """The entry of a batch whose body is in a file."""
    topics = batch.topics
    return packer.PackedBatch(
        batch.count, b"", batch.body_crc, topics[0] if len(topics) == 1 else None,
        topics if len(topics) > 1 else None, None, batch.sequence,
        batch.sequence + batch.count - 1, batch.prev, 0, batch.body_length,
        (serial, batch.offset, batch.header_length + pad(batch.body_length)),
    )  # fmt: skip
