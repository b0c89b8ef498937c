"""Claims about batch reads of the data source in Spark, over a directory and a running instance."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs package pyspark")

import zbroker
from tests.spark.logs import JournalMaker
from zbroker.spark import foreach_partition, plan_ranges, read_ranges

pytestmark = pytest.mark.spark


@pytest.fixture
def maker(journal: JournalMaker) -> JournalMaker:
    for _ in range(10):
        journal.batch(["a", "b", "c", "a"] * 25)
    return journal


def load(spark: Any, schema: str | None = None, **options: object) -> Any:
    reader = spark.read.format("zbroker").options(**options)
    return (reader.schema(schema) if schema else reader).load()


def test_a_table_has_every_message_with_its_columns(spark: Any, maker: JournalMaker) -> None:
    rows = load(spark, journal=maker.directory).orderBy("position").collect()
    assert [(row.topic, bytes(row.payload), row.position, row.sequence) for row in rows] == [
        (m.topic, m.data, m.position, m.sequence) for m in maker.messages
    ]
    assert rows[0].bookmark == f"{rows[0].publisher}|{rows[0].sequence}|"
    assert rows[0].timestamp.timestamp() == maker.messages[0].time_ns / 1e9


def test_a_schema_of_the_user_leaves_columns_out(spark: Any, maker: JournalMaker) -> None:
    found = load(spark, "sequence bigint, topic string", journal=maker.directory)
    assert found.columns == ["sequence", "topic"]
    assert sorted(map(tuple, found.collect())) == [(m.sequence, m.topic) for m in maker.messages]


def test_only_a_key_may_be_null(spark: Any, maker: JournalMaker) -> None:
    """Else Spark looks for a null in front of every value."""
    table = load(spark, journal=maker.directory)
    assert not any(field.nullable for field in table.schema)
    kafka = load(spark, journal=maker.directory, kafkaColumns=True)
    assert [field.name for field in kafka.schema if field.nullable] == ["key"]
    assert kafka.select("key", "offset").count() == len(maker.messages)
    mixed = load(spark, "position bigint, topic string NOT NULL", journal=maker.directory)
    assert [field.nullable for field in mixed.schema] == [True, False]
    assert len(mixed.collect()) == len(maker.messages)
    strict = "key binary NOT NULL, value binary"
    with pytest.raises(Exception, match="column key may be null"):
        load(spark, strict, journal=maker.directory, kafkaColumns=True).count()


def test_a_column_of_another_type_is_refused(spark: Any, maker: JournalMaker) -> None:
    with pytest.raises(Exception, match="there is no column `sequence string`"):
        load(spark, "sequence string", journal=maker.directory).count()


def test_a_wrong_option_fails_at_load_with_the_nearest(spark: Any, maker: JournalMaker) -> None:
    with pytest.raises(Exception, match="did you mean 'topicPattern'"):
        load(spark, journal=maker.directory, topicPatern="a")


def test_an_empty_stretch_is_an_empty_table(spark: Any, maker: JournalMaker) -> None:
    assert load(spark, journal=maker.directory, startingBookmark="latest").count() == 0
    assert load(spark, journal=maker.directory, topics="nothing").count() == 0


def test_the_end_is_fixed_when_the_table_is_made(spark: Any, maker: JournalMaker) -> None:
    table = load(spark, journal=maker.directory)
    maker.batch(["a"] * 10)
    assert [table.count(), table.count()] == [1_000, 1_000]
    assert load(spark, journal=maker.directory).count() == 1_010


def test_positions_and_bookmarks_bound_the_stretch(spark: Any, maker: JournalMaker) -> None:
    names = [row.bookmark for row in load(spark, journal=maker.directory).limit(30).collect()]
    found = load(
        spark, journal=maker.directory, startingBookmark=names[4], endingBookmark=names[19]
    )
    assert sorted(row.bookmark for row in found.collect()) == sorted(names[5:20])
    found = load(spark, journal=maker.directory, startingOffsets="5", endingOffsets="9")
    assert sorted(row.position for row in found.collect()) == [5, 6, 7, 8]


def test_two_scans_of_one_table_with_different_filters_keep_their_rows(
    spark: Any, maker: JournalMaker
) -> None:
    """Also where Spark may push filters: it would share them, so they are not taken."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        table = load(spark, journal=maker.directory)
        both = table.filter("position = 7").union(table.filter("position = 8"))
        assert sorted(row.position for row in both.collect()) == [7, 8]
        assert table.count() == 1_000
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_a_plan_is_a_table_of_the_same_rows(spark: Any, maker: JournalMaker) -> None:
    ranges = plan_ranges(maker.directory, min_partitions=3, topic="a")
    found = read_ranges(spark, ranges, ["position", "payload"])
    assert sorted((row.position, bytes(row.payload)) for row in found.collect()) == [
        (m.position, m.data) for m in maker.messages if m.topic == "a"
    ]


@pytest.mark.parametrize("form", ["messages", "arrow"])
def test_for_each_partition_gets_every_message_once(
    spark: Any, maker: JournalMaker, form: Any
) -> None:
    count, positions = spark.sparkContext.accumulator(0), spark.sparkContext.accumulator(0)

    def handle(batches: Iterator[Any]) -> None:
        for batch in batches:
            found = (
                batch.column(0).to_pylist()
                if form == "arrow"
                else [message.position for message in batch]
            )
            count.add(len(found))
            positions.add(sum(found))

    ranges = plan_ranges(maker.directory, min_partitions=3)
    foreach_partition(spark, ranges, handle, form=form, columns=["position"])
    assert count.value == 1_000
    assert positions.value == sum(message.position for message in maker.messages)


@pytest.mark.process
def test_an_instance_is_a_table_with_the_options_of_the_kafka_connector(spark: Any) -> None:
    with zbroker.LocalBroker() as broker:
        with zbroker.connect(broker.url, name="filler") as client:
            for number in range(300):
                client.publish("ab"[number % 2], b"%d" % number, key=b"k%d" % number)
            client.flush(timeout=30)
        options = {
            "kafka.bootstrap.servers": broker.url, "subscribe": "a", "kafkaColumns": "true",
            "startingOffsets": "earliest", "endingOffsets": "latest", "minPartitions": "3",
        }  # fmt: skip
        rows = load(spark, **options).selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
        assert sorted(map(tuple, rows.collect())) == sorted(
            (f"k{number}", str(number)) for number in range(0, 300, 2)
        )
        chosen = load(spark, endpoint=broker.url, filter="TOPIC_NAME() = 'b'", readerName="nightly")
        assert chosen.count() == 150
        held = [holder["who"] for holder in broker.ask("/holders")["holders"]]
        assert "spark-nightly" in held


@pytest.mark.process
def test_an_archive_and_its_instance_are_one_table(spark: Any, tmp_path: Path) -> None:
    """What the archive has is read there, the rest from the instance."""
    archive = tmp_path / "archive"
    archive.mkdir()
    with zbroker.LocalBroker(settings={"journal": {"segment_size": "1MiB"}}) as broker:
        with zbroker.connect(broker.url, name="filler") as client:
            for number in range(4):
                client.publish_many("a", [b"%d".ljust(2_000) % number] * 400)
                client.flush(timeout=30)
        sealed = sorted((broker.data_dir / "journal").glob("*.journal"))[:-1]
        for segment in sealed:
            shutil.copy(segment, archive)
        both = load(spark, endpoint=broker.url, journal=archive)
        assert both.rdd.getNumPartitions() >= 4
        alone = load(spark, endpoint=broker.url)
        rows = [
            sorted(map(tuple, one.select("position", "payload").collect())) for one in (both, alone)
        ]
    assert sealed
    assert rows[0] == rows[1]
    assert len(rows[0]) == 1_600
