"""Claims about the streaming reader that need no Spark session: a fake log, offsets in and out."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs package pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from tests.spark.logs import JournalMaker
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin
from zbroker.spark import LogRange, plan_ranges
from zbroker.spark.arrow import schema_of
from zbroker.spark.source import readers
from zbroker.spark.source.offsets import LogState, Offset
from zbroker.spark.source.options import parse
from zbroker.spark.source.places import PlanRequest
from zbroker.spark.source.readers import StreamSourceReader, read_range

HERE = Origin(0xABC, 1)
BYTES = 10  # of each position of the fake log


class FakeLease:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def hold(self, position: int) -> None:
        self.calls.append(("hold", position))

    def move(self, position: int) -> None:
        self.calls.append(("move", position))

    def release(self) -> None:
        self.calls.append(("release", 0))


class FakePlace:
    """A log that says what it is asked to say; counts how often it is asked."""

    def __init__(self, log_start: int = 1, head: int = 101) -> None:
        self.now: LogState | ZBrokerError = LogState(HERE, log_start, head)
        self.asked = 0
        self.given = FakeLease()
        self.ends: dict[Origin, int] = {}  # of older generations

    def state(self) -> LogState:
        self.asked += 1
        if isinstance(self.now, ZBrokerError):
            raise self.now
        return self.now

    def position(self, point: object, state: LogState) -> int:
        return {"now": state.head, "0": state.log_start}.get(str(point)) or int(str(point))

    def kept(self, offset: Offset, state: LogState) -> int | None:
        end = self.ends.get(offset.origin)
        return None if end is None else min(offset.next, end)

    def plan(self, first: int, end: int, state: LogState, wanted: PlanRequest) -> list[LogRange]:
        step = -(-(end - first) // wanted.parts)
        return [
            LogRange("fake", at, min(at + step, end), BYTES * (min(at + step, end) - at),
                  wanted.topic, wanted.regex, *state.origin)
            for at in range(first, end, step)
        ]  # fmt: skip

    def lease(self) -> FakeLease:
        return self.given

    def close(self) -> None:
        pass


def reader(place: FakePlace, **options: str) -> StreamSourceReader:
    made = StreamSourceReader(parse({"endpoint": "tcp://nowhere:1", **options}), ["position"])
    made._log = place  # type: ignore[assignment]
    return made


def at(position: int, origin: Origin = HERE) -> dict[str, Any]:
    return Offset(origin, position).as_json()


def spans(partitions: Any) -> list[tuple[int, int]]:
    return [(one.value.first, one.value.end) for one in partitions]


@pytest.mark.parametrize(
    ("options", "first"),
    [({}, 101), ({"startingOffsets": "earliest"}, 5), ({"startingBookmark": "50"}, 50)],
)
def test_a_new_query_begins_where_it_was_asked(options: dict[str, str], first: int) -> None:
    assert reader(FakePlace(log_start=5), **options).initialOffset() == at(first)


def test_a_new_query_that_would_begin_below_the_log_start_fails_unless_it_accepts_losses() -> None:
    with pytest.raises(ZBrokerError, match="positions 3 to 4 were removed"):
        reader(FakePlace(log_start=5), startingBookmark="3").initialOffset()
    accepted = reader(FakePlace(log_start=5), startingBookmark="3", failOnDataLoss="false")
    assert accepted.initialOffset() == at(5)


@pytest.mark.parametrize(
    ("limit", "next_"),
    [
        (ReadAllAvailable(), 101),
        (ReadMaxRows(30), 41),
        (ReadMaxRows(3_000), 101),
        (ReadMaxBytes(300), 41),
        (ReadMaxBytes(5), 12),
        (ReadMaxBytes(5_000), 101),
    ],
)
def test_a_limit_of_spark_is_kept(limit: Any, next_: int) -> None:
    assert reader(FakePlace()).latestOffset(at(11), limit) == at(next_)


def test_both_limits_of_the_options_hold_together() -> None:
    made = reader(FakePlace(), maxOffsetsPerTrigger="50", maxBytesPerTrigger="100")
    assert made.latestOffset(at(1), made.getDefaultReadLimit()) == at(11)
    made = reader(FakePlace(), maxOffsetsPerTrigger="5", maxBytesPerTrigger="100")
    assert made.latestOffset(at(1), made.getDefaultReadLimit()) == at(6)


def test_all_available_is_all_whatever_the_options_say() -> None:
    made = reader(FakePlace(), maxOffsetsPerTrigger="50", maxBytesPerTrigger="100")
    assert made.latestOffset(at(1), ReadAllAvailable()) == at(101)


def test_the_head_never_goes_back() -> None:
    place = FakePlace()
    made = reader(place)
    assert made.latestOffset(at(1), ReadAllAvailable()) == at(101)
    place.now = LogState(HERE, 1, 60)
    made._known_at = -1e9
    assert made.latestOffset(at(101), ReadAllAvailable()) == at(101)
    assert made.latestOffset(at(70), ReadAllAvailable()) == at(101)


def test_a_start_beyond_the_head_is_kept() -> None:
    assert reader(FakePlace(head=60)).latestOffset(at(80), ReadAllAvailable()) == at(80)


def test_the_head_is_asked_for_once_in_a_while() -> None:
    place = FakePlace()
    made = reader(place)
    for _ in range(60):
        made.latestOffset(at(101), ReadAllAvailable())
        made.reportLatestOffset()
    assert place.asked <= 2 + int(60 * 0.05 / readers.HEAD_KEPT_S)


def test_the_reported_head_is_what_was_seen() -> None:
    made = reader(FakePlace())
    assert made.reportLatestOffset() is None
    made.latestOffset(at(1), ReadMaxRows(5))
    assert made.reportLatestOffset() == at(101)


def test_available_now_stops_at_what_was_there() -> None:
    place = FakePlace()
    made = reader(place, maxOffsetsPerTrigger="60")
    made.prepareForTriggerAvailableNow()
    place.now = LogState(HERE, 1, 500)
    made._known_at = -1e9
    ends, start = [], at(1)
    while (end := made.latestOffset(start, made.getDefaultReadLimit())) != start:
        ends.append(end["next"])
        start = end
    assert ends == [61, 101]


def test_partitions_follow_from_offsets_alone() -> None:
    made = reader(FakePlace(), minPartitions="2")
    assert spans(made.partitions(at(11), at(31))) == [(11, 21), (21, 31)]
    assert list(made.partitions(at(11), at(11))) == []


@pytest.mark.parametrize(
    ("start", "end", "code"),
    [
        (at(3), at(30), "bookmark_expired"),
        (at(30), at(200), "bookmark_not_found"),
        (at(30, Origin(7, 1)), at(40, Origin(7, 1)), "bookmark_not_found"),
        (at(30, Origin(0xABC, 9)), at(40), "bookmark_not_found"),
    ],
)
def test_a_batch_that_is_not_there_fails_when_it_is_planned(
    start: dict[str, Any], end: dict[str, Any], code: str
) -> None:
    with pytest.raises(ZBrokerError) as caught:
        reader(FakePlace(log_start=5)).partitions(start, end)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (at(3), at(30), [(5, 30)]),
        (at(2), at(4), []),
        (at(30), at(200), [(30, 101)]),
        (at(30, Origin(7, 1)), at(40, Origin(7, 1)), []),
        (at(30, Origin(7, 1)), at(40), [(5, 40)]),
    ],
)
def test_accepted_losses_leave_what_is_there(
    start: dict[str, Any], end: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    made = reader(FakePlace(log_start=5), failOnDataLoss="false")
    assert spans(made.partitions(start, end)) == expected


OLD = Origin(0xABC, 1)


def restarted() -> FakePlace:
    """A log that lost [40, 60) and has a generation since, from 40 on."""
    place = FakePlace()
    place.now = LogState(Origin(0xABC, 2), 1, 101)
    place.ends = {OLD: 40}
    return place


@pytest.mark.parametrize(
    ("start", "first"), [(at(30, OLD), 30), (at(40, OLD), 40), (at(60, OLD), 40)]
)
def test_after_a_new_generation_a_query_goes_on_with_all_that_came_after_the_old_one(
    start: dict[str, Any], first: int
) -> None:
    made = reader(restarted(), failOnDataLoss="false")
    end = made.latestOffset(start, ReadAllAvailable())
    assert end == at(101, Origin(0xABC, 2))
    assert spans(made.partitions(start, end)) == [(first, 101)]


def test_a_batch_that_was_planned_before_a_new_generation_has_what_is_left_of_it() -> None:
    """Spark plans the last batch of its checkpoint again: it may not have been read."""
    made = reader(restarted(), failOnDataLoss="false")
    assert spans(made.partitions(at(20, OLD), at(60, OLD))) == [(20, 40)]
    assert spans(made.partitions(at(20, OLD), at(30, OLD))) == [(20, 30)]
    assert spans(made.partitions(at(45, OLD), at(60, OLD))) == []


def test_a_generation_that_the_log_never_had_is_followed_from_the_oldest_message() -> None:
    made = reader(restarted(), failOnDataLoss="false")
    other = at(60, Origin(0xABC, 7))
    assert made.latestOffset(other, ReadMaxRows(10)) == at(11, Origin(0xABC, 2))


def test_another_log_under_a_checkpoint_fails_unless_losses_are_accepted() -> None:
    other = at(50, Origin(7, 1))
    with pytest.raises(ZBrokerError, match="the checkpoint is of log 0000000000000007"):
        reader(FakePlace()).latestOffset(other, ReadAllAvailable())
    accepted = reader(FakePlace(log_start=5), failOnDataLoss="false")
    assert accepted.latestOffset(other, ReadMaxRows(10)) == at(15)


def test_a_broker_that_is_down_ends_the_query_with_its_error() -> None:
    place = FakePlace()
    place.now = ZBrokerError("timeout", "no session in 15 s")
    with pytest.raises(ZBrokerError, match="no session"):
        reader(place).latestOffset(at(1), ReadAllAvailable())


def test_the_lease_begins_with_the_first_batch_and_moves_by_commits_only() -> None:
    place = FakePlace()
    made = reader(place)
    made.partitions(at(11), at(31))
    made.latestOffset(at(31), ReadAllAvailable())
    assert place.given.calls == [("hold", 11)]
    made.commit(at(31))
    made.stop()
    assert place.given.calls == [("hold", 11), ("move", 31), ("release", 0)]


def test_a_pickled_reader_leaves_connection_and_lease_behind() -> None:
    place = FakePlace()
    made = reader(place, startingOffsets="earliest")
    made.initialOffset()
    copy = pickle.loads(pickle.dumps(made))
    assert copy._lease is None
    assert copy._known is None
    assert copy._options == made._options


def test_a_constructor_opens_nothing() -> None:
    """There is no one at that address."""
    StreamSourceReader(parse({"endpoint": "tcp://127.0.0.1:1"}), ["position"]).stop()


# -- tasks ------------------------------------------------------------------------------------


@pytest.fixture
def maker(journal: JournalMaker) -> JournalMaker:
    while journal.serial < 3:
        journal.batch(["a"] * 50, size=1_000)
    return journal


def positions(maker: JournalMaker, part: LogRange | None, **options: str) -> list[int]:
    given = parse({"journal": str(maker.directory), **options})
    batches = read_range(part, schema_of(["position"]), given)
    return [position for batch in batches for position in batch.column(0).to_pylist()]


def test_a_plan_without_ranges_reads_nothing(maker: JournalMaker) -> None:
    assert positions(maker, None) == []


def test_a_pruned_range_fails_when_it_is_read(maker: JournalMaker) -> None:
    part = plan_ranges(maker.directory, min_partitions=1)[0]
    (maker.directory / "0000000001.journal").unlink()
    with pytest.raises(ZBrokerError) as caught:
        positions(maker, part)
    assert caught.value.code == "bookmark_expired"


def test_an_accepted_loss_is_skipped_when_it_is_read(maker: JournalMaker) -> None:
    part, last = plan_ranges(maker.directory, min_partitions=1)[0], maker.messages[-1].position
    (maker.directory / "0000000001.journal").unlink()
    found = positions(maker, part, failOnDataLoss="false")
    assert found == list(range(found[0], last + 1))
    assert found[0] > 50


def test_a_range_that_was_pruned_whole_is_empty_then(maker: JournalMaker) -> None:
    part = plan_ranges(maker.directory, min_partitions=20)[0]
    (maker.directory / "0000000001.journal").unlink()
    assert positions(maker, part, failOnDataLoss="false") == []


def test_damage_is_no_accepted_loss(maker: JournalMaker) -> None:
    part = plan_ranges(maker.directory, min_partitions=1)[0]
    segment = maker.directory / "0000000001.journal"
    data = bytearray(segment.read_bytes())
    data[data.index(b"77:....")] ^= 1
    segment.write_bytes(data)
    with pytest.raises(ZBrokerError) as caught:
        positions(maker, part, failOnDataLoss="false")
    assert caught.value.code == "gap"
