"""Claims about plans: they cover the stretch, are cut by bytes, and refuse what is not there."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.logs import INSTANCE, JournalMaker
from zbroker.clock import format_time, to_datetime
from zbroker.delivery import ranges as live
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin, format_bookmark, format_vector, publisher_id
from zbroker.log import archive
from zbroker.log.disk import RealDisk
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Cursor, Log
from zbroker.spark import LogRange, directories, plan_ranges, replay
from zbroker.spark.splitter import SplitMark, at_most, refine, split

MAKER = publisher_id("maker")


@pytest.fixture
def maker(journal: JournalMaker) -> JournalMaker:
    for _ in range(20):
        journal.batch(["a", "b", "a", "c"] * 5)
        journal.control()
    return journal


def covered(ranges: list[LogRange]) -> tuple[int, int]:
    """The stretch that `ranges` cover, one after the other."""
    assert all(low.end == high.first for low, high in pairwise(ranges))
    return ranges[0].first, ranges[-1].end


def test_the_ranges_cover_everything_without_overlap(maker: JournalMaker) -> None:
    ranges = plan_ranges(maker.directory, min_partitions=7)
    assert len(ranges) == 7
    assert covered(ranges) == (1, 20 * 21 + 1)


def test_the_ranges_have_about_equal_bytes(maker: JournalMaker) -> None:
    sizes = [part.bytes for part in plan_ranges(maker.directory, min_partitions=4)]
    assert max(sizes) < 1.3 * min(sizes)


def test_a_data_directory_is_the_same_as_its_journal(maker: JournalMaker) -> None:
    assert plan_ranges(maker.directory.parent) == plan_ranges(maker.directory)


def test_a_running_instance_cuts_at_the_same_places(maker: JournalMaker) -> None:
    log = Log(maker.directory)
    plan = live.plan(log, live.Point(1), log.end(), 4)
    cuts = _result(plan)
    assert cuts == [(part.first, part.end, part.bytes) for part in plan_ranges(maker.directory)]


def _result(plan: Iterator[None]) -> object:
    while True:
        try:
            next(plan)
        except StopIteration as end:
            return end.value


def test_a_range_survives_pickling(maker: JournalMaker) -> None:
    ranges = plan_ranges(maker.directory, topic="a")
    again = pickle.loads(pickle.dumps(ranges))
    assert again == ranges
    assert [part.job for part in again] == [part.job for part in ranges]


def test_two_plans_are_equal_but_their_readers_are_not(maker: JournalMaker) -> None:
    one, other = plan_ranges(maker.directory), plan_ranges(maker.directory)
    assert one == other
    assert one[0].job != other[0].job


def test_since_a_bookmark_begins_after_it(maker: JournalMaker) -> None:
    wanted = maker.messages[30]
    ranges = plan_ranges(maker.directory, since=format_bookmark(MAKER, wanted.sequence))
    assert covered(ranges)[0] == wanted.position + 1


def test_until_a_bookmark_includes_it(maker: JournalMaker) -> None:
    wanted = maker.messages[30]
    ranges = plan_ranges(maker.directory, until=format_bookmark(MAKER, wanted.sequence))
    assert covered(ranges) == (1, wanted.position + 1)


def test_since_a_list_begins_after_the_oldest_that_is_found(maker: JournalMaker) -> None:
    since = [format_bookmark(MAKER, sequence) for sequence in (90, 40, 9_999)]
    assert covered(plan_ranges(maker.directory, since=since))[0] == maker.messages[39].position + 1


@pytest.mark.parametrize("form", [format_time, to_datetime])
def test_times_begin_at_them_and_end_before_them(maker: JournalMaker, form) -> None:
    first, last = maker.messages[33], maker.messages[77]
    ranges = plan_ranges(maker.directory, since=form(first.time_ns), until=form(last.time_ns))
    assert covered(ranges) == (first.position, last.position)


def test_a_time_before_the_log_is_its_beginning(maker: JournalMaker) -> None:
    early = to_datetime(maker.messages[0].time_ns) - timedelta(days=1)
    assert covered(plan_ranges(maker.directory, since=early)) == (1, 421)


def test_vectors_name_positions(maker: JournalMaker) -> None:
    here = Origin(INSTANCE, 1)
    ranges = plan_ranges(
        maker.directory, since=format_vector({here: 10}), until=format_vector({here: 99})
    )
    assert covered(ranges) == (11, 100)


def test_a_stretch_with_nothing_in_it_has_no_ranges(maker: JournalMaker) -> None:
    assert plan_ranges(maker.directory, since="now") == []
    late = to_datetime(maker.time_ns) + timedelta(days=1)
    assert plan_ranges(maker.directory, since=late) == []


def test_few_messages_make_few_ranges(tmp_path: Path) -> None:
    maker = JournalMaker(tmp_path / "journal")
    maker.batch(["a"] * 3)
    assert [(part.first, part.end) for part in plan_ranges(maker.directory, min_partitions=8)] == [
        (1, 2),
        (2, 3),
        (3, 4),
    ]


def test_one_batch_is_cut_within(tmp_path: Path) -> None:
    maker = JournalMaker(tmp_path / "journal")
    maker.batch(["a"] * 100)
    ranges = plan_ranges(maker.directory, min_partitions=4)
    assert [part.end - part.first for part in ranges] == [25, 25, 25, 25]


@pytest.mark.parametrize(
    ("since", "code"),
    [
        (format_bookmark(MAKER, 5_000), "bookmark_not_found"),
        (format_bookmark(1, 1), "bookmark_not_found"),
        (format_vector({Origin(5, 1): 3}), "bookmark_not_found"),
        (format_vector({Origin(INSTANCE, 1): 5_000}), "bookmark_not_found"),
        ("yesterday", "bad_bookmark"),
        ("20131399T000000Z", "bad_bookmark"),
    ],
)
def test_a_point_that_cannot_be_honoured_is_an_error(
    maker: JournalMaker, since: str, code: str
) -> None:
    with pytest.raises(ZBrokerError) as caught:
        plan_ranges(maker.directory, since=since)
    assert caught.value.code == code


def test_a_removed_beginning_is_an_error(tmp_path: Path) -> None:
    maker = JournalMaker(tmp_path / "journal")
    while maker.serial < 3:
        maker.batch(["a"] * 100, size=2_000)
    (maker.directory / "0000000001.journal").unlink()
    with pytest.raises(ZBrokerError) as caught:
        plan_ranges(maker.directory, since=format_vector({Origin(INSTANCE, 1): 1}))
    assert caught.value.code == "bookmark_expired"


def test_damage_is_an_error_when_planning(maker: JournalMaker) -> None:
    segment = maker.directory / "0000000001.journal"
    data = bytearray(segment.read_bytes())
    at = data.index(b"zbRB", 20_000)
    data[at : at + 64] = bytes(64)
    segment.write_bytes(data)
    with pytest.raises(ZBrokerError) as caught:
        plan_ranges(maker.directory)
    assert caught.value.code == "gap"


def test_a_directory_without_segments_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZBrokerError) as caught:
        plan_ranges(tmp_path)
    assert caught.value.code == "no_journal"


def test_a_bad_pattern_is_refused_when_planning(maker: JournalMaker) -> None:
    with pytest.raises(ZBrokerError) as caught:
        plan_ranges(maker.directory, topic="(", regex=True)
    assert caught.value.code == "bad_filter"


@given(
    st.lists(st.integers(1, 50), max_size=30), st.lists(st.integers(100, 9_999)), st.integers(1, 12)
)
def test_any_cut_covers_the_stretch_with_all_bytes(
    counts: list[int], sizes: list[int], parts: int
) -> None:
    marks = [SplitMark(1, 0)]
    for count, size in zip(counts, sizes, strict=False):
        marks.append(SplitMark(marks[-1].position + count, marks[-1].total + size))
    cuts = refine(split(marks, parts), parts)
    messages = marks[-1].position - 1
    assert len(cuts) == min(parts, messages)
    assert sum(size for _, _, size in cuts) == marks[-1].total
    assert [first for first, _, _ in cuts[1:]] == [end for _, end, _ in cuts[:-1]]
    assert not cuts or (cuts[0][0], cuts[-1][1]) == (1, marks[-1].position)


def test_a_range_is_frozen(maker: JournalMaker) -> None:
    part = plan_ranges(maker.directory)[0]
    with pytest.raises(AttributeError):
        part.first = 5  # type: ignore[misc]
    assert replace(part, first=5).first == 5


@pytest.mark.parametrize("topic", [None, "rare"])
def test_a_long_log_is_planned_from_its_summaries_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str | None
) -> None:
    maker = JournalMaker(tmp_path / "journal")
    while maker.serial < 6:
        maker.batch(["common"] * 50, size=1_000)
    maker.batch(["rare"])
    with closing(SegmentPlaces(RealDisk(maker.directory))) as places:
        for serial in range(1, 6):
            archive.summary(Log(places=places), serial, keep=True)
    exact = plan_ranges(maker.directory, min_partitions=4)
    monkeypatch.setattr(directories, "WALKED_BYTES", 0)
    sealed = max(cursor.position for cursor in Log(maker.directory).starts)
    walked: list[int] = []

    def headers(log: Log, cursor: Cursor, limit: int) -> Iterator[object]:
        walked.append(cursor.position)
        return real(log, cursor, limit)

    real = Log.headers
    monkeypatch.setattr(Log, "headers", headers)
    plan = plan_ranges(maker.directory, min_partitions=4, topic=topic)
    assert all(position >= sealed for position in walked)
    assert covered(plan) == covered(exact)
    found = [message.position for part in plan for message in replay(part)]
    assert found == [m.position for m in maker.messages if topic in (None, m.topic)]
    sizes = [part.bytes for part in plan]
    assert topic or max(sizes) < 1.3 * min(sizes)
    maker.close()


@pytest.mark.parametrize("messages", [1, 3, 4, 9, 10, 11])
def test_no_range_has_more_positions_than_allowed(messages: int) -> None:
    cuts = at_most([(5, 15, 1_000), (15, 18, 30)], messages)
    assert max(end - first for first, end, _ in cuts) <= messages
    assert [cuts[0][0], *(end for _, end, _ in cuts)] == [*(first for first, _, _ in cuts), 18]
    assert len(cuts) == -(-10 // messages) + -(-3 // messages)
