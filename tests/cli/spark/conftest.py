"""Commands are run without Spark: what they would tell a job is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from zbroker.cli.main import main

Run = Callable[..., Result]


class Asked:
    """Stands for a job."""

    def __init__(self, report: Any) -> None:
        self.report = report
        self.arguments: tuple[Any, ...] = ()
        self.options: dict[str, Any] = {}

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.arguments, self.options = arguments, options
        return self.report


@pytest.fixture
def masters(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The masters of sessions that were asked for."""
    asked: list[str] = []

    @contextmanager
    def session(_name: str, master: str = "") -> Iterator[None]:
        asked.append(master)
        yield None

    monkeypatch.setattr("zbroker.spark.jobs.job_runner.spark_session", session)
    return asked


@pytest.fixture
def run(
    masters: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("settings")))

    def invoke(*words: object) -> Result:
        return CliRunner().invoke(main, ["spark", *map(str, words)])

    return invoke


@pytest.fixture
def click_error() -> int:
    """The exit code of a wrong command line."""
    return click.UsageError.exit_code
