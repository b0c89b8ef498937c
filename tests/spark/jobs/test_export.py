"""Claims about the export: all of the log is there once, whatever was interrupted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs package pyarrow")

import pyarrow as pa
import pyarrow.dataset as ds

from tests.spark.logs import JournalMaker
from zbroker.clock import to_datetime
from zbroker.errors import ClientError, ZBrokerError
from zbroker.limits import KIB
from zbroker.spark.jobs import units
from zbroker.spark.jobs.export import ExportReport, clipped, export
from zbroker.spark.jobs.job_runner import Stretch
from zbroker.spark.jobs.units import ExportUnit, Task, folder, split, write_unit


@pytest.fixture
def maker(journal: JournalMaker) -> JournalMaker:
    for _ in range(20):
        journal.batch(["a", "b/1", "a"] * 10)
        journal.control()
    return journal


def rows_of(to: Path) -> list[tuple[str, bytes, int]]:
    """What a reader of Parquet finds: topic, payload, position."""
    names = pa.schema([("date", pa.string()), ("topic", pa.string())])
    table = ds.dataset(to, format="parquet", partitioning=ds.partitioning(names, flavor="hive"))
    found = table.to_table(columns=["topic", "payload", "position"]).to_pylist()
    return sorted(
        ((row["topic"], row["payload"], row["position"]) for row in found), key=lambda row: row[2]
    )


def written(maker: JournalMaker) -> list[tuple[str, bytes, int]]:
    return [(m.topic, m.data, m.position) for m in maker.messages]


def unit_of(maker: JournalMaker, to: Path, first: int, end: int) -> Task:
    return Task(
        str(to),
        ExportUnit(first, end),
        clipped(Stretch(str(maker.directory)).ranges(1), ExportUnit(first, end)),
    )


def run(spark: Any, maker: JournalMaker, to: Path, **options: Any) -> ExportReport:
    stretch = Stretch(str(maker.directory), **options)
    return export(
        spark, stretch, to, lambda *_: None, since_given="since" in options, parts=3,
        unit_bytes=64 * KIB,
    )  # fmt: skip


def test_a_unit_is_split_by_date_and_topic() -> None:
    times = pa.array([0, 1, 86_400_000_000, 2], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch(
        {"topic": ["a", "b", "a", "a"], "timestamp": times, "payload": [b"0", b"1", b"2", b"3"]}
        | {name: [None] * 4 for name in ("bookmark", "publisher", "sequence", "position", "key")}
    ).select(units.COLUMNS)
    found = {group: rows.column("payload").to_pylist() for group, rows in split(batch)}
    assert found == {(0, "a"): [b"0", b"3"], (0, "b"): [b"1"], (1, "a"): [b"2"]}


def test_a_topic_becomes_a_name_as_spark_escapes_it() -> None:
    assert folder((1, "a/b=c ä")) == Path("date=1970-01-02") / "topic=a%2Fb%3Dc ä"
    with pytest.raises(ClientError, match="too long"):
        folder((1, "x" * 255))


def test_a_unit_that_is_done_again_leaves_the_same_files(
    maker: JournalMaker, tmp_path: Path
) -> None:
    to = tmp_path / "to"
    done = [write_unit(unit_of(maker, to, 10, 300)) for _ in range(2)]
    assert done[0] == done[1]
    assert rows_of(to) == [row for row in written(maker) if 10 <= row[2] < 300]
    assert not list((to / "_temporary").iterdir())


def test_a_unit_that_fails_shows_no_mark(
    maker: JournalMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _batches: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(units, "_write", full)
    with pytest.raises(OSError, match="no space"):
        write_unit(unit_of(maker, tmp_path / "to", 1, 100))
    assert not list((tmp_path / "to").rglob("*.json"))


@pytest.mark.long
@pytest.mark.spark
def test_an_export_goes_on_where_an_earlier_one_was_killed(
    spark: Any, maker: JournalMaker, tmp_path: Path
) -> None:
    to = tmp_path / "to"
    first = run(spark, maker, to)
    assert (first.units, first.messages, first.exported) == (3, 600, 621)
    assert rows_of(to) == written(maker)

    # as if it had been killed: of one unit half of the files are there, and it has no mark
    progress = json.loads((to / "_progress.json").read_text())
    files = sorted(to.rglob("*.parquet"), key=lambda path: path.stem)
    progress["units"] = [[int(number) for number in files[-1].stem.split("-")[-2:]]]
    (to / "_progress.json").write_text(json.dumps(progress))
    files[-1].unlink()
    (to / "_temporary" / "old").mkdir(parents=True)
    maker.batch(["b/1", "c"])
    again = run(spark, maker, to)
    assert rows_of(to) == written(maker)
    assert again.exported == 623

    assert run(spark, maker, to).units == 0
    with pytest.raises(ClientError, match="topic None, not 'a'"):
        run(spark, maker, to, topic="a")
    found = spark.read.parquet(str(to)).groupBy("topic").count().collect()
    assert {row["topic"]: row["count"] for row in found} == {"a": 400, "b/1": 201, "c": 1}

    assert run(spark, maker, to, until=to_datetime(maker.messages[0].time_ns)).units == 0
    maker.batch(["x" * 255])
    with pytest.raises(ZBrokerError, match=r"bad_topic: the topic .* is too long"):
        run(spark, maker, to)
