"""Claims about an export whose driver is killed: the next run completes it, each message once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs package pyspark")

from tests.spark.jobs.test_export import rows_of, written
from tests.spark.logs import JournalMaker
from tests.waiting import Limit

ROOT = Path(__file__).parents[3]
WAIT_S = 120
COMMAND = [sys.executable, "-P", "-m", "zbroker.cli.main", "spark", "export"]

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.long, pytest.mark.timeout(600)]


def start(maker: JournalMaker, to: Path) -> subprocess.Popen[bytes]:
    words = [str(maker.directory), "--to", str(to), "--unit-mib", "1", "--master", "local[1]"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*COMMAND, *words], env=environment, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def kill(process: subprocess.Popen[bytes]) -> None:
    """With the JVM and its workers."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(WAIT_S)


def units_begun(to: Path) -> int:
    return len(list(to.glob("_temporary/*"))) + len(list(to.glob("_done/*.json")))


@pytest.mark.parametrize("units", [1, 5, 12])
def test_a_killed_export_is_completed(tmp_path: Path, units: int) -> None:
    maker = JournalMaker(tmp_path / "journal")
    for _ in range(200):
        maker.batch(["a", "b", "c", "d"] * 50, size=500)
    maker.close()
    to = tmp_path / "to"
    process = start(maker, to)
    try:
        limit = Limit(WAIT_S)
        while units_begun(to) < units:
            assert process.poll() is None, "it ended before it could be killed"
            assert not limit.is_over
            time.sleep(0.01)
    finally:
        kill(process)
    assert (to / "_done").exists() or units == 1
    again = start(maker, to)
    try:
        assert again.wait(WAIT_S) == 0
    finally:
        kill(again)
    assert rows_of(to) == written(maker)
