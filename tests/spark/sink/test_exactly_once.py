"""A streaming query whose tasks crash, whose driver and whose broker are killed: once, each row.

The naive way, which publishes in foreachBatch, is done the same things to, and doubles rows.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

import zbroker
from tests.process.replaying import kill_process
from tests.waiting import Limit
from zbroker import LocalBroker

pytest.importorskip("pyspark", reason="needs package pyspark")

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(7_200),
]
ROWS, BATCH, CRASHES, KILLS = 250_000, 5_000, 0.08, 4
END_S = 900.0
PROCESSES = ("journal", "ingest", "delivery", "journal")


class Driver:
    """The program in a process group of its own: Spark's JVM and Python workers die with it."""

    def __init__(self, url: str, checkpoint: Path, how: str) -> None:
        program = [sys.executable, "-m", "tests.spark.sink.driver"]
        arguments = [url, str(checkpoint), how, str(BATCH), str(CRASHES)]
        self._log = (checkpoint.parent / f"driver-{how}.log").open("ab")
        self._process = subprocess.Popen(
            [*program, *arguments], start_new_session=True, stdout=self._log, stderr=self._log
        )

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self._log.close()


def commits(checkpoint: Path) -> int:
    """Micro-batches that Spark knows to be done."""
    return len(list((checkpoint / "commits").glob("[0-9]*")))


def until(checkpoint: Path, wanted: int, driver: Driver, limit: Limit) -> None:
    """Waits until so many batches are done, or all are."""
    while commits(checkpoint) < wanted and not driver.ended:
        assert not limit.is_over, f"{commits(checkpoint)} of {wanted} batches are done"
        time.sleep(0.05)


def move(broker: LocalBroker, checkpoint: Path, how: str, rng: random.Random) -> None:
    """Runs the driver to its end; it is killed on the way, and so are processes of the broker."""
    limit, all_of_it = Limit(END_S), ROWS // BATCH
    for turn in range(1, KILLS + 1):
        driver = Driver(broker.url, checkpoint, how)
        try:
            until(checkpoint, turn * all_of_it // (KILLS + 2), driver, limit)
            kill_process(broker, PROCESSES[turn - 1])
            done = commits(checkpoint)
            until(checkpoint, done + rng.randint(1, 3), driver, limit)
            time.sleep(rng.random())
        finally:
            driver.kill()
    while True:
        driver = Driver(broker.url, checkpoint, how)
        try:
            until(checkpoint, sys.maxsize, driver, limit)
        finally:
            driver.kill()
        if driver.code == 0:
            return
        assert not limit.is_over


def read(broker: LocalBroker, topic: str) -> list[bytes]:
    with (
        zbroker.connect(broker.url) as client,
        client.subscribe(topic, since="epoch", until="now") as subscription,
    ):
        return [message.data for message in subscription]


@pytest.mark.parametrize("how", ["staged", "naive"])
def test_each_row_is_published_once(how: str, tmp_path: Path) -> None:
    rows = [b"%d" % n for n in range(ROWS)]
    with LocalBroker(tmp_path / "data") as broker:
        with zbroker.connect(broker.url) as client:
            client.publish_many("in", rows)
        move(broker, tmp_path / "checkpoint", how, random.Random(7))
        found = read(broker, "out")
    seen = Counter(found)
    lost, doubled = len(set(rows) - set(seen)), len(found) - len(seen)
    sys.stdout.write(f"\n{how}: {len(found)} published, {lost} lost, {doubled} doubled\n")
    assert lost == 0
    if how == "staged":
        assert found == rows, "also in their order"
    else:
        assert doubled > 0, "else this test could not tell the two apart"
