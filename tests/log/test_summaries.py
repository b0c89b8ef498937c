"""Summaries: what is in a segment, kept beside it, believed only if it is of this segment."""

from __future__ import annotations

import random
import struct

import msgspec
import pytest

from tests.journal.build import append, publish, start, writer
from tests.log.build import everything, log_of, move, names, sim, squeeze
from tests.sim.disk import SimDisk
from zbroker.checksums import crc32c
from zbroker.log import archive
from zbroker.log.format import KIND_POINT, Batch, SegmentHeader
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Log
from zbroker.log.segments import packed_name, segment_name, summary_name
from zbroker.log.summaries import MARK_BYTES, TOPICS_MAX, decode, encode
from zbroker.log.writer import Writer


def header_of(places: SegmentPlaces, serial: int) -> SegmentHeader:
    place = places.find(serial)
    assert place is not None
    header = places.header(place)
    assert isinstance(header, SegmentHeader)
    return header


def made(places: SegmentPlaces, serial: int, *, keep: bool = False) -> archive.Summary:
    found = archive.summary(Log(places=places), serial, keep=keep)
    assert found is not None
    return found


def rolled(to: Writer, batches: list[Batch]) -> None:
    """Writes them, then whatever it takes to seal their segment."""
    to.write(batches, 1)
    to.sync()
    serial = to.serial
    while to.serial == serial:
        append(to, b"x" * 3_000)


def test_it_says_what_is_in_the_segment() -> None:
    places, _ = log_of()
    second = header_of(places, 2)
    batches = everything(places, second.first_position)
    found = made(places, 1)
    assert (found.serial, found.first, found.end) == (1, 1, second.first_position)
    assert found.end_offset == second.previous_end
    assert (found.batches, found.messages, found.control_records) == (len(batches),) * 2 + (0,)
    assert (found.first_time, found.last_time) == (1_000, (second.first_position - 1) * 1_000)
    assert (found.topics, found.topics_capped, found.missing) == (["orders"], False, 0)
    assert found.size == 24_576
    assert found.body_bytes == sum(b.body_length for b in batches if isinstance(b, Batch))


def test_control_records_are_no_messages() -> None:
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk))
    point = publish(1, b"", count=1)
    point.kind, point.topics = KIND_POINT, []
    rolled(to, [point, publish(2, b"body", count=5)])
    found = made(SegmentPlaces(disk), 1)
    assert (found.control_records, found.messages - found.batches) == (1, 5 - 1 - 1)
    assert found.first_time == 2_000


def test_topics_are_capped() -> None:
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk, segment_bytes=1 << 20), segment_bytes=1 << 20)
    batches = [publish(number, b"x") for number in range(1, TOPICS_MAX + 20)]
    for batch in batches:
        batch.topics = [f"topic.{batch.position:05d}"]
    rolled(to, batches)
    found = made(SegmentPlaces(disk), 1)
    assert (len(found.topics), found.topics_capped) == (TOPICS_MAX, True)
    assert found.topics == sorted(found.topics)


def test_marks_lead_to_any_position() -> None:
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk, segment_bytes=1 << 20), segment_bytes=1 << 20)
    while to.serial == 1:
        append(to, *[b"x" * 2_000] * 4)
    places = SegmentPlaces(disk)
    found, log = made(places, 1), Log(places=places)
    assert len(found.marks) > (1 << 20) // MARK_BYTES - 3
    for position in range(found.first, found.end, 37):
        offset = found.at_or_before(position)
        plain = log.seek(position)
        assert plain.offset - MARK_BYTES - 10_000 < offset <= max(plain.offset, found.marks[0][0])
        if position > found.first:
            assert log.seek(position, 1, offset) == plain


def test_there_is_none_of_the_open_segment() -> None:
    places, to = log_of()
    assert archive.summary(Log(places=places), to.serial) is None
    assert archive.summary(Log(places=places), to.serial + 1) is None


def test_it_is_the_same_of_every_kind_of_copy() -> None:
    places, _ = log_of()
    expected = made(places, 1)
    for change in (squeeze, move):
        change(places, 1)
        for disk in sim(places):
            if summary_name(1) in names(disk):
                disk.remove(summary_name(1))
        assert made(places, 1) == expected


def test_it_is_kept_only_when_asked_to() -> None:
    places, _ = log_of()
    journal, _ = sim(places)
    made(places, 1)
    assert summary_name(1) not in names(journal)
    expected = made(places, 1, keep=True)
    assert decode(journal.content(summary_name(1)), header_of(places, 1)) == expected


def test_a_kept_one_is_read_instead_of_the_segment() -> None:
    places, _ = log_of()
    kept = made(places, 1)
    pretended = msgspec.structs.replace(kept, messages=99)
    sim(places)[1].plant(summary_name(1), encode(pretended))
    assert made(places, 1).messages == 99
    found = archive.summary(Log(places=places), 1)
    assert found is not None
    assert found.messages == 99


@pytest.mark.parametrize("at", [0, 4, 8, 12, 16, 40, -1])
def test_a_damaged_one_is_made_again(at: int) -> None:
    places, _ = log_of()
    journal, _ = sim(places)
    expected = made(places, 1, keep=True)
    data = bytearray(journal.content(summary_name(1)))
    data[at] ^= 1
    journal.plant(summary_name(1), bytes(data))
    assert made(places, 1, keep=True) == expected
    assert decode(journal.content(summary_name(1)), header_of(places, 1)) == expected


@pytest.mark.parametrize("field", ["instance", "serial", "salt"])
def test_one_of_another_segment_is_not_believed(field: str) -> None:
    places, _ = log_of()
    header = header_of(places, 1)
    data = encode(made(places, 1))
    assert decode(data, header) is not None
    assert decode(data, header._replace(**{field: getattr(header, field) + 1})) is None


def test_one_of_another_version_is_not_believed() -> None:
    places, _ = log_of()
    data = encode(made(places, 1))
    assert decode(data[:4] + struct.pack("<I", 2) + data[8:], header_of(places, 1)) is None
    body = b"\xc1 no msgpack"
    other = struct.pack("<4sIII", b"zbSM", 1, len(body), crc32c(body)) + body
    assert decode(other, header_of(places, 1)) is None


def test_what_cannot_be_kept_is_no_error() -> None:
    places, _ = log_of()
    journal, _ = sim(places)
    journal.fail_at, journal.sticky = journal.operations + 1, True
    assert made(places, 1, keep=True).messages > 0


def test_damaged_positions_are_counted() -> None:
    places, _ = log_of()
    journal, _ = sim(places)
    batch = everything(places, 9)[3]
    assert isinstance(batch, Batch)
    journal.flip(segment_name(1), batch.offset + 20)
    assert made(places, 1).missing == 1


def test_copying_keeps_it_beside_the_copy() -> None:
    places, _ = log_of()
    journal, away = sim(places)
    expected = made(places, 1)
    squeeze(places, 1)
    assert decode(journal.content(summary_name(1)), header_of(places, 1)) == expected
    journal.remove(summary_name(1))
    move(places, 1)
    assert names(away) == sorted([summary_name(1), packed_name(1)])
    assert made(places, 1) == expected
