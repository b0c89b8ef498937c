"""A block decoded in one loop is what one header at a time says, also where it is damaged."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.build import publish, start, writer
from tests.sim.disk import SimDisk
from zbroker.checksums import crc32c
from zbroker.limits import U63_MAX
from zbroker.log.format import (
    BATCH,
    DATA_AT,
    FLAG_LATE,
    FLAG_SHOWS,
    FLAG_UNIT,
    GROUP_ALIGN,
    GROUP_LENGTH,
    KIND_NOOP,
    KIND_PUBLISH,
    Batch,
    ParseStop,
    SegmentHeader,
    decode_batch_header,
    decode_segment_header,
    encode_batch_header,
    offset_bytes,
    pad,
)
from zbroker.log.headers import (
    ANSWERS_KEPT,
    Gap,
    Skipped,
    Sparse,
    TopicSelection,
    decode_headers,
    pick_headers,
    skim_headers,
    take_bodies,
    units,
)
from zbroker.log.segments import segment_name
from zbroker.wire.messages import Columns

FIRST = DATA_AT + GROUP_LENGTH


def segment() -> tuple[bytes, int]:
    """A segment of groups of one to four batches of many shapes, and its seed."""
    disk = SimDisk(random.Random(1))
    disk.lock()
    to = writer(disk, start(disk))
    for group in range(12):
        batches, position = [], to.position
        for index in range(group % 4 + 1):
            batch = publish(position, bytes([group]) * (group * 37 + index), count=index + 1)
            batch.topics = [f"t{number}" for number in range(group % 3)]
            if index == 1:
                batch.skip = 1
            elif index == 2:
                batch.cut = 1
                batch.columns = Columns(index=bytes(6), time=bytes(24))
                batch.extra = [(77, b"later")]
            elif index == 3:
                keys = bytes([group]) * 40  # some tails are remembered, some are too long
                batch.columns = Columns(keys=keys[: group * 4], headers=keys, expiry=bytes(32))
            batch.publisher = 77 + (group + index) % 3
            if group % 5 == 4 and index == 0:
                batch.kind = KIND_NOOP
            elif group % 5 == 3 and index == 2:
                batch.flags = FLAG_LATE
            batches.append(batch)
            position = batch.end_position
        to.write(batches, batches[-1].log_time)
        to.sync()
    data = disk.read(segment_name(1), 0, 24 * 1024)
    header = decode_segment_header(data)
    assert isinstance(header, SegmentHeader)
    return data, header.seed


DATA, SEED = segment()


def one_by_one(data: bytes, offset: int = FIRST, position: int = 1) -> list[Batch]:
    found: list[Batch] = []
    while True:
        batch = decode_batch_header(data, offset, offset, SEED)
        if not isinstance(batch, Batch):
            behind = pad(offset, GROUP_ALIGN) + GROUP_LENGTH
            batch = decode_batch_header(data, behind, behind, SEED)
        if not isinstance(batch, Batch) or batch.position != position:
            return found
        found.append(batch)
        offset, position = batch.end_offset, batch.end_position


ALL = one_by_one(DATA)
BODIES_END = ALL[-1].end_offset


def at_once(data: bytes, limit: int = U63_MAX, window: int = U63_MAX, base: int = 0) -> list[Batch]:
    return decode_headers(data, base, FIRST, SEED, 1, limit, window)


def test_a_whole_segment_is_the_same_at_once():
    assert len(ALL) == 30
    assert at_once(DATA) == ALL


def test_a_block_may_begin_and_end_anywhere():
    for end in range(FIRST, BODIES_END + 600, 41):
        found = at_once(DATA[4096:end], base=4096)
        whole = [batch for batch in ALL if batch.offset + batch.header_length <= end]
        assert found == whole


def test_it_goes_on_from_any_batch():
    for index, batch in enumerate(ALL):
        found = decode_headers(DATA, 0, batch.offset, SEED, batch.position, U63_MAX, U63_MAX)
        assert found == ALL[index:]


def test_nothing_at_or_above_the_limit_is_decoded():
    for index, batch in enumerate(ALL):
        assert at_once(DATA, limit=batch.position) == ALL[:index]


def test_batches_begin_within_the_process():
    for window in range(1, BODIES_END - FIRST, 97):
        begun = [batch for batch in ALL if batch.offset < FIRST + window]
        assert at_once(DATA, window=window) == begun


def test_another_position_is_not_the_next_batch():
    assert decode_headers(DATA, 0, FIRST, SEED, 2, U63_MAX, U63_MAX) == []


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(FIRST, BODIES_END - 1), st.integers(1, 255)), min_size=1))
def test_damage_ends_it_where_one_at_a_time_meets_it_too(flips: list[tuple[int, int]]):
    damaged = bytearray(DATA)
    for offset, bits in flips:
        damaged[offset] ^= bits
    data = bytes(damaged)
    found = at_once(data)
    assert found == one_by_one(data)[: len(found)]
    first = next((at for at in range(FIRST, BODIES_END) if data[at] != DATA[at]), BODIES_END)
    untouched = [batch for batch in ALL if batch.offset + batch.header_length <= first]
    assert found[: len(untouched)] == untouched


@pytest.mark.parametrize("tail", [b"\xff\xff" + bytes(6), b"\2\0\xff\xfe" + bytes(4)])
def test_topics_that_cannot_be_are_no_header(tail: bytes):
    """The checksum is right: only a broken writer makes that."""
    batch = publish(1, b"x")
    batch.topics = ["", "", ""]
    head = bytearray(encode_batch_header(batch, FIRST, SEED))
    head[BATCH.size :] = tail
    struct.pack_into("<I", head, 108, 0)
    covered = offset_bytes(FIRST) + bytes(head[:108] + head[112:])
    struct.pack_into("<I", head, 108, crc32c(covered, SEED))
    data = bytes(FIRST) + bytes(head) + bytes(64)
    assert at_once(data) == []
    assert pick_headers(
        data, 0, FIRST, SEED, 1, U63_MAX, U63_MAX, TopicSelection("a".__eq__)
    ) == ([], FIRST, 1, U63_MAX)  # fmt: skip
    assert decode_batch_header(data, FIRST, FIRST, SEED) == ParseStop(FIRST, "length")


def skimmed(
    data: bytes, offset: int = FIRST, position: int = 1, block_bytes: int = 2048
) -> tuple[list[Batch], int, int]:
    return skim_headers(data, 0, offset, SEED, position, U63_MAX, U63_MAX, Sparse(block_bytes))


def wanted(batches: list[Batch], block_bytes: int = 2048) -> list[Batch]:
    """What an index needs, the plain way."""
    found, blocks, runs = [], set(), set()
    for batch in batches:
        block = batch.offset // block_bytes
        run = (block, batch.publisher) if batch.kind == KIND_PUBLISH else None
        late = run is not None and batch.flags & FLAG_LATE
        if block not in blocks or late or (run is not None and run not in runs):
            found.append(batch)
        blocks.add(block)
        if not late:
            runs.add(run)
    return found


def test_skimming_finds_what_an_index_needs():
    assert {batch.kind for batch in ALL} == {KIND_PUBLISH, KIND_NOOP}
    for block_bytes in (512, 1024, 2048, 65_536):
        found = wanted(ALL, block_bytes)
        assert skimmed(DATA, block_bytes=block_bytes) == (found, BODIES_END, ALL[-1].end_position)
    assert 1 < len(wanted(ALL)) < len(ALL)


def test_skimming_goes_on_where_it_stopped():
    for cut in range(FIRST, BODIES_END, 173):
        sparse = Sparse(2048)
        found, offset, position = skim_headers(
            DATA[:cut], 0, FIRST, SEED, 1, U63_MAX, U63_MAX, sparse
        )
        rest, offset, position = skim_headers(
            DATA[1024:], 1024, offset, SEED, position, U63_MAX, U63_MAX, sparse
        )
        assert found + rest == wanted(ALL)
        assert (offset, position) == (BODIES_END, ALL[-1].end_position)
        assert sparse.batches == len(ALL)


@pytest.mark.parametrize("number", range(len(ALL)))
def test_skimming_stops_at_the_limit(number: int):
    batch = ALL[number]
    sparse = Sparse(2048)
    found, offset, position = skim_headers(DATA, 0, FIRST, SEED, 1, batch.position, U63_MAX, sparse)
    assert found == wanted(ALL[:number])
    assert (position, sparse.batches) == (batch.position, number)
    assert offset == (ALL[number - 1].end_offset if number else FIRST)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(FIRST, BODIES_END - 1), st.integers(1, 255)), min_size=1))
def test_skimming_checks_every_header(flips: list[tuple[int, int]]):
    """It stops exactly where decoding everything stops."""
    damaged = bytearray(DATA)
    for offset, bits in flips:
        damaged[offset] ^= bits
    data = bytes(damaged)
    good = at_once(data)
    found, offset, position = skimmed(data)
    assert found == wanted(good)
    assert position == (good[-1].end_position if good else 1)
    assert offset == (good[-1].end_offset if good else FIRST)


def test_bodies_are_taken_up_to_the_first_bad_one():
    found = at_once(DATA)
    assert take_bodies(found, DATA, 0) == len(found)
    assert all(len(batch.body) == batch.body_length for batch in found)
    behind = found[7].offset + found[7].header_length
    damaged = DATA[:behind] + bytes([DATA[behind] ^ 1]) + DATA[behind + 1 :]
    assert take_bodies(at_once(damaged), damaged, 0) == 7


def test_a_body_that_is_cut_off_is_not_taken():
    end = ALL[9].end_offset - 8
    found = at_once(DATA[:end])
    assert len(found) == 10
    assert take_bodies(found, DATA[:end], 0) == 9


def test_nothing_is_decoded_after_a_batch_with_a_flag_that_ends_it():
    """A reader that shows commits comes back after each of them: else it would decode the rest of
    its block each time, which cost it a second for each MiB with a hundred commits."""
    [late] = [number for number, batch in enumerate(ALL) if batch.flags & FLAG_LATE]
    found = decode_headers(DATA, 0, FIRST, SEED, 1, U63_MAX, U63_MAX, FLAG_LATE)
    assert found == ALL[: late + 1]
    assert take_bodies(found, DATA, 0, FLAG_LATE) == late
    end = ALL[late].end_offset, SEED, ALL[late].end_position
    assert decode_headers(DATA, 0, *end, U63_MAX, U63_MAX, FLAG_LATE) == ALL[late + 1 :]


def test_a_commit_that_is_wanted_as_it_is_stored_is_taken_like_others():
    found = at_once(DATA)
    found[3].flags |= FLAG_SHOWS
    assert take_bodies(found, DATA, 0) == len(found)
    assert take_bodies(found, DATA, 0, FLAG_SHOWS) == 3


# -- only what somebody wants -------------------------------------------------------------------

WANTS = ({"t0"}, {"t1"}, {"t2"}, {"t0", "t1"}, set[str]())


def picks(
    data: bytes, wants: set[str], limit: int = U63_MAX, budget: int = U63_MAX
) -> tuple[list[Batch | Skipped], int, int, int]:
    return pick_headers(data, 0, FIRST, SEED, 1, limit, budget, TopicSelection(wants.__contains__))


def filtered(batches: list[Batch], wants: set[str]) -> list[Batch | Skipped]:
    """What has to come of these, the plain way."""
    found: list[Batch | Skipped] = []
    for batch in batches:
        if batch.kind != KIND_PUBLISH or not wants.isdisjoint(batch.topics):
            found.append(batch)
            continue
        run = found.pop() if found and isinstance(found[-1], Skipped) else None
        first = run.first if isinstance(run, Skipped) else batch.position
        last = batch.sequence + batch.taken - 1
        at, of = batch.origin_position + batch.taken - 1, batch.kind == KIND_PUBLISH
        found.append(
            Skipped(
                first, batch.end_position, batch.publisher, last, batch.origin if of else None, at
            )
        )  # fmt: skip
    return found


def with_bodies(data: bytes, limit: int = U63_MAX) -> list[Batch]:
    found = at_once(data, limit)
    return found[: take_bodies(found, data, 0)]


@pytest.mark.parametrize("wants", WANTS)
def test_picking_is_decoding_and_filtering(wants: set[str]):
    expected = filtered(with_bodies(DATA), wants)
    assert picks(DATA, wants) == (
        expected,
        BODIES_END,
        ALL[-1].end_position,
        *budget_left(expected),
    )
    assert {type(item) for item in expected} == {Batch, Skipped}


def budget_left(items: list[Batch | Skipped]) -> tuple[int]:
    batches = [item for item in items if isinstance(item, Batch)]
    return (U63_MAX - sum(batch.header_length + batch.body_length for batch in batches),)


@pytest.mark.parametrize("wants", WANTS)
def test_picking_stops_at_the_limit(wants: set[str]):
    for number, batch in enumerate(ALL):
        expected = filtered(with_bodies(DATA, limit=batch.position), wants)
        found, offset, position, _ = picks(DATA, wants, limit=batch.position)
        assert (found, position) == (expected, batch.position)
        assert offset == (ALL[number - 1].end_offset if number else FIRST)


def test_picking_takes_as_much_as_there_is_space_for():
    wants = {"t1"}
    whole = [item for item in filtered(with_bodies(DATA), wants) if isinstance(item, Batch)]
    for budget in range(1, 6_000, 89):
        items, _, _, left = picks(DATA, wants, budget=budget)
        found = [item for item in items if isinstance(item, Batch)]
        assert found == whole[: len(found)]
        sizes = [batch.header_length + batch.body_length for batch in found]
        assert sum(sizes[:-1]) < budget
        assert left == budget - sum(sizes)
        assert left <= 0 or found == whole


@pytest.mark.parametrize("wants", WANTS)
def test_bodies_that_are_stepped_over_need_not_be_there(wants: set[str]):
    for end in range(FIRST, BODIES_END, 37):
        items, offset, position, _ = picks(DATA[:end], wants)
        done = [batch for batch in ALL if batch.end_position <= position]
        assert items == filtered(with_bodies(DATA)[: len(done)], wants)
        assert offset == (done[-1].end_offset if done else FIRST)
        rest = ALL[len(done) :]
        if rest and rest[0].offset + rest[0].header_length <= end:  # its body ends it
            assert isinstance(filtered([rest[0]], wants)[0], Batch)
            assert rest[0].offset + rest[0].header_length + rest[0].body_length > end


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.tuples(st.integers(FIRST, BODIES_END - 1), st.integers(1, 255)), min_size=1),
    st.sampled_from(WANTS),
)
def test_picking_checks_every_header_but_only_wanted_bodies(
    flips: list[tuple[int, int]], wants: set[str]
):
    damaged = bytearray(DATA)
    for offset, bits in flips:
        damaged[offset] ^= bits
    data = bytes(damaged)
    good = []
    for batch in at_once(data):
        if isinstance(filtered([batch], wants)[0], Batch) and not take_bodies([batch], data, 0):
            break
        good.append(batch)
    found, offset, position, _ = picks(data, wants)
    assert found == filtered(good, wants)
    assert position == (good[-1].end_position if good else 1)
    assert offset == (good[-1].end_offset if good else FIRST)


def test_answers_are_kept_up_to_a_number():
    wanted = TopicSelection("t5".__eq__)
    for number in range(3 * ANSWERS_KEPT):
        name = f"t{number}".encode()
        tail = len(name).to_bytes(2, "little") + name
        assert wanted.learn(tail, 1) == (1 if number == 5 else -1)
        assert 0 < len(wanted.known) <= ANSWERS_KEPT


def test_the_same_bytes_may_be_another_number_of_topics():
    """Then they say something else: the number is in the header, not among the names."""
    one = publish(1, b"")
    one.topics = ["a"]
    two = publish(2, b"")
    two.topics = ["a", ""]
    head = encode_batch_header(one, FIRST, SEED)
    data = bytes(FIRST) + head + encode_batch_header(two, FIRST + len(head), SEED) + bytes(64)
    for wants in ({"a"}, {""}):
        found = filtered([one, two], wants)
        kinds = [type(item) for item in picks(data, wants)[0]]
        assert kinds == [type(item) for item in found]


# -- units ----------------------------------------------------------------------------------------


def parts(*flags: int) -> list[Batch]:
    found = [publish(position, b"x") for position, _ in enumerate(flags, 1)]
    for batch, flag in zip(found, flags, strict=True):
        batch.flags = flag
    return found


def test_batches_that_belong_together_are_a_unit() -> None:
    a, b, c, d = parts(FLAG_UNIT | FLAG_LATE, FLAG_UNIT, FLAG_LATE, 0)
    assert list(units([a, b, c, d])) == [[a, b, c], [d]]


def test_a_unit_whose_end_is_not_there_is_left_out() -> None:
    a, b, c = parts(0, FLAG_UNIT, FLAG_UNIT)
    assert list(units([a, b, c])) == [[a]]


def test_a_gap_ends_the_unit_that_it_cuts() -> None:
    a, b, c = parts(FLAG_UNIT, FLAG_UNIT, 0)
    gap = Gap(2, 3, "damaged")
    assert list(units([a, gap, c])) == [[a, gap], [c]]
    assert list(units([gap, b, c])) == [[gap], [b, c]]


@pytest.mark.parametrize("flag", [FLAG_UNIT, 1 << 20])
def test_a_flag_that_a_reader_does_not_know_changes_nothing_for_it(flag: int) -> None:
    """1 << 20: any flag is unknown to the release before it."""
    read = []
    for flags in (0, flag):
        disk = SimDisk(random.Random(1))
        disk.lock()
        to = writer(disk, start(disk))
        batches = [publish(position, b"%d" % position * 50, count=2) for position in (1, 3, 5)]
        for batch in batches:
            batch.flags |= flags
        to.write(batches, 5_000)
        to.sync()
        data = disk.read(segment_name(1), 0, DATA_AT + 4096)
        header = decode_segment_header(data)
        assert isinstance(header, SegmentHeader)
        block = 0, FIRST, header.seed, 1, 7, 1 << 20
        found = decode_headers(data, *block)
        assert take_bodies(found, data, 0) == 3
        wanted = TopicSelection({"orders"}.__contains__)
        picked, *_ = pick_headers(data, *block, wanted)
        skimmed, *_ = skim_headers(data, *block, Sparse(2048))
        for batch in [*found, *picked, *skimmed]:
            assert isinstance(batch, Skipped) or batch.flags & flags == flags
            if not isinstance(batch, Skipped):
                batch.flags &= ~flags
        read.append((found, picked, skimmed))
    assert read[0] == read[1]
