"""zbroker/supervisor/child.py: exceptions become exit codes, and a process runs by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zbroker.config import Config, DeliveryConfig
from zbroker.errors import ConfigError
from zbroker.paths import Paths
from zbroker.supervisor import child, directory

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent.parent
BOUND_S = 30.0


def start(data: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "zbroker.journal", "--data-dir", str(data)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def test_a_process_runs_by_hand_until_it_is_asked_to_stop(tmp_path: Path) -> None:
    process = start(tmp_path)
    try:
        deadline = time.monotonic() + BOUND_S
        while not (tmp_path / "journal" / "lock").exists() and not list(
            (tmp_path / "journal").glob("*.journal")
        ):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.02)
        process.terminate()
        _, log = process.communicate(timeout=BOUND_S)
        assert process.returncode in (0, -15), log
    finally:
        process.kill()
        process.wait()
        instance = directory.read_identity(tmp_path)
        assert instance
        directory.clean(Paths(tmp_path, tmp_path / "journal", tmp_path / "archive", instance))


def test_a_process_by_hand_respects_a_running_instance(tmp_path: Path) -> None:
    held = directory.lock(tmp_path)
    _, reported = start(tmp_path).communicate(timeout=BOUND_S)
    os.close(held)
    assert f"is used by the instance with pid {os.getpid()}" in reported


def test_by_hand_a_worker_is_chosen_by_number() -> None:
    config = Config(delivery=DeliveryConfig(workers=2))
    assert child._named("delivery", 1, config) == "delivery"
    assert child._named("delivery", 2, config) == "delivery-2"
    assert child._named("journal", 1, config) == "journal"
    for name, worker in (("delivery", 3), ("delivery", 0), ("journal", 2)):
        with pytest.raises(ConfigError, match=f"there is no worker {worker} of {name}"):
            child._named(name, worker, config)


def test_a_machine_with_one_core_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert child._for_this_machine(Config()).ingest.spin_us == 0
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert child._for_this_machine(Config()).ingest.spin_us == 300
