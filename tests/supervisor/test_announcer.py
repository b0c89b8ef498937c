"""zbroker/supervisor/announcer.py: what is said of an instance, and when."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from zbroker import config
from zbroker.paths import Paths
from zbroker.supervisor import directory
from zbroker.supervisor.announcer import Announcer
from zbroker.supervisor.core import Announce

INGEST = {"ingest": "tcp://127.0.0.1:9101"}


class Starter:
    """An instance in a directory, and what started it."""

    def __init__(self, data: Path) -> None:
        settings = config.load(None, {"instance.data_dir": str(data)})
        self.heard: list[str] = []
        self._lock = directory.lock(data)
        self.paths: Paths = directory.prepare(settings)
        self.announce = Announcer(settings, self.paths, self.heard.append, 0).announce

    def running(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.paths.running.read_text())
        return found

    def close(self) -> None:
        directory.clean(self.paths)
        os.close(self._lock)


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Starter]:
    made = Starter(tmp_path / "data")
    yield made
    made.close()


def test_an_instance_that_is_not_ready_is_only_written_down(
    starter: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    starter.announce(Announce(INGEST, ready=False))
    assert starter.running()["endpoints"] == INGEST
    assert (starter.heard, caplog.messages) == ([], [])


def test_what_started_an_instance_hears_its_url_once_it_is_ready(
    starter: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    starter.announce(Announce(INGEST, ready=True))
    assert starter.heard == ["tcp://127.0.0.1:9101"]
    [line] = caplog.messages
    assert line.endswith("ms: tcp://127.0.0.1:9101")


def test_a_change_of_endpoints_keeps_the_time_of_the_start(starter: Starter) -> None:
    starter.announce(Announce({}, ready=False))
    began = starter.running()["started"]
    starter.announce(Announce(INGEST, ready=False))
    assert starter.running()["started"] == began
