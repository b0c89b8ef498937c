"""Claims about reads that are killed: an executor on a cluster of two workers, and a driver."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

pytest.importorskip("pyspark", reason="needs package pyspark")

from tests.spark.logs import JournalMaker
from tests.waiting import Limit
from zbroker.free_ports import free_ports
from zbroker.spark import java_home

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(2_400)]

WAIT_S = 90.0
ROOT = Path(__file__).parents[3]

_JOB = """
import sys
import time

from zbroker.spark import plan_ranges, replay, session

master, journal, ready = sys.argv[1:]
spark = session("job", master, **{"spark.executor.memory": "700m", "spark.task.maxFailures": 8})
ranges = plan_ranges(journal, min_partitions=8)


def slow(parts):
    for part in parts:
        found = [message.position for message in replay(part)]
        time.sleep(2)
        yield from found


spark.range(1).count()
open(ready, "w").close()
positions = spark.sparkContext.parallelize(ranges, len(ranges)).mapPartitions(slow).collect()
table = spark.read.format("zbroker").option("journal", journal).load()
print("RESULT", len(positions), sum(positions), table.count(), flush=True)
spark.stop()
"""

_STREAM = """
import sys

from zbroker.spark import session

journal, place, trigger = sys.argv[1:]
spark = session("stream", "local[2,4]")
table = spark.readStream.format("zbroker").options(
    journal=journal, startingOffsets="earliest", maxOffsetsPerTrigger=100
).load()
writer = table.writeStream.format("parquet").option("path", place + "/out")
writer = writer.option("checkpointLocation", place + "/cp")
how = {"availableNow": True} if trigger == "now" else {"processingTime": "1 second"}
query = writer.trigger(**how).start()
if not query.awaitTermination(720):
    raise TimeoutError("the stream does not end")
found = [row.position for row in spark.read.parquet(place + "/out").collect()]
print("RESULT", len(found), sum(found), len(set(found)), flush=True)
spark.stop()
"""


@pytest.fixture
def maker(journal: JournalMaker) -> JournalMaker:
    for _ in range(20):
        journal.batch(["a", "b"] * 50)
    return journal


@contextmanager
def process(log: Path, *command: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, which is gone after the block."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", **more}
    with log.open("wb") as output:
        running = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    try:
        yield running
    finally:
        _kill(running)


def _kill(running: subprocess.Popen[bytes]) -> None:
    """With all its descendants: Spark's Python workers have process groups of their own."""
    try:
        family = psutil.Process(running.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    for one in [*family, running]:
        try:
            os.kill(one.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    running.wait(WAIT_S)


def until_said(log: Path, text: str) -> str:
    limit = Limit(WAIT_S)
    while not limit.is_over:
        said = log.read_text(errors="replace") if log.exists() else ""
        if text in said:
            return said
        time.sleep(0.1)
    raise TimeoutError(f"{log} never said {text!r}: {said[-2_000:]}")


@contextmanager
def cluster(place: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A standalone master and two workers on loopback."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home, port = Path(spec.origin).parent, free_ports(1)[0]
    more = {"SPARK_HOME": str(home), "JAVA_HOME": java_home(), "PYSPARK_PYTHON": sys.executable}
    java = (str(home / "bin" / "spark-class"), "org.apache.spark.deploy.")
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:

        def start(name: str, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
            command = (java[0], java[1] + kind, "--host", "127.0.0.1", "--webui-port", "0")
            return stack.enter_context(process(place / name, *command, *arguments, **more))

        start("master.log", "master.Master", "--port", str(port))
        until_said(place / "master.log", "New state: ALIVE")
        workers = [
            start(
                f"worker{number}.log", "worker.Worker", "--cores", "1", "--memory", "900M",
                "--work-dir", str(place / f"work{number}"), url,
            )
            for number in range(2)
        ]  # fmt: skip
        for number in range(2):
            until_said(place / f"worker{number}.log", "Successfully registered")
        yield url, workers


def result(log: Path) -> list[int]:
    said = until_said(log, "RESULT")
    return [int(word) for word in said.partition("RESULT")[2].split()[:3]]


def test_an_executor_that_is_killed_loses_nothing(maker: JournalMaker, tmp_path: Path) -> None:
    script, log, ready = tmp_path / "job.py", tmp_path / "job.log", tmp_path / "ready"
    script.write_text(_JOB)
    expected = [message.position for message in maker.messages]
    with cluster(tmp_path) as (url, workers):
        arguments = (str(script), url, str(maker.directory), str(ready))
        with process(log, sys.executable, *arguments):
            _wait_for(ready, log)
            executors = [
                child
                for child in psutil.Process(workers[0].pid).children(recursive=True)
                if child.status() != psutil.STATUS_ZOMBIE
                and "CoarseGrainedExecutorBackend" in " ".join(child.cmdline())
            ]
            assert executors
            time.sleep(1)  # its task is in its pause; what happens is the same if it is not
            os.kill(executors[0].pid, signal.SIGKILL)
            assert result(log) == [len(expected), sum(expected), len(expected)]


def _wait_for(file: Path, log: Path) -> None:
    limit = Limit(WAIT_S)
    while not file.exists():
        if limit.is_over:
            raise TimeoutError(log.read_text(errors="replace")[-2_000:])
        time.sleep(0.1)


def test_a_driver_that_is_killed_goes_on_from_its_checkpoint(
    maker: JournalMaker, tmp_path: Path
) -> None:
    script = tmp_path / "stream.py"
    script.write_text(_STREAM)
    journal, place = str(maker.directory), tmp_path / "place"
    expected = [message.position for message in maker.messages]
    for number in range(2):
        command = (sys.executable, str(script), journal, str(place), "always")
        with process(tmp_path / f"killed{number}.log", *command) as driver:
            commit = place / "cp" / "commits" / str(3 * (number + 1))
            _wait_for(commit, tmp_path / f"killed{number}.log")
            _kill(driver)
    log = tmp_path / "last.log"
    with process(log, sys.executable, str(script), journal, str(place), "now"):
        assert result(log) == [len(expected), sum(expected), len(expected)]
