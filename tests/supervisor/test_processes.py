"""Which processes an instance has, and that their listeners are free before anything starts."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from zbroker import config
from zbroker.supervisor.processes import PROCESSES, processes_of

ROOT = Path(__file__).parent.parent.parent
BOUND_S = 30.0
FREE = "tcp://127.0.0.1:0"


def test_one_process_of_each_kind_by_default() -> None:
    without = tuple(plan for plan in PROCESSES if plan.name != "replication")
    assert processes_of(config.Config()) == without


@pytest.mark.parametrize("setting", [
    {"listen": {"replication": FREE}},
    {"destination": [{"name": "b", "to": ["tcp://127.0.0.1:9104"]}]},
])  # fmt: skip
def test_replication_has_a_process_if_there_are_links(setting: dict[str, Any]) -> None:
    settings = msgspec.convert(setting, config.Config)
    assert processes_of(settings) == PROCESSES


def test_delivery_has_a_process_per_worker() -> None:
    settings = config.parse("", "z.toml", {"delivery.workers": 3, "listen.queues": FREE})
    found = processes_of(settings)
    assert [process.name for process in found] == [
        "journal", "ingest", "delivery", "delivery-2", "delivery-3", "queues", "admin",
    ]  # fmt: skip
    assert {process.module for process in found[2:5]} == {"zbroker.delivery.loop"}
    assert {process.needs for process in found[2:5]} == {("journal",)}


def test_queues_wait_for_the_journal_only() -> None:
    [queues] = [process for process in PROCESSES if process.name == "queues"]
    assert (queues.module, queues.needs) == ("zbroker.queues.loop", ("journal",))


def behind_a_free_one() -> socket.socket:
    """Listens on a port; no one does on the one before it."""
    for _ in range(100):
        found = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", found.getsockname()[1] - 1)).close()
        except OSError:
            found.close()
        else:
            return found
    raise AssertionError("every port is in use")


@pytest.mark.process
def test_a_workers_port_that_is_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    path, data = tmp_path / "z.toml", tmp_path / "data"
    with behind_a_free_one() as other:
        port = other.getsockname()[1]
        path.write_text(
            f"[instance]\ndata_dir = '{data}'\n[delivery]\nworkers = 2\n[listen]\n"
            f"ingest = 'tcp://127.0.0.1:0'\ndelivery = 'tcp://127.0.0.1:{port - 1}'\n"
            "queues = 'tcp://127.0.0.1:0'\nadmin = 'http://127.0.0.1:0'\n"
        )
        command = [sys.executable, "-m", "zbroker.cli.main", "start", "-c", str(path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BOUND_S)
    assert done.returncode == 78
    assert f"`listen.delivery`: cannot listen on tcp://127.0.0.1:{port}" in done.stderr
    assert not (data / "run" / "instance.json").exists()
