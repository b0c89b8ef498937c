"""`zbroker spark export`: what the job is given, and what its report looks like."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs package pyspark")

from tests.cli.spark.conftest import Asked, Run
from zbroker.limits import MIB
from zbroker.spark.jobs.export import ExportReport

REPORT = ExportReport(600, 6_000, 4, 2, 621, 1_200, 8)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked(REPORT)
    monkeypatch.setattr("zbroker.spark.jobs.export.export", asked)
    return asked


def test_everything_is_exported_where_nothing_else_is_said(
    run: Run, job: Asked, tmp_path: Path, masters: list[str]
) -> None:
    done = run("export", "zbroker-data", "--to", tmp_path, "--json")
    assert json.loads(done.stdout) == REPORT._asdict()
    stretch = job.arguments[1]
    assert (stretch.source, stretch.since, stretch.until) == ("zbroker-data", "epoch", "now")
    assert job.options == {"since_given": False, "parts": 4, "unit_bytes": 64 * MIB}
    assert masters == [""]


def test_a_part_of_it_is_chosen(run: Run, job: Asked, tmp_path: Path, masters: list[str]) -> None:
    words = ("--topic", "a.*", "--regex", "--since", "-1h", "--filter", "/x > 1")
    more = ("--journal", "/old", "--archive", "/older", "--master", "local[1]", "--unit-mib", 8)
    done = run("export", "tcp://h:1", "--to", tmp_path, *words, *more)
    assert done.exit_code == 0, done.output
    assert "total_messages 1200" in done.stdout
    stretch = job.arguments[1]
    assert (stretch.topic, stretch.regex, stretch.filter) == ("a.*", True, "/x > 1")
    assert (stretch.journal, stretch.archive) == ("/old", "/older")
    ago = datetime.now(UTC) - stretch.since
    assert timedelta(minutes=59) < ago < timedelta(minutes=61)
    assert job.options == {"since_given": True, "parts": 4, "unit_bytes": 8 * MIB}
    assert masters == ["local[1]"]


def test_without_a_source_and_without_a_context_it_is_refused(
    run: Run, job: Asked, tmp_path: Path, click_error: int
) -> None:
    done = run("export", "--to", tmp_path)
    assert done.exit_code == click_error
    assert "give SOURCE" in done.output


def test_progress_is_reported_in_lines_where_there_is_no_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def work(_spark: object, _stretch: object, _to: Path, step, **_: object) -> ExportReport:
        for done in range(11):
            step("units", done, 10)
        return REPORT

    monkeypatch.setattr("zbroker.spark.jobs.export.export", work)
    done = run("export", "zbroker-data", "--to", tmp_path)
    assert done.stderr == "units: 0 of 10\nunits: 10 of 10\n"
