"""`zbroker spark backfill`: what the job is given."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs package pyspark")

from tests.cli.spark.conftest import Asked, Run
from zbroker.spark.jobs.backfill import BackfillReport, Input


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked(BackfillReport("backfill-1", 7))
    monkeypatch.setattr("zbroker.spark.jobs.backfill.backfill", asked)
    return asked


def test_an_input_goes_to_a_topic(run: Run, job: Asked) -> None:
    words = ("--payload", "p", "--key-column", "k", "--order-by", "a", "--order-by", "b")
    done = run("backfill", "in.csv", "tcp://h:1", "--topic", "t", *words, "--publish-id", "x")
    assert done.exit_code == 0, done.output
    assert done.stdout == "publish_id backfill-1\nrows       7\n"
    _, given, to, _, publish_id = job.arguments
    assert given == Input("in.csv", "", "p", "", "k", ("a", "b"))
    assert (to.url, to.topic, publish_id) == ("tcp://h:1", "t", "x")


def test_a_broker_has_to_be_named(run: Run, job: Asked, click_error: int) -> None:
    assert run("backfill", "in.csv", "--topic", "t").exit_code == click_error
