"""Claims about plans and replays of a running instance, and of both ways inside Spark."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import zbroker
from zbroker.client.message import Message
from zbroker.errors import ZBrokerError
from zbroker.spark import Range, plan_ranges, replay, replay_batches, session

COUNT = 5_000
TOPICS = ("a.x", "b.x", "c")


@pytest.fixture(scope="module")
def broker() -> Iterator[zbroker.LocalBroker]:
    with zbroker.LocalBroker(settings={"journal": {"segment_size": "1MiB"}}) as local:
        with zbroker.connect(local.url, name="filler") as client:
            for number in range(COUNT - 1):
                client.publish(TOPICS[number % 3], f"{number}:".encode().ljust(400, b"."))
            client.flush(timeout=30)
            # behind a state snapshot that the messages before it may have caused: the log stands
            client.publish(TOPICS[(COUNT - 1) % 3], b"last").wait(30)
        yield local


def facts(message: Message) -> tuple[Any, ...]:
    return (message.topic, message.data, message.position, message.bookmark, message.time_ns)


def all_of(ranges: list[Range]) -> list[tuple[Any, ...]]:
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


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("needs package pyspark")
    running = session("tests", "local[2,4]")
    yield running
    running.stop()


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.parametrize("way", ["url", "directory"])
def test_for_each_partition_sees_every_message_once(
    broker: zbroker.LocalBroker, spark: Any, way: str
) -> None:
    ranges = plan_ranges(broker.url if way == "url" else broker.data_dir, min_partitions=6)
    count, positions = spark.sparkContext.accumulator(0), spark.sparkContext.accumulator(0)

    def work(parts: Iterator[Range]) -> None:
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

    def work(parts: Iterator[Range]) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        for part in parts:
            for index, _ in enumerate(replay(part)):
                count.add(1)
                if context.partitionId() == 1 and context.attemptNumber() == 0 and index == 500:
                    raise RuntimeError("as if the executor had trouble")

    spark.sparkContext.parallelize(ranges, 4).foreachPartition(work)
    assert count.value == COUNT
