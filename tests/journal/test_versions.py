"""Every kind of file says its format version, and none from the future is taken for damage.

What can be made (index, summaries) is made again; what only tells people something (conflicts)
is set aside whole; everything else is refused with a message that says what to do.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from tests.journal.build import INSTANCE, SEGMENT_BYTES, Clock, append, start, writer
from tests.log.build import finish
from zbroker.bookmarks import keys
from zbroker.bookmarks.index import Index, Stamp
from zbroker.checksums import crc32c
from zbroker.errors import StorageError
from zbroker.journal import conflicts, snapshot
from zbroker.journal.fold import LogFold
from zbroker.log import archive, packed
from zbroker.log.disk import RealDisk
from zbroker.log.format import HEADER_COPY_AT, KIND_STATE, NOTE, Batch
from zbroker.log.places import SegmentPlaces, open_places
from zbroker.log.reader import Log
from zbroker.log.recovery import recover
from zbroker.log.segments import NOTE_FILE, packed_name, segment_name, summary_name
from zbroker.log.writer import Writer


def make(path: Path) -> None:
    """Three segments: raw, packed, open; a summary of the first."""
    (path / "journal").mkdir()
    (path / "archive").mkdir()
    disk = RealDisk(path / "journal")
    to = writer(disk, start(disk))
    while to.serial < 3:
        append(to, random.Random(to.position).randbytes(900))
    body = snapshot.Body(snapshot.VERSION, to.position, 0, {}, True)
    state(to, snapshot.msgpack.encode(body))
    places = SegmentPlaces(disk, RealDisk(path / "archive"))
    finish(archive.pack(places, 2))
    (path / "journal" / segment_name(2)).unlink()
    archive.summary(Log(places=places), 1, keep=True)
    disk.close()
    places.close()


def state(to: Writer, body: bytes) -> None:
    """A state record at the end of the log."""
    position = to.position
    batch = Batch(
        KIND_STATE, position, 0, 0, position, 0, 1, position * 1_000, [], body, crc32c(body),
        len(body),
    )  # fmt: skip
    to.write([batch], batch.log_time)
    to.sync()


def begin(path: Path) -> None:
    """A start of the journal."""
    disk, fold = RealDisk(path / "journal"), LogFold(INSTANCE)
    try:
        recover(
            disk, INSTANCE, archive=RealDisk(path / "archive"), on_batch=fold, begin=fold.begin,
            segment_bytes=SEGMENT_BYTES, clock=Clock(),
        )  # fmt: skip
    finally:
        disk.close()


def read(path: Path) -> None:
    """A reader of the directories alone."""
    log = Log(path / "journal", path / "archive")
    try:
        end = log.end()
        for _ in log.header_lists(log.seek(log.first_position), end):
            pass
        log.read(log.seek(log.first_position), end, 1 << 20)
    finally:
        log.close()


def patch(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


# -- what a newer release would have written: another version, and its CRC where it always is -----


def segment(path: Path) -> None:
    for at in (0, HEADER_COPY_AT):
        patch(path / "journal" / segment_name(3), at + 8, struct.pack("<I", 2))


def note(path: Path) -> None:
    slot = bytearray((path / "journal" / NOTE_FILE).read_bytes()[: NOTE.size])
    struct.pack_into("<I", slot, 4, 2)
    struct.pack_into("<I", slot, 60, crc32c(bytes(slot[:60])))
    patch(path / "journal" / NOTE_FILE, 512, bytes(slot))


def packed_segment(path: Path) -> None:
    file = path / "journal" / packed_name(2)
    data = bytearray(file.read_bytes())
    (length,) = struct.unpack_from("<I", data, 4)
    struct.pack_into("<I", data, 16, 2)
    content = bytes(data[8 : 8 + length - 4])
    assert content.startswith(packed.HEAD_MAGIC)
    struct.pack_into("<I", data, 8 + length - 4, crc32c(content))
    file.write_bytes(data)


def state_record(path: Path) -> None:
    disk = RealDisk(path / "journal")
    to = writer(disk, start(disk, archive=RealDisk(path / "archive")))
    body = snapshot.Body(snapshot.VERSION + 1, to.position, 0, {}, True)
    state(to, snapshot.msgpack.encode(body))
    disk.close()


Damage = Callable[[Path], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make(tmp_path)
    begin(tmp_path)
    read(tmp_path)
    return tmp_path


@pytest.mark.parametrize("newer", [segment, note, packed_segment, state_record])
def test_a_start_refuses_a_version_from_the_future(path: Path, newer: Damage) -> None:
    newer(path)
    with pytest.raises(StorageError, match="unknown_version") as raised:
        begin(path)
    assert raised.value.hint


@pytest.mark.parametrize("newer", [segment, note, packed_segment])
def test_a_reader_refuses_a_version_from_the_future(path: Path, newer: Damage) -> None:
    newer(path)
    with pytest.raises(StorageError, match="unknown_version") as raised:
        read(path)
    assert raised.value.hint


def test_a_damaged_version_of_one_slot_is_no_version_from_the_future(path: Path) -> None:
    for at in (0, 512):
        patch(path / "journal" / NOTE_FILE, at + 4, b"\2")
        begin(path)
        read(path)


def test_a_damaged_version_of_one_header_copy_is_no_version_from_the_future(path: Path) -> None:
    patch(path / "journal" / segment_name(1), 8, b"\2")
    begin(path)
    read(path)


def test_an_index_of_another_version_is_made_again(tmp_path: Path) -> None:
    Index(tmp_path / "index", 9).close()
    value = bytearray(keys.encode_stamp(Stamp(1, 5), 9))
    value[7] = 2
    with lmdb.open(str(tmp_path / "index")) as env, env.begin(write=True) as txn:
        txn.put(keys.STAMP, bytes(value))
    index = Index(tmp_path / "index", 9)
    assert index.found == "it has version 2, not 1"
    index.close()


def test_a_summary_of_another_version_is_made_again(path: Path) -> None:
    patch(path / "journal" / summary_name(1), 4, struct.pack("<I", 2))
    places = open_places(path / "journal", path / "archive")
    made = archive.summary(Log(places=places), 1, keep=True)
    places.close()
    assert made is not None
    assert made.first == 1
    assert (path / "journal" / summary_name(1)).read_bytes()[4] == 1


def test_conflicts_of_another_version_are_set_aside_whole(tmp_path: Path) -> None:
    one = conflicts.Conflict(
        time_ns=1, publisher=1, name="p", session=1, seq=1, count=1, crc=1, original_position=1,
        topics=[],
    )  # fmt: skip
    data = bytearray(conflicts.encode(one))
    struct.pack_into("<I", data, 4, 2)
    (tmp_path / "conflicts").write_bytes(data)
    kept = conflicts.Conflicts(tmp_path / "conflicts")
    kept.keep([one])
    assert kept.kept == 1
    aside = [found for found in tmp_path.iterdir() if found.name != "conflicts"]
    assert [found.read_bytes() for found in aside] == [bytes(data)]
