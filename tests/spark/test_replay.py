"""Claims about ranges of a directory: every matching message once, in order, or an error."""

from __future__ import annotations

import pickle
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.log.build import finish
from tests.spark.logs import JournalMaker, Written
from zbroker.client.message import Message
from zbroker.clock import to_datetime
from zbroker.errors import ZBrokerError
from zbroker.ids import format_bookmark, publisher_id
from zbroker.log import archive
from zbroker.log.disk import RealDisk
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Log
from zbroker.spark import plan_ranges, replay, replay_batches
from zbroker.spark.replay import reader_name


@pytest.fixture
def maker(journal: JournalMaker) -> JournalMaker:
    while journal.serial < 3:
        journal.batch(["a.x", "b.x", "a.x", "c"] * 5, size=500)
        journal.control()
        journal.batch(["only"] * 50, size=1_000)
    return journal


def written(message: Message) -> Written:
    return Written(message.topic, message.data, message.position, message.sequence, message.time_ns)


@pytest.mark.parametrize("partitions", [1, 3, 8, 1_000])
def test_all_ranges_together_are_everything_in_order(maker: JournalMaker, partitions: int) -> None:
    ranges = plan_ranges(maker.directory, min_partitions=partitions)
    assert [written(message) for part in ranges for message in replay(part)] == maker.messages


@pytest.mark.parametrize(
    ("topic", "regex", "matching"),
    [
        ("a.x", False, {"a.x"}),
        (r".*\.x", True, {"a.x", "b.x"}),
        ("a", True, set()),
        ("only", False, {"only"}),
    ],
)
def test_a_topic_chooses_messages(
    maker: JournalMaker, topic: str, regex: bool, matching: set[str]
) -> None:
    ranges = plan_ranges(maker.directory, min_partitions=5, topic=topic, regex=regex)
    expected = [message for message in maker.messages if message.topic in matching]
    assert [written(message) for part in ranges for message in replay(part)] == expected


def test_a_range_begins_in_the_middle_of_a_batch(maker: JournalMaker) -> None:
    part = replace(plan_ranges(maker.directory, min_partitions=1)[0], first=8, end=12)
    assert [written(message) for message in replay(part)] == maker.messages[7:11]


def test_a_message_has_all_its_names(maker: JournalMaker) -> None:
    message = next(replay(plan_ranges(maker.directory)[0]))
    expected = maker.messages[0]
    assert message.publisher == publisher_id("maker")
    assert message.bookmark == format_bookmark(publisher_id("maker"), expected.sequence)
    assert message.time == to_datetime(expected.time_ns)


def test_batches_are_lists_of_the_same_messages(maker: JournalMaker) -> None:
    part = plan_ranges(maker.directory, min_partitions=1)[0]
    batches = list(replay_batches(part))
    assert len(batches) > 10
    assert [written(message) for batch in batches for message in batch] == maker.messages


def error_of(part) -> str:
    with pytest.raises(ZBrokerError) as caught:
        list(replay(part))
    return caught.value.code


def test_a_removed_range_is_an_error(maker: JournalMaker) -> None:
    first = plan_ranges(maker.directory)[0]
    (maker.directory / "0000000001.journal").unlink()
    assert error_of(first) == "bookmark_expired"


def test_a_damaged_body_is_an_error(maker: JournalMaker) -> None:
    part = plan_ranges(maker.directory, min_partitions=1)[0]
    segment = maker.directory / "0000000001.journal"
    data = bytearray(segment.read_bytes())
    data[data.index(b"77:....")] ^= 1
    segment.write_bytes(data)
    assert error_of(part) == "gap"


def test_damage_of_other_topics_is_an_error_only_where_a_header_is_lost(
    maker: JournalMaker,
) -> None:
    """Who knows what was there?"""
    part = plan_ranges(maker.directory, min_partitions=1, topic="only")[0]
    segment = maker.directory / "0000000001.journal"
    data = bytearray(segment.read_bytes())
    payload = data.index(b"77:....")
    data[payload] ^= 1
    segment.write_bytes(data)
    expected = [message for message in maker.messages if message.topic == "only"]
    assert [written(message) for message in replay(part)] == expected
    header = data.rindex(b"zbRB", 0, payload)
    data[header + 20] ^= 1
    segment.write_bytes(data)
    assert error_of(part) == "gap"


@pytest.mark.parametrize("summarized", [False, True])
def test_a_rare_topic_is_found_in_every_kind_of_segment(tmp_path: Path, summarized: bool) -> None:
    maker = JournalMaker(tmp_path / "journal")
    while maker.serial < 3:
        maker.batch(["common"] * 50, size=1_000)
    maker.batch(["common", "rare", "common"])
    while maker.serial < 5:
        maker.batch(["common"] * 50, size=1_000)
    if summarized:
        with closing(SegmentPlaces(RealDisk(maker.directory))) as places:
            for serial in range(1, 5):
                archive.summary(Log(places=places), serial, keep=True)
    ranges = plan_ranges(maker.directory, min_partitions=3, topic="rare")
    expected = [message for message in maker.messages if message.topic == "rare"]
    assert [written(message) for part in ranges for message in replay(part)] == expected
    maker.close()


def test_a_log_that_became_shorter_is_an_error(maker: JournalMaker) -> None:
    part = plan_ranges(maker.directory, min_partitions=1)[0]
    assert error_of(replace(part, end=part.end + 5)) == "gap"


def test_another_log_in_the_same_place_is_an_error(maker: JournalMaker) -> None:
    part = plan_ranges(maker.directory, min_partitions=1)[0]
    assert error_of(replace(part, instance=5)) == "bookmark_not_found"


def test_reader_names_carry_the_job_and_never_collide() -> None:
    names = {reader_name("abcd") for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("spark-abcd-driver-") for name in names)


# -- archived and packed segments --


def archived(maker: JournalMaker, directory: Path) -> Path:
    """Two sealed segments are moved there, one of them packed."""
    with closing(SegmentPlaces(RealDisk(maker.directory), RealDisk(directory))) as places:
        for serial, steps in ((1, archive.pack), (1, archive.copy), (2, archive.copy)):
            finish(steps(places, serial))
        for place in places.copies():
            if place.serial < 3 and not place.archived:
                places.unlink(place)
    return directory


def test_archived_and_packed_segments_are_replayed(maker: JournalMaker) -> None:
    expected = plan_ranges(maker.directory)
    directory = archived(maker, maker.directory.parent / "archive")
    for source in (maker.directory, maker.directory.parent):
        ranges = pickle.loads(pickle.dumps(plan_ranges(source)))
        assert [(part.first, part.end) for part in ranges] == [(p.first, p.end) for p in expected]
        assert {part.archive for part in ranges} == {str(directory)}
        assert [written(message) for part in ranges for message in replay(part)] == maker.messages


def test_an_archive_directory_elsewhere_is_named(maker: JournalMaker, tmp_path: Path) -> None:
    directory = archived(maker, tmp_path / "far" / "away")
    ranges = plan_ranges(maker.directory, archive=directory, min_partitions=3)
    assert [written(message) for part in ranges for message in replay(part)] == maker.messages


def test_a_plan_from_the_beginning_never_begins_later(maker: JournalMaker, tmp_path: Path) -> None:
    archived(maker, tmp_path / "far")
    for since in ("epoch", to_datetime(1)):
        with pytest.raises(ZBrokerError, match="segments 1 to 2 of") as caught:
            plan_ranges(maker.directory, since=since)
        assert caught.value.code == "segments_missing"
    later = maker.messages[-3]
    ranges = plan_ranges(maker.directory, since=to_datetime(later.time_ns))
    assert [written(message) for part in ranges for message in replay(part)] == maker.messages[-3:]


def test_an_archive_directory_that_is_not_there_is_refused(maker: JournalMaker) -> None:
    with pytest.raises(ZBrokerError, match="no archive directory") as caught:
        plan_ranges(maker.directory, archive=maker.directory / "nowhere")
    assert caught.value.code == "no_journal"
