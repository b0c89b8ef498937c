"""Reading what a matcher wants is reading everything and throwing the rest away, gaps included."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.journal.build import publish, start, writer
from tests.log.build import everything, move, squeeze
from tests.sim.disk import SimDisk
from zbroker.checksums import crc32c
from zbroker.limits import MIB, U63_MAX
from zbroker.log import archive
from zbroker.log.batch_reader import SKIP_BLOCK_BYTES, STEPS_MAX
from zbroker.log.files import Files
from zbroker.log.format import HEADER_COPY_AT, KIND_NOOP, KIND_PUBLISH, Batch, SegmentHeader
from zbroker.log.headers import PICKS_MAX
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import WANTED_KEPT, Cursor, Gap, Item, Log, Skipped
from zbroker.log.segments import segment_name, summary_name
from zbroker.log.summaries import decode, encode
from zbroker.log.writer import Writer
from zbroker.wire.messages import Columns

TOPICS = ("a", "b", "c", "rare")


class Made(NamedTuple):
    """A batch to write. topics: none of them makes a record that is no publish."""

    topics: tuple[str, ...]
    size: int
    count: int = 1
    column_bytes: int = 0


def written(
    batches: Iterable[Made], segment_bytes: int = 24 * 1024
) -> tuple[SegmentPlaces, Writer]:
    """A log of these, each in a group of its own or with its neighbour."""
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk), segment_bytes=segment_bytes)
    waiting: list[Batch] = []
    position = to.position
    for number, made in enumerate(batches):
        body = bytes([number % 251]) * made.size
        batch = publish(position, body, count=made.count)
        batch.topics, batch.publisher = list(made.topics), 70 + number % 3
        if not made.topics:
            batch.kind = KIND_NOOP
        elif made.column_bytes:
            batch.columns = Columns(index=bytes(made.column_bytes))
        waiting.append(batch)
        position = batch.end_position
        if number % 3:
            to.write(waiting, 1)
            waiting = []
    if waiting:
        to.write(waiting, 1)
    to.sync()
    return SegmentPlaces(disk, SimDisk(random.Random(2))), to


def fresh(places: SegmentPlaces) -> Log:
    return Log(places=SegmentPlaces(places.journal, places.archive))


def wanted(batch: Batch, wants: set[str]) -> bool:
    return batch.kind != KIND_PUBLISH or not wants.isdisjoint(batch.topics)


Seen = tuple[str, int, int, object]  # what, first, end, and what else must be the same


def expected(places: SegmentPlaces, start_at: Cursor, limit: int, wants: set[str]) -> list[Seen]:
    """The plain way: every header, and the bodies of what is wanted."""
    log = fresh(places)
    bodies: dict[int, bytes] = {}
    cursor = start_at
    while cursor.position < limit:
        items, cursor = log.read(cursor, limit, 4096)
        if not items:  # no header of the open segment is left, and none follows
            break
        bodies |= {item.position: bytes(item.body) for item in items if isinstance(item, Batch)}
    seen: list[Seen] = []
    for item in log.headers(start_at, limit):
        if isinstance(item, Gap):
            seen.append(("gap", item.first, item.end, None))
            continue
        batch, end = item[0], item[0].end_position
        if not wanted(batch, wants):
            seen.append(("skipped", batch.position, end, last_of(batch)))
        elif batch.position in bodies:
            seen.append(("batch", batch.position, end, bodies[batch.position]))
        else:
            seen.append(("gap", batch.position, end, None))
    return merged(seen)


def last_of(batch: Batch) -> tuple[int, int]:
    return batch.publisher, batch.sequence + batch.taken - 1


def merged(seen: list[Seen]) -> list[Seen]:
    """Neighbouring runs are one, and so are neighbouring gaps: a limit may part one."""
    done: list[Seen] = []
    for what, first, end, other in seen:
        before = done[-1] if done else ("", 0, 0, None)
        if what != "batch" and before[0] == what and before[2] == first:
            done[-1] = (what, before[1], end, other)
        else:
            done.append((what, first, end, other))
    return done


def reported(item: Item) -> Seen:
    if isinstance(item, Gap):
        return "gap", item.first, item.end, None
    if isinstance(item, Skipped):
        return "skipped", item.first, item.end, (item.publisher, item.sequence)
    return "batch", item.position, item.end_position, bytes(item.body)


def ends(items: list[Item]) -> list[tuple[str, int, int]]:
    return [reported(item)[:3] for item in items]


def picked(
    log: Log, cursor: Cursor, limits: Iterable[tuple[int, int]], wants: set[str]
) -> list[Seen]:
    """What is read with a matcher, each time up to another limit and with another max_bytes."""
    found: list[Seen] = []
    for limit, max_bytes in limits:
        while cursor.position < limit:
            items, after = log.read_wanted(cursor, limit, max_bytes, wants.__contains__)
            if not items:
                break
            assert after.position > cursor.position
            assert reported(items[0])[1] == cursor.position
            for one, other in pairwise(items):
                assert reported(one)[2] == reported(other)[1], "every position is in one item"
                assert not (isinstance(one, Skipped) and isinstance(other, Skipped))
            assert reported(items[-1])[2] == after.position
            found += map(reported, items)
            cursor = after
    return merged(found)


MADE = st.builds(
    Made,
    st.lists(st.sampled_from(TOPICS), max_size=3, unique=True).map(tuple),
    st.sampled_from([0, 5, 300, 1_500, 5_000, 70_000]),
    st.integers(1, 4),
    st.sampled_from([0, 0, 0, 200]),
)
LOGS = st.lists(MADE, min_size=4, max_size=60)
WANTS = st.sets(st.sampled_from(TOPICS), max_size=2)
#: of each segment: moved, packed, without a summary
LAYOUTS = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=6)
READS = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from([1, 500, 4_096, 100_000, MIB])), max_size=4
)
ROT = st.lists(st.tuples(st.floats(0, 0.999), st.floats(0, 0.999), st.integers(0, 7)), max_size=4)


def arrange(places: SegmentPlaces, layout: list[tuple[bool, bool, bool]]) -> None:
    """Moves and packs the sealed segments; what is not touched has no summary."""
    sealed = sorted(places.by_serial())[:-1]
    for serial, (moved, packed, forgotten) in zip(sealed, layout, strict=False):
        if packed:
            squeeze(places, serial)
        if moved:
            move(places, serial)
        for disk in (places.journal, places.archive):
            assert isinstance(disk, SimDisk)
            if forgotten and disk.exists(summary_name(serial)):
                disk.remove(summary_name(serial))


def rot(places: SegmentPlaces, damage: list[tuple[float, float, int]]) -> None:
    """Bits anywhere in any file."""
    files = [
        (disk, name)
        for disk in (places.journal, places.archive)
        if isinstance(disk, SimDisk)
        for name, size in sorted(disk.list())
        if size and name.startswith("00")
    ]
    for which, where, bit in damage:
        disk, name = files[int(which * len(files))]
        disk.flip(name, int(where * len(disk.content(name))), bit)


def whole(places: SegmentPlaces, wants: set[str]) -> list[tuple[int, int]]:
    """Positions [first, end) of the segments that are skipped by their summary."""
    log = fresh(places)
    files, found = Files(log.places), []
    for begun in log.starts:
        segment = files.segment(begun.serial)
        topics = files.topics(segment) if segment is not None else None
        if segment is not None and topics is not None and wants.isdisjoint(topics):
            found.append((begun.position, segment.end_position or 0))
    return found


def without(seen: list[Seen], stretches: list[tuple[int, int]]) -> list[Seen]:
    """With everything in these stretches skipped, whatever it is, and whoever had it last."""
    done = []
    for what, first, end, other in cut(seen, stretches):
        if any(low <= first and end <= high for low, high in stretches):
            what = "skipped"
        done.append((what, first, end, None if what == "skipped" else other))
    return merged(done)


def cut(seen: list[Seen], stretches: list[tuple[int, int]]) -> Iterable[Seen]:
    """A gap or a run may begin in one of these and end after it."""
    borders = sorted({at for stretch in stretches for at in stretch})
    for what, first, end, other in seen:
        inside = [at for at in borders if first < at < end] if what != "batch" else []
        yield from ((what, low, high, other) for low, high in pairwise([first, *inside, end]))


@settings(max_examples=150, deadline=None)
@given(made=LOGS, wants=WANTS, reads=READS, damage=ROT, begin=st.floats(0, 1))
def test_a_fresh_log_is_the_same_as_filtered(
    made: list[Made],
    wants: set[str],
    reads: list[tuple[float, int]],
    damage: list[tuple[float, float, int]],
    begin: float,
) -> None:
    places, to = written(made)
    end = to.position
    cursor = fresh(places).seek(1 + int(begin * (end - 1)))
    rot(places, damage)
    limits = [*sorted((1 + int(at * (end - 1)), size) for at, size in reads), (end, 4_096)]
    log = fresh(places)
    assert picked(log, cursor, limits, wants) == expected(places, cursor, end, wants)


@settings(max_examples=150, deadline=None)
@example(
    made=[Made((), 0), Made((), 0), Made((), 70_000), Made((), 5_000)],
    wants=set(),
    layout=[(False, False, False), (True, False, False)],
    reads=[],
    damage=[(0.75, 0.5, 0), (0.25, 0.5, 0)],
)
@given(made=LOGS, wants=WANTS, layout=LAYOUTS, reads=READS, damage=ROT)
def test_a_log_of_all_kinds_of_segments_is_the_same_as_filtered(
    made: list[Made],
    wants: set[str],
    layout: list[tuple[bool, bool, bool]],
    reads: list[tuple[float, int]],
    damage: list[tuple[float, float, int]],
) -> None:
    places, to = written(made)
    arrange(places, layout)
    rot(places, damage)
    end, hidden = to.position, whole(places, wants)
    limits = [*sorted((1 + int(at * (end - 1)), size) for at, size in reads), (end, 4_096)]
    cursor = fresh(places).seek(1)
    found = without(picked(fresh(places), cursor, limits, wants), hidden)
    assert found == without(expected(places, cursor, end, wants), hidden)


# -- what is not read ---------------------------------------------------------------------------


class Counting(SimDisk):
    """Counts the bytes that are read of each file."""

    def __init__(self) -> None:
        super().__init__(random.Random(1))
        self.bytes_read = Counter[str]()

    def read(self, name: str, offset: int, size: int) -> bytes:
        found = super().read(name, offset, size)
        self.bytes_read[name] += len(found)
        return found


def counted(places: SegmentPlaces) -> tuple[Log, Counter[str]]:
    """The same log on a disk that counts, from now on."""
    disk = Counting()
    assert isinstance(places.journal, SimDisk)
    for name, _ in places.journal.list():
        disk.plant(name, places.journal.content(name))
    log = Log(disk=disk)
    disk.bytes_read.clear()
    return log, disk.bytes_read


def no_topic(_: str) -> bool:
    return False


def test_large_bodies_that_no_one_wants_are_not_read() -> None:
    places, to = written([Made(("a",), 300_000)] * 20 + [Made(("rare",), 300_000)], 8 * MIB)
    log, read = counted(places)
    cursor, found = log.seek(1), list[Item]()
    read.clear()
    while cursor.position < to.position:
        items, cursor = log.read_wanted(cursor, to.position, MIB, {"rare"}.__contains__)
        found += items
    assert merged([reported(item) for item in found[:-1]])[0][:3] == ("skipped", 1, 21)
    assert ends(found[-1:]) == [("batch", 21, 22)]
    assert sum(read.values()) < 2_000_000


def test_a_call_that_finds_nothing_ends_soon() -> None:
    places, to = written([Made(("a",), 2_000)] * 3_000, 8 * MIB)
    log, read = counted(places)
    cursor, calls = log.seek(1), 0
    read.clear()
    while cursor.position < to.position:
        before = cursor.position
        items, cursor = log.read_wanted(cursor, to.position, U63_MAX, no_topic)
        last = cursor.position - 1
        assert [item[:4] for item in items] == [
            (before, cursor.position, 70 + (last - 1) % 3, last)
        ]
        assert sum(read.values()) <= STEPS_MAX * SKIP_BLOCK_BYTES
        read.clear()
        calls += 1
    assert calls >= 3


def test_a_call_that_looks_at_many_small_batches_ends_soon() -> None:
    places, to = written([Made(("a",), 1)] * 200, 8 * MIB)
    assert to.serial > 1, "the first segment is a small one"
    first = to.position
    to.write([publish(first + number, b"") for number in range(2 * STEPS_MAX * PICKS_MAX)], 1)
    for wants in (no_topic, "orders".__eq__):
        log = fresh(places)
        _, cursor = log.read_wanted(log.seek(first), to.position, U63_MAX, wants)
        assert PICKS_MAX < cursor.position - first <= STEPS_MAX * PICKS_MAX


def test_the_answers_of_a_matcher_are_remembered() -> None:
    places, to = written([Made(("a", "b"), 10)] * 50)
    asked = Counter[str]()

    def wants(topic: str) -> bool:
        asked[topic] += 1
        return topic == "b"

    log, cursor = fresh(places), Cursor(1, 8192, 1)
    while cursor.position < to.position:
        _, cursor = log.read_wanted(cursor, to.position, 1, wants)
    assert asked == {"a": 1, "b": 1}


def test_answers_for_more_topics_than_are_kept_are_right() -> None:
    made = [Made((f"t{number % 1_500}",), 1) for number in range(3_000)]
    places, to = written(made, 8 * MIB)
    log = fresh(places)
    seen = picked(log, log.seek(1), [(to.position, MIB)], {"t7", "t1400"})
    assert [first for what, first, _, _ in seen if what == "batch"] == [8, 1_401, 1_508, 2_901]


def test_no_more_matchers_are_remembered_than_stated() -> None:
    places, to = written([Made(("a",), 10)] * 5)
    log = fresh(places)
    for number in range(200):
        items, _ = log.read_wanted(log.seek(1), to.position, MIB, {f"{number}", "b"}.__contains__)
        assert [type(item) for item in items] == [Skipped]
        assert 0 < len(log._wanted) <= WANTED_KEPT


def test_a_body_that_no_one_wants_may_be_damaged() -> None:
    places, to = written([Made(("a",), 500), Made(("b",), 500), Made(("a",), 500)])
    disk = places.journal
    assert isinstance(disk, SimDisk)
    second = everything(places, to.position)[1]
    assert isinstance(second, Batch)
    disk.flip(segment_name(1), second.offset + second.header_length + 9)
    log = fresh(places)
    items, _ = log.read_wanted(log.seek(1), to.position, MIB, {"a"}.__contains__)
    assert ends(items) == [
        ("batch", 1, 2),
        ("skipped", 2, 3),
        ("batch", 3, 4),
    ]
    items, _ = log.read_wanted(log.seek(1), to.position, MIB, {"b"}.__contains__)
    assert ends(items) == [
        ("skipped", 1, 2),
        ("gap", 2, 3),
        ("skipped", 3, 4),
    ]


def test_a_damaged_header_is_a_gap_whoever_wanted_it() -> None:
    places, to = written([Made(("a",), 500), Made(("b",), 500), Made(("a",), 500)])
    disk = places.journal
    assert isinstance(disk, SimDisk)
    second = everything(places, to.position)[1]
    assert isinstance(second, Batch)
    disk.flip(segment_name(1), second.offset + 20)
    log = fresh(places)
    items, _ = log.read_wanted(log.seek(1), to.position, MIB, no_topic)
    assert ends(items) == [
        ("skipped", 1, 2),
        ("gap", 2, 3),
        ("skipped", 3, 4),
    ]


# -- whole segments -----------------------------------------------------------------------------


def in_segments() -> tuple[SegmentPlaces, Writer]:
    """Some segments of `a` alone, then some that have `rare` too, then `a` alone again."""
    made = [Made(("a",), 1_000)] * 60 + [Made(("rare",), 1_000)] + [Made(("a",), 1_000)] * 80
    return written([*made[:5], Made((), 10), *made[5:]])


def summarized(places: SegmentPlaces) -> list[int]:
    """Serials of the sealed segments, which now have summaries."""
    sealed = sorted(places.by_serial())[:-1]
    for serial in sealed:
        archive.summary(Log(places=places), serial, keep=True)
    return sealed


def test_a_segment_without_a_wanted_topic_is_not_opened() -> None:
    places, to = in_segments()
    sealed = summarized(places)
    assert len(sealed) > 4
    log, read = counted(places)
    found, cursor = list[Item](), Cursor(1, 8192, 1)
    while cursor.position < to.position:
        items, cursor = log.read_wanted(cursor, to.position, MIB, {"rare"}.__contains__)
        found += items
    (rare,) = (item for item in found if isinstance(item, Batch))
    assert (rare.position, rare.topics) == (62, ["rare"])
    holds = max(start.serial for start in log.starts if start.position <= rare.position)
    assert {name for name in read if name.endswith(".journal")} == {
        segment_name(holds),
        segment_name(to.serial),
    }
    assert all(isinstance(item, Skipped) for item in found if item is not rare)


def test_a_call_that_steps_over_segments_ends_soon() -> None:
    places, to = written([Made(("a",), 5_000)] * 200)
    assert len(summarized(places)) > 3 * STEPS_MAX
    log = fresh(places)
    items, cursor = log.read_wanted(log.seek(1), to.position, MIB, no_topic)
    assert items == [Skipped(1, cursor.position, 0, 0)]
    assert cursor == log.starts[STEPS_MAX]


def test_a_limit_within_a_segment_is_kept() -> None:
    places, to = in_segments()
    summarized(places)
    log = fresh(places)
    items, cursor = log.read_wanted(log.seek(1), 4, MIB, {"rare"}.__contains__)
    assert ([item[:4] for item in items], cursor.position) == ([(1, 4, 72, 3)], 4)
    items, _ = log.read_wanted(cursor, to.position, MIB, {"rare"}.__contains__)
    assert items[0] == Skipped(4, 62, 0, 0) or isinstance(items[1], Batch)


def test_what_is_lost_before_a_segment_is_not_skipped_with_it() -> None:
    places, to = in_segments()
    summarized(places)
    starts = fresh(places).starts
    disk = places.journal
    assert isinstance(disk, SimDisk)
    for at in (0, HEADER_COPY_AT):
        disk.damage(segment_name(2), at, bytes(96))
    log, middle = fresh(places), starts[1].position + 3
    items, cursor = log.read_wanted(log.seek(1), middle, MIB, no_topic)
    assert ends(items)[-1] == ("gap", starts[1].position, middle)
    items, _ = log.read_wanted(cursor, to.position, MIB, no_topic)
    assert ends(items)[0] == ("gap", middle, starts[2].position)


Change = Callable[[archive.Summary], archive.Summary]


def replaced(**fields: object) -> Change:
    return lambda summary: msgspec.structs.replace(summary, **fields)


@pytest.mark.parametrize(
    "change",
    [
        replaced(topics_capped=True),
        replaced(missing=1),
        replaced(salt=5),
        replaced(serial=9),
        replaced(instance=9),
        replaced(end=10**6),
        replaced(first=0),
    ],
)
def test_a_summary_that_does_not_tell_all_is_not_used(change: Change) -> None:
    places, _ = in_segments()
    made = archive.summary(Log(places=places), 1, keep=True)
    assert made is not None
    disk = places.journal
    assert isinstance(disk, SimDisk)
    assert topics_of(places) == {"a"}
    disk.plant(summary_name(1), encode(change(made)))
    assert topics_of(places) is None


def topics_of(places: SegmentPlaces, serial: int = 1) -> frozenset[str] | None:
    files = Files(SegmentPlaces(places.journal, places.archive))
    segment = files.segment(serial)
    assert segment is not None
    return files.topics(segment)


def test_every_bit_of_a_summary_counts() -> None:
    places, _ = in_segments()
    archive.summary(Log(places=places), 1, keep=True)
    disk = places.journal
    assert isinstance(disk, SimDisk)
    content = disk.content(summary_name(1))
    for at in range(len(content)):
        disk.plant(summary_name(1), content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        assert topics_of(places) is None
        disk.plant(summary_name(1), content[:at])
        assert topics_of(places) is None
    disk.plant(summary_name(1), content)
    assert topics_of(places) == {"a"}


def test_a_summary_of_other_types_is_none() -> None:
    places, _ = in_segments()
    disk = places.journal
    assert isinstance(disk, SimDisk)
    for value in ({}, [1], {"topics": 7}, None):
        content = msgspec.msgpack.encode(value)
        head = struct.pack("<4sIII", b"zbSM", 1, len(content), crc32c(content))
        disk.plant(summary_name(1), head + content)
        assert topics_of(places) is None


def test_what_is_read_here_is_what_the_archive_process_writes() -> None:
    places, _ = in_segments()
    made = archive.summary(Log(places=places), 1, keep=True)
    assert made is not None
    place = places.find(1)
    assert place is not None
    header = places.header(place)
    assert isinstance(header, SegmentHeader)
    disk = places.journal
    assert decode(disk.read(summary_name(1), 0, MIB), header) == made
    assert topics_of(places) == frozenset(made.topics)


def test_a_summary_that_is_made_later_is_found_when_the_log_grows() -> None:
    places, _ = in_segments()
    files = Files(SegmentPlaces(places.journal, places.archive))
    segment = files.segment(1)
    assert segment is not None
    assert files.topics(segment) is None
    archive.summary(Log(places=places), 1, keep=True)
    files.refresh()
    assert files.topics(segment) == {"a"}


def test_the_open_segment_has_no_summary() -> None:
    places, to = in_segments()
    assert topics_of(places, to.serial) is None


def test_a_summary_beside_an_archived_segment_is_used() -> None:
    places, _ = in_segments()
    squeeze(places, 1)
    move(places, 1)
    disk = places.journal
    assert isinstance(disk, SimDisk)
    if disk.exists(summary_name(1)):
        disk.remove(summary_name(1))
    assert topics_of(places) == {"a"}


def test_frames_under_bodies_that_no_one_wants_are_not_decompressed() -> None:
    noise = random.Random(5)
    disk = SimDisk(random.Random(1))
    to = writer(disk, start(disk), segment_bytes=8 * MIB)
    batch = publish(to.position, noise.randbytes(4 * MIB))
    to.write([batch], 1)
    to.sync()
    while to.serial == 1:
        to.write([publish(to.position, bytes(MIB))], 1)
        to.sync()
    places = SegmentPlaces(disk, SimDisk(random.Random(2)))
    squeeze(places, 1)
    disk.remove(summary_name(1))
    log = fresh(places)
    items, _ = log.read_wanted(log.seek(1), to.position, MIB, no_topic)
    assert [type(item) for item in items] == [Skipped]
    assert log.places.frames.decompressed < 16
