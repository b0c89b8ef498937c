"""zbroker/admin/jobs.py: work is slow while the log grows (the rest is in test_worker.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.admin.rig import Rig
from zbroker.admin import jobs
from zbroker.limits import MIB


class Bench:
    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.journal = rig.journal
        monkeypatch.setattr(jobs.time, "monotonic", lambda: self.now_s)
        link: Any = self.journal
        self.pace = jobs.JobPace(link)

    def publish(self) -> None:
        holders = self.journal.holders
        self.journal.holders = replace(holders, persisted=holders.persisted + 1)

    def run(self, steps: int, *, publishing: bool) -> float:
        """Seconds that steps of 1 MiB take."""
        begun = self.now_s
        for _ in range(steps):
            if publishing:
                self.publish()
            self.now_s += self.pace.wait_s(MIB)
        return self.now_s - begun


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(Rig(tmp_path, segments=1), monkeypatch)


def test_while_somebody_publishes_work_is_slow(bench: Bench) -> None:
    assert bench.run(80, publishing=True) == pytest.approx(10, abs=0.5)


def test_while_no_one_publishes_work_is_fast(bench: Bench) -> None:
    assert bench.run(20, publishing=False) < 2
    assert bench.run(256, publishing=False) == pytest.approx(1, abs=0.2)


def test_who_begins_to_publish_is_noticed_soon(bench: Bench) -> None:
    bench.run(100, publishing=False)
    assert bench.run(500, publishing=True) > 20


def test_without_the_journal_work_goes_on(bench: Bench) -> None:
    bench.journal.welcome = None
    assert bench.run(100, publishing=False) < 20
