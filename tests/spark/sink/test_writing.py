"""The format `zbroker` as a sink: what is written is published once, whatever is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zbroker
from tests.process.secured import Secured
from tests.waiting import until
from zbroker import LocalBroker
from zbroker.log.format import KIND_PUBLISHER
from zbroker.log.reader import Gap, Log
from zbroker.log.records import PUBLISHER

pytest.importorskip("pyspark", reason="needs package pyspark")

from zbroker.spark.source.datasource import ZBrokerSource

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(600)]
WAIT_S = 240


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A log of its own for each attempt: where Spark gives up, a test is run again."""
    with LocalBroker(tmp_path_factory.mktemp("sink") / "data") as made:
        yield made


@pytest.fixture(autouse=True)
def registered(spark: Any) -> None:
    spark.dataSource.register(ZBrokerSource)


def read(broker: LocalBroker, topic: str) -> list[bytes]:
    with (
        zbroker.connect(broker.url) as client,
        client.subscribe(topic, since="epoch", until="now") as subscription,
    ):
        return [message.data for message in subscription]


def write(frame: Any, broker: LocalBroker, **options: str) -> None:
    writer = frame.write.format("zbroker").mode("append").option("endpoint", broker.url)
    writer.options(**options).save()


def test_rows_are_published_in_the_order_of_partition_and_row(
    spark: Any, broker: LocalBroker
) -> None:
    rows = spark.range(0, 3_000, 1, 3).selectExpr("cast(id as string) as payload")
    write(rows, broker, topic="ordered")
    assert read(broker, "ordered") == [b"%d" % n for n in range(3_000)]


def test_each_row_may_have_its_topic_and_key(spark: Any, broker: LocalBroker) -> None:
    rows = spark.createDataFrame(
        [("keyed.a", b"1", b"x"), ("keyed.b", b"2", None)], "topic string, value binary, key binary"
    ).coalesce(1)
    write(rows, broker)
    with (
        zbroker.connect(broker.url) as client,
        client.subscribe("keyed.*", regex=True, since="epoch", until="now") as subscription,
    ):
        got = [(message.topic, message.data, message.key) for message in subscription]
    assert got == [("keyed.a", b"1", b"x"), ("keyed.b", b"2", None)]


def test_a_job_with_a_publish_id_publishes_once(spark: Any, broker: LocalBroker) -> None:
    rows = spark.range(10).selectExpr("cast(id as string) as payload")
    for _ in range(2):
        write(rows, broker, topic="once", publishId="nightly-2026-11-22")
    assert len(read(broker, "once")) == 10
    write(rows, broker, topic="once", publishId="nightly-2026-11-23")
    assert len(read(broker, "once")) == 20


def test_a_task_that_fails_and_is_tried_again_leaves_nothing_twice(
    spark: Any, broker: LocalBroker
) -> None:
    def stumbling(batches: Any) -> Any:
        from pyspark import TaskContext

        attempt = TaskContext.get().attemptNumber()
        for batch in batches:
            yield batch
            if attempt == 0:
                raise RuntimeError("the first attempt fails after it has written something")

    rows = spark.range(0, 2_000, 1, 2).selectExpr("cast(id as string) as payload")
    write(rows.mapInArrow(stumbling, rows.schema), broker, topic="tried")
    assert read(broker, "tried") == [b"%d" % n for n in range(2_000)]


def test_a_job_that_fails_publishes_nothing(spark: Any, broker: LocalBroker) -> None:
    def failing(batches: Any) -> Any:
        yield from batches
        raise RuntimeError("it never works")

    rows = spark.range(100).selectExpr("cast(id as string) as payload").coalesce(1)
    with pytest.raises(Exception, match="it never works"):
        write(rows.mapInArrow(failing, rows.schema), broker, topic="failed")
    assert read(broker, "failed") == []


@pytest.mark.parametrize(
    ("mode", "options", "reason"),
    [
        ("overwrite", {"topic": "t"}, "cannot be overwritten"),
        ("append", {}, "there is no topic"),
        ("append", {"topc": "t"}, "did you mean 'topic'"),
    ],
)
def test_what_cannot_be_written_says_why(
    spark: Any, broker: LocalBroker, mode: str, options: dict[str, str], reason: str
) -> None:
    writer = spark.range(1).selectExpr("cast(id as string) as payload").write.format("zbroker")
    with pytest.raises(Exception, match=reason):
        writer.mode(mode).option("endpoint", broker.url).options(**options).save()


def drain(spark: Any, broker: LocalBroker, checkpoint: Path) -> None:
    """From `in` to `out`, all that is there."""
    frame = (
        spark.readStream.format("zbroker")
        .option("endpoint", broker.url)
        .option("topics", "in")
        .option("startingBookmark", "earliest")
        .option("maxBookmarksPerTrigger", "150")
        .load()
    )
    query = (
        frame.select("payload")
        .writeStream.format("zbroker")
        .option("endpoint", broker.url)
        .option("topic", "out")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        until(lambda: query.awaitTermination(1), "the query ends", WAIT_S)
    finally:
        query.stop()


def test_a_micro_batch_that_is_done_again_publishes_nothing_twice(
    spark: Any, broker: LocalBroker, tmp_path: Path
) -> None:
    with zbroker.connect(broker.url) as client:
        client.publish_many("in", [b"%d" % n for n in range(400)])
    drain(spark, broker, tmp_path)
    last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()  # as if the driver had died after the commit in the broker
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    drain(spark, broker, tmp_path)
    assert read(broker, "out") == [b"%d" % n for n in range(400)]
    with zbroker.connect(broker.url) as client:
        client.publish_many("in", [b"%d" % n for n in range(400, 500)])
    drain(spark, broker, tmp_path)
    assert read(broker, "out") == [b"%d" % n for n in range(500)]


# -- with security on -------------------------------------------------------------------------

ROLES = """
[[role.ann.allow]]
actions = ["publish", "replay"]
topics = ["jobs"]
[[role.eve.allow]]
actions = ["publish"]
topics = ["open"]
"""


@pytest.fixture
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    place = tmp_path_factory.mktemp("secured")
    with Secured(place, {"ann": ["ann"], "eve": ["eve"]}, ROLES) as made:
        yield made


def write_as(frame: Any, broker: Secured, who: str, **options: str) -> None:
    key = str(broker.place / f"{who}.key_secret")
    writer = frame.write.format("zbroker").mode("append").option("endpoint", broker.url)
    writer.options(keyFile=key, serverKey=broker.server.public, **options).save()


def names_of(broker: Secured) -> set[str]:
    """Of all publishers that the log names."""
    log = Log(broker.broker.data_dir / "journal")
    found = log.headers(log.seek(1), 1_000_000)
    named = [one for one in found if not isinstance(one, Gap) and one[0].kind == KIND_PUBLISHER]
    return {PUBLISHER.decode(log.body(batch, at) or b"").name for batch, at in named}


def test_a_principal_writes_what_it_may_publish(spark: Any, secured: Secured) -> None:
    with secured.connect("eve", "spark-jobs-p0-a0") as first:
        first.publish("open", b"taken").wait(10)  # the name that all jobs shared is hers now
    rows = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as payload")
    for _ in range(2):
        write_as(rows, secured, "ann", topic="jobs", publishId="nightly")
    with (
        secured.connect("ann") as client,
        client.subscribe("jobs", since="epoch", until="now") as subscription,
    ):
        assert [message.data for message in subscription] == [b"%d" % n for n in range(100)]
    of_tasks = {name for name in names_of(secured) if "spark" in name} - {"spark-jobs-p0-a0"}
    assert {name.partition("-p")[0] for name in of_tasks} == {"ann.spark-jobs"}


def test_who_may_not_publish_writes_nothing(spark: Any, secured: Secured) -> None:
    rows = spark.range(10).selectExpr("cast(id as string) as payload")
    with pytest.raises(Exception, match="may not publish"):
        write_as(rows, secured, "eve", topic="jobs", publishId="nightly-2")
