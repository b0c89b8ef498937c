"""Claims about plans and replays of a running instance, and of both ways inside Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import zbroker
from tests.spark.logs import JournalMaker
from zbroker.client.message import Message
from zbroker.errors import ZBrokerError
from zbroker.spark import (
    LogRange,
    NotHeldWarning,
    held,
    log_hold,
    plan_ranges,
    replay,
    replay_arrow,
    replay_batches,
)

COUNT = 5_000
TOPICS = ("a.x", "b.x", "c")


@pytest.fixture(scope="module")
def broker() -> Iterator[zbroker.LocalBroker]:
    with zbroker.LocalBroker(settings={"journal": {"segment_size": "1MiB"}}) as local:
        with zbroker.connect(local.url, name="filler") as client:
            for number in range(COUNT - 1):
                client.publish(TOPICS[number % 3], f"{number}:".encode().ljust(400, b"."))
                if number % 1_000 == 998:  # so that no group is larger than a segment
                    client.flush(timeout=30)
            # after a state snapshot that the messages before it may have caused: the log is
            client.publish(TOPICS[(COUNT - 1) % 3], b"last").wait(30)
        yield local


def facts(message: Message) -> tuple[Any, ...]:
    return (message.topic, message.data, message.position, message.bookmark, message.time_ns)


def all_of(ranges: list[LogRange]) -> list[tuple[Any, ...]]:
    return [facts(message) for part in ranges for message in replay(part)]


@pytest.mark.process
def test_a_running_instance_is_planned_like_its_directory(broker: zbroker.LocalBroker) -> None:
    live, files = (
        plan_ranges(broker.url, min_partitions=5),
        plan_ranges(broker.data_dir, min_partitions=5),
    )
    assert [replace(part, source="") for part in live] == [
        replace(part, source="") for part in files
    ]
    assert len(live) == 5


@pytest.mark.process
@pytest.mark.parametrize(("topic", "regex"), [(None, False), ("a.x", False), (r".*\.x", True)])
def test_both_ways_replay_the_same(
    broker: zbroker.LocalBroker, topic: str | None, regex: bool
) -> None:
    live = all_of(plan_ranges(broker.url, topic=topic, regex=regex))
    assert live == all_of(plan_ranges(broker.data_dir, topic=topic, regex=regex))
    assert len(live) == {None: COUNT, "a.x": 1_667}.get(topic, 3_334)


@pytest.mark.process
@pytest.mark.parametrize(
    ("topic", "regex", "filter_"),
    [(None, False, ""), ("a.x", False, ""), (r".*\.x", True, "TOPIC_NAME() = 'b.x'")],
)
def test_record_batches_are_the_same_both_ways(
    broker: zbroker.LocalBroker, topic: str | None, regex: bool, filter_: str
) -> None:
    pytest.importorskip("pyarrow", reason="needs package pyarrow")
    rows = []
    for source in (broker.url, broker.data_dir):
        ranges = plan_ranges(source, topic=topic, regex=regex, filter=filter_)
        found = [
            row for part in ranges for batch in replay_arrow(part) for row in batch.to_pylist()
        ]
        rows.append(found)
    assert rows[0] == rows[1]
    expected = plan_ranges(broker.url, topic=topic, regex=regex, filter=filter_)
    assert [row["bookmark"] for row in rows[0]] == [fact[3] for fact in all_of(expected)]
    assert rows[0]


@pytest.mark.process
def test_a_directory_and_its_instance_together_are_cut_at_one_position(
    broker: zbroker.LocalBroker, tmp_path: Path
) -> None:
    """The directory has the sealed segments, as an archive does."""
    copy = tmp_path / "archive"
    copy.mkdir()
    for segment in sorted((broker.data_dir / "journal").glob("*.journal"))[:-1]:
        shutil.copy(segment, copy)
    plan = plan_ranges(broker.url, journal=copy, min_partitions=4)
    assert {part.is_live for part in plan} == {False, True}
    assert [part.is_live for part in plan] == sorted(part.is_live for part in plan)
    assert all(low.end == high.first for low, high in pairwise(plan))
    assert all_of(plan) == all_of(plan_ranges(broker.url))
    middle = all_of(plan)[2_500][3]
    for since, until in ((middle, "now"), ("epoch", middle)):
        some = plan_ranges(broker.url, since, until, journal=copy)
        assert all_of(some) == all_of(plan_ranges(broker.url, since, until))


@pytest.mark.process
def test_a_directory_of_another_log_is_not_put_before_an_instance(
    broker: zbroker.LocalBroker, tmp_path: Path
) -> None:
    maker = JournalMaker(tmp_path / "journal")
    maker.batch(["a"])
    maker.close()
    with pytest.raises(ZBrokerError, match="has the log of 1122334455667788") as caught:
        plan_ranges(broker.url, journal=maker.directory)
    assert caught.value.code == "bookmark_not_found"


@pytest.mark.process
def test_what_a_plan_needs_is_held_while_a_job_runs(broker: zbroker.LocalBroker) -> None:
    ranges = [replace(part, first=part.first + 1) for part in plan_ranges(broker.url)[:1]]
    with held(ranges) as is_held:
        assert is_held
        holders = {one["who"]: one["position"] for one in broker.ask("/holders")["holders"]}
        assert holders[f"spark-{ranges[0].job}"] == 2
    left = [one["who"] for one in broker.ask("/holders")["holders"]]
    assert f"spark-{ranges[0].job}" not in left


@pytest.mark.process
def test_a_lease_that_is_not_granted_is_a_warning_that_says_what_it_means(
    broker: zbroker.LocalBroker, tmp_path: Path
) -> None:
    token = broker.data_dir / "run" / "admin.token"
    away = token.rename(tmp_path / "token")
    try:
        with (
            pytest.warns(NotHeldWarning, match="retention"),
            held(plan_ranges(broker.url)) as is_held,
        ):
            assert not is_held
    finally:
        away.rename(token)


@pytest.mark.process
def test_a_lease_moves_with_what_is_committed(
    broker: zbroker.LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_hold, "MOVES_S", 0.05)
    lease = log_hold.LogHold(broker.url, "spark-mover", ttl_s=60)
    try:
        assert lease.hold(5)
        lease.move(9)
        found = 0
        for _ in range(200):
            holders = broker.ask("/holders")["holders"]
            found = next(one["position"] for one in holders if one["who"] == "spark-mover")
            if found == 9:
                break
        assert found == 9
    finally:
        lease.release()


@pytest.mark.process
def test_a_range_of_any_positions_is_replayed_exactly(broker: zbroker.LocalBroker) -> None:
    part = plan_ranges(broker.url, min_partitions=1)[0]
    positions = [message.position for message in replay(part)]
    for first, end in ((2, 3), (17, 1_234), (part.end - 50, part.end)):
        found = [message.position for message in replay(replace(part, first=first, end=end))]
        assert found == [position for position in positions if first <= position < end]
        assert found


@pytest.mark.process
def test_a_range_of_another_log_is_an_error(broker: zbroker.LocalBroker) -> None:
    part = plan_ranges(broker.url, min_partitions=1)[0]
    with pytest.raises(ZBrokerError) as caught:
        list(replay(replace(part, instance=7)))
    assert caught.value.code == "bookmark_not_found"


@pytest.mark.process
def test_a_point_that_cannot_be_honoured_is_an_error(broker: zbroker.LocalBroker) -> None:
    with pytest.raises(ZBrokerError) as caught:
        plan_ranges(broker.url, since="1|1|")
    assert caught.value.code == "bookmark_not_found"


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.parametrize("way", ["url", "directory"])
def test_for_each_partition_sees_every_message_once(
    broker: zbroker.LocalBroker, spark: Any, way: str
) -> None:
    ranges = plan_ranges(broker.url if way == "url" else broker.data_dir, min_partitions=6)
    count, positions = spark.sparkContext.accumulator(0), spark.sparkContext.accumulator(0)

    def work(parts: Iterator[LogRange]) -> None:
        for part in parts:
            for batch in replay_batches(part):
                count.add(len(batch))
                positions.add(sum(message.position for message in batch))

    spark.sparkContext.parallelize(ranges, 6).foreachPartition(work)
    expected = [message[2] for message in all_of(ranges)]
    assert (count.value, positions.value) == (COUNT, sum(expected))


@pytest.mark.spark
@pytest.mark.process
def test_a_task_that_fails_halfway_is_replayed_by_its_next_attempt(
    broker: zbroker.LocalBroker, spark: Any
) -> None:
    ranges = plan_ranges(broker.url, min_partitions=4)
    count = spark.sparkContext.accumulator(0)

    def work(parts: Iterator[LogRange]) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        for part in parts:
            for index, _ in enumerate(replay(part)):
                count.add(1)
                if context.partitionId() == 1 and context.attemptNumber() == 0 and index == 500:
                    raise RuntimeError("as if the executor had trouble")

    spark.sparkContext.parallelize(ranges, 4).foreachPartition(work)
    assert count.value == COUNT
