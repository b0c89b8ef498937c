"""Claims about streaming reads in Spark: every message once, whatever is restarted in between."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs package pyspark")

import zbroker
from tests.log.build import finish
from tests.spark.logs import JournalMaker
from tests.waiting import Limit, until
from zbroker.log import archive
from zbroker.log.disk import RealDisk
from zbroker.log.places import SegmentPlaces

pytestmark = pytest.mark.spark

WAIT_S = 180
Batches = list[tuple[int, list[int]]]


@pytest.fixture
def maker(journal: JournalMaker) -> JournalMaker:
    for _ in range(4):
        journal.batch(["a", "b"] * 25)
    return journal


def start(spark: Any, checkpoint: Path, batches: Batches, now: bool = True, **options: Any) -> Any:
    """A query that notes which positions each of its micro-batches has."""

    def note(table: Any, number: int) -> None:
        batches.append((number, sorted(row.position for row in table.collect())))

    table = spark.readStream.format("zbroker").options(**options).load()
    writer = table.writeStream.foreachBatch(note).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(availableNow=True) if now else writer).start()


def run(spark: Any, checkpoint: Path, **options: Any) -> Batches:
    batches: Batches = []
    query = start(spark, checkpoint, batches, **options)
    try:
        until(lambda: query.awaitTermination(1), "the query ends", WAIT_S)
    finally:
        query.stop()
    return batches


def positions(batches: Batches) -> list[int]:
    return [position for _, some in batches for position in some]


def written(maker: JournalMaker) -> list[int]:
    return [message.position for message in maker.messages]


def options_of(maker: JournalMaker, **more: Any) -> dict[str, Any]:
    return {"journal": maker.directory, "startingOffsets": "earliest", **more}


def test_a_second_run_on_a_checkpoint_reads_only_what_is_new(
    spark: Any, maker: JournalMaker, tmp_path: Path
) -> None:
    options = options_of(maker, maxOffsetsPerTrigger=80)
    first = run(spark, tmp_path / "cp", **options)
    assert [len(some) for _, some in first] == [80, 80, 40]
    assert positions(first) == written(maker)
    maker.batch(["a"] * 5)
    assert positions(run(spark, tmp_path / "cp", **options)) == written(maker)[-5:]
    assert run(spark, tmp_path / "cp", **options) == []


def test_a_batch_whose_commit_is_lost_comes_again_with_the_same_rows(
    spark: Any, maker: JournalMaker, tmp_path: Path
) -> None:
    options = options_of(maker, maxOffsetsPerTrigger=80)
    first = run(spark, tmp_path / "cp", **options)
    for name in ("2", ".2.crc"):
        (tmp_path / "cp" / "commits" / name).unlink()
    maker.batch(["a"] * 5)
    again = run(spark, tmp_path / "cp", **options)
    assert again[0] == first[-1]
    assert positions(again[1:]) == written(maker)[-5:]


def pruned(maker: JournalMaker) -> None:
    """The first segment goes, and with it messages that no micro-batch had."""
    while maker.serial < 3:
        maker.batch(["a"] * 100, size=2_000)
    (maker.directory / "0000000001.journal").unlink()


def test_a_pruned_range_fails_or_is_passed_over(
    spark: Any, maker: JournalMaker, tmp_path: Path
) -> None:
    run(spark, tmp_path / "cp", **options_of(maker))
    before = len(maker.messages)
    pruned(maker)
    with pytest.raises(Exception, match="were removed before they were read"):
        run(spark, tmp_path / "cp", **options_of(maker))
    found = positions(run(spark, tmp_path / "cp", **options_of(maker, failOnDataLoss="false")))
    kept = written(maker)[-len(found) :]
    assert found == kept
    assert 0 < len(found) < len(maker.messages) - before


def test_another_log_under_a_checkpoint_fails_or_is_read_from_its_beginning(
    spark: Any, maker: JournalMaker, tmp_path: Path
) -> None:
    run(spark, tmp_path / "cp", **options_of(maker))
    other = JournalMaker(tmp_path / "other" / "journal", instance=0xABC)
    other.batch(["a"] * 7)
    with (
        closing(other),
        pytest.raises(Exception, match="the checkpoint is of log 1122334455667788"),
    ):
        run(spark, tmp_path / "cp", **options_of(other))
    found = run(spark, tmp_path / "cp", **options_of(other, failOnDataLoss="false"))
    assert positions(found) == written(other)


def archived(maker: JournalMaker, directory: Path, serial: int) -> None:
    """One sealed segment is packed and moved."""
    with closing(SegmentPlaces(RealDisk(maker.directory), RealDisk(directory))) as places:
        for steps in (archive.pack, archive.copy):
            finish(steps(places, serial))
        for place in places.copies():
            if place.serial == serial and not place.archived:
                places.unlink(place)


def test_a_log_that_grows_and_is_archived_meanwhile_is_read_once(
    spark: Any, maker: JournalMaker, tmp_path: Path
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    found: list[int] = []
    for round_ in range(1, 4):
        while maker.serial <= round_:
            maker.batch(["a"] * 100, size=2_000)
        options = options_of(maker, archive=far, maxBytesPerTrigger="600k")
        found += positions(run(spark, tmp_path / "cp", **options))
        archived(maker, far, round_)
    assert found == written(maker)


@pytest.mark.process
def test_a_stream_goes_on_over_a_restart_of_the_processes(spark: Any, tmp_path: Path) -> None:
    batches: Batches = []
    with zbroker.LocalBroker() as broker, zbroker.connect(broker.url, name="filler") as client:
        query = start(
            spark, tmp_path / "cp", batches, now=False,
            endpoint=broker.url, startingOffsets="earliest", readerName="test",
        )  # fmt: skip
        try:
            sent = 0
            for name in ("delivery", "ingest", "journal"):
                client.publish_many("a", [b"%d" % number for number in range(500)])
                client.flush(timeout=30)
                sent += 500
                _until(lambda: len(positions(batches)) >= sent, query)  # noqa: B023
                if name == "delivery":
                    holders = broker.ask("/holders")["holders"]
                    assert "spark-test" in [one["who"] for one in holders]
                os.kill(broker.pids[name], signal.SIGKILL)
            client.publish_many("a", [b"x"] * 500)
            client.flush(timeout=60)
            _until(lambda: len(positions(batches)) >= sent + 500, query)
        finally:
            query.stop()
        expected = [
            message.position for message in client.subscribe("a", since="epoch", until="now")
        ]
    assert positions(batches) == expected


@pytest.mark.process
@pytest.mark.long
def test_a_broker_that_stays_away_ends_the_query_which_goes_on_where_it_was(
    spark: Any, tmp_path: Path
) -> None:
    batches: Batches = []

    def broker_with_500_more() -> zbroker.LocalBroker:
        broker = zbroker.LocalBroker(tmp_path / "data")
        with zbroker.connect(broker.url, name="filler") as client:
            client.publish_many("a", [b"x"] * 500)
            client.flush(timeout=30)
        return broker

    with broker_with_500_more() as broker:
        options = {"endpoint": broker.url, "startingOffsets": "earliest"}
        query = start(spark, tmp_path / "cp", batches, now=False, **options)
        _until(lambda: len(positions(batches)) == 500, query)
    try:
        with pytest.raises(Exception, match="timeout"):
            until(lambda: query.awaitTermination(1), "the query ends", WAIT_S)
    finally:
        query.stop()
    with broker_with_500_more() as broker:
        batches += run(spark, tmp_path / "cp", endpoint=broker.url)
        with zbroker.connect(broker.url) as client:
            every = [one.position for one in client.subscribe("a", since="epoch", until="now")]
    assert positions(batches) == every
    assert len(every) == 1_000


def _until(done: Callable[[], bool], query: Any) -> None:
    limit = Limit(WAIT_S)
    while not limit.is_over:
        if done():
            return
        assert not query.awaitTermination(0.1), f"the query ended: {query.exception()}"
    raise TimeoutError("the stream stands still")
