"""`zbroker spark stats`: rows for people, pipes and programs."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs package pyspark")

from tests.cli.spark.conftest import Asked, Run
from zbroker.spark.jobs.stats import StatsReport

TOPIC: dict[str, Any] = {"hour": "2026-11-22T08", "topic": "orders", "messages": 3, "bytes": 2_048}
QUEUE: dict[str, Any] = {"queue": "work", "left": 4, "left_why": {"acked": 4}}


@pytest.fixture(autouse=True)
def _job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zbroker.spark.jobs.stats.stats", Asked(StatsReport([TOPIC], [QUEUE])))


def test_a_pipe_gets_a_line_for_each_row(run: Run) -> None:
    lines = run("stats", "zbroker-data").stdout.splitlines()
    assert lines[0].startswith("hour=2026-11-22T08 topic=orders messages=3 bytes=2048")
    assert lines[1].startswith("queue=work left=4")
    assert "left_why=acked:4" in lines[1]


def test_a_program_gets_all_of_it(run: Run) -> None:
    found = json.loads(run("stats", "zbroker-data", "--json").stdout)
    assert found == {"topics": [TOPIC], "queues": [QUEUE]}
