"""`zbroker spark audit`: findings as a table and as JSON, and what the exit code says."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark", reason="needs package pyspark")

from tests.cli.spark.conftest import Asked, Run
from zbroker.cli.spark import audit as command
from zbroker.spark.jobs.audit import AuditReport
from zbroker.spark.jobs.sequences import SequenceFinding

GAP = SequenceFinding("gap", (1 << 63) + 1, 4, 6, 77)
JUMP = GAP._replace(kind="jump")


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked(AuditReport(10, 0, 1, []))
    monkeypatch.setattr("zbroker.spark.jobs.audit.audit", asked)
    return asked


@pytest.mark.parametrize(
    ("findings", "words", "code"),
    [([], (), 0), ([GAP], (), 1), ([JUMP], (), 0), ([JUMP], ("--strict",), 1)],
)
def test_the_exit_code_says_whether_something_was_found(
    run: Run, job: Asked, findings: list[SequenceFinding], words: tuple[str, ...], code: int
) -> None:
    job.report = job.report._replace(findings=findings)
    assert run("audit", "zbroker-data", *words).exit_code == code


def test_findings_are_rows_for_programs(run: Run, job: Asked) -> None:
    job.report = job.report._replace(findings=[GAP])
    found = json.loads(run("audit", "zbroker-data", "--json").stdout)
    assert found == {
        "messages": 10, "others": 0, "publishers": 1,
        "findings": [{"kind": "gap", "publisher": "9223372036854775809", "first": 4, "last": 6,
                      "position": 77}],
    }  # fmt: skip


def test_a_long_table_is_cut(run: Run, job: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SHOWN", 2)
    job.report = job.report._replace(findings=[GAP] * 5)
    said = run("audit", "zbroker-data").stdout
    assert said.count("kind=gap") == 2
    assert "and 3 more" in said


def test_another_log_is_compared(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(AuditReport(10, 10, 1, []))
    monkeypatch.setattr("zbroker.spark.jobs.audit.compare", asked)
    words = ("--archive", "/old", "--against", "tcp://h:1", "--topic", "t")
    assert run("audit", "zbroker-data", *words).exit_code == 0
    here, there = asked.arguments[1:3]
    assert (here.source, here.archive, here.topic) == ("zbroker-data", "/old", "t")
    assert (there.source, there.archive, there.topic) == ("tcp://h:1", None, "t")
