"""`zbroker spark reprocess`: a range or a stream, and what may be said of each."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs package pyspark")

from tests.cli.spark.conftest import Asked, Run
from zbroker.spark.jobs.reprocess import FunctionName, ReprocessReport

END = "20261122T000000Z"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> tuple[Asked, Asked]:
    asked = Asked(ReprocessReport("range", 1)), Asked(ReprocessReport("stream", 1))
    monkeypatch.setattr("zbroker.spark.jobs.reprocess.reprocess", asked[0])
    monkeypatch.setattr("zbroker.spark.jobs.reprocess.reprocess_stream", asked[1])
    return asked


def test_a_range_ends_somewhere(run: Run, jobs: tuple[Asked, Asked]) -> None:
    done = run("reprocess", "old", "m:f", "tcp://h:1", "--until", END, "--to-topic", "t")
    assert done.exit_code == 0, done.output
    _, stretch, what, to, _, publish_id, parts = jobs[0].arguments
    assert (stretch.source, stretch.until, publish_id, parts) == ("old", END, "", 4)
    assert what == FunctionName("m:f", "messages", str(Path.cwd()))
    assert (to.url, to.topic) == ("tcp://h:1", "t")


def test_a_stream_has_a_checkpoint(run: Run, jobs: tuple[Asked, Asked]) -> None:
    done = run("reprocess", "tcp://h:1", "m:f", "--checkpoint", "/c", "--form", "arrow")
    assert done.exit_code == 0, done.output
    _, _, what, to, _, checkpoint, every_s = jobs[1].arguments
    assert (what.form, to.url, checkpoint, every_s) == ("arrow", "tcp://h:1", "/c", None)


@pytest.mark.parametrize(
    "words",
    [
        ("old", "m:f", "tcp://h:1"),
        ("old", "m:f", "tcp://h:1", "--until", "now"),
        ("old", "m:f", "elsewhere", "--until", END),
        ("old", "m:f", "tcp://h:1", "--until", END, "--every", 1),
        ("old", "m:f", "tcp://h:1", "--until", END, "--checkpoint", "/c"),
        ("old", "m:f", "tcp://h:1", "--publish-id", "x", "--checkpoint", "/c"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    run: Run, jobs: tuple[Asked, Asked], words: tuple[object, ...], click_error: int
) -> None:
    assert run("reprocess", *words).exit_code == click_error
