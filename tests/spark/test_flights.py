"""Claims about SQL over an archive: what Spark answers is what pandas finds in the table itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="needs package pyspark")
pytest.importorskip("pandas", reason="needs package pandas")

import pandas as pd

from tests.log.build import finish
from tests.spark.logs import JournalMaker
from zbroker.demo import flights
from zbroker.demo.flights import Flight
from zbroker.log import archive
from zbroker.log.places import open_places

pytestmark = pytest.mark.spark

BATCH = 1_000
SLICE = 12_000
SCHEMA = "carrier STRING, month INT, arr_delay INT, origin STRING, dest STRING, distance INT"

QUESTIONS = {
    "flights by carrier": """
        SELECT carrier, count(*) FROM flights GROUP BY carrier""",
    "mean arrival delay by month": """
        SELECT month, round(avg(arr_delay), 6) FROM flights GROUP BY month""",
    "the worst routes": """
        SELECT origin, dest, round(mean, 6) FROM (
            SELECT origin, dest, avg(arr_delay) AS mean, count(arr_delay) AS arrived
            FROM flights GROUP BY origin, dest)
        WHERE arrived >= 5 ORDER BY mean DESC, origin, dest LIMIT 10""",
    "flights that did not arrive, by origin": """
        SELECT origin, count(*) FROM flights WHERE arr_delay IS NULL GROUP BY origin""",
    "the longest flight of each topic": """
        SELECT topic, max(distance) FROM flights GROUP BY topic""",
}


def answers(frame: pd.DataFrame) -> dict[str, set[tuple[Any, ...]]]:
    """The same questions, asked of the table."""
    delay = frame["arr_delay"]
    routes = frame.groupby(["origin", "dest"])["arr_delay"].agg(["mean", "count"])
    worst = routes[routes["count"] >= 5].reset_index()
    worst = worst.sort_values(["mean", "origin", "dest"], ascending=[False, True, True]).head(10)
    topics = frame.assign(topic="flights." + frame["carrier"]).groupby("topic")["distance"]
    return {
        "flights by carrier": set(frame.groupby("carrier").size().items()),
        "mean arrival delay by month": set(
            frame.groupby("month")["arr_delay"].mean().round(6).items()
        ),
        "the worst routes": set(
            zip(worst["origin"], worst["dest"], worst["mean"].round(6), strict=True)
        ),
        "flights that did not arrive, by origin": set(
            frame[delay.isna()].groupby("origin").size().items()
        ),
        "the longest flight of each topic": set(topics.max().items()),
    }


def recorded(wanted: list[Flight], directory: Path) -> Path:
    """The flights in a log whose older segments are archived, the oldest one packed."""
    maker = JournalMaker(directory / "journal")
    for start in range(0, len(wanted), BATCH):
        some = wanted[start : start + BATCH]
        maker.given([flight.topic for flight in some], [flight.data for flight in some])
    last = maker.serial
    maker.close()
    assert last > 2, "there is nothing to archive"
    places = open_places(directory / "journal", directory / "archive")
    finish(archive.pack(places, 1))
    for serial in range(1, last):
        finish(archive.copy(places, serial))
    for place in places.copies():
        if place.serial < last and not place.archived:
            (directory / "journal" / places.name(place)).unlink()
    places.close()
    return directory


def answered(spark: Any, directory: Path) -> dict[str, set[tuple[Any, ...]]]:
    table = (
        spark.read.format("zbroker")
        .option("journal", str(directory))
        .option("minPartitions", 2)
        .schema("topic string, payload binary")
        .load()
        .selectExpr("topic", f"from_json(string(payload), '{SCHEMA}') AS flight")
        .select("topic", "flight.*")
    )
    table.cache().createOrReplaceTempView("flights")
    try:
        return {
            name: set(map(tuple, spark.sql(text).collect())) for name, text in QUESTIONS.items()
        }
    finally:
        table.unpersist()


def check(spark: Any, wanted: list[Flight], directory: Path) -> None:
    found = answered(spark, recorded(wanted, directory))
    frame = pd.DataFrame([msgspec.json.decode(flight.data) for flight in wanted])
    frame["arr_delay"] = frame["arr_delay"].astype(float)
    expected = answers(frame)
    for name, rows in found.items():
        assert rows == expected[name], name
        assert rows, name


def test_spark_answers_as_pandas_does(
    spark: Any, every_flight: list[Flight], tmp_path: Path
) -> None:
    picked = flights.sample(len(every_flight), SLICE)
    check(spark, [every_flight[index] for index in picked], tmp_path)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_spark_answers_as_pandas_does_for_the_whole_year(
    spark: Any, every_flight: list[Flight], tmp_path: Path
) -> None:
    check(spark, every_flight, tmp_path)
