"""`zbroker start`: what can be said without starting anything, and one real start."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from zbroker.cli.main import main
from zbroker.supervisor import directory

BOUND_S = 60


def test_a_wrong_config_is_exit_78_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "z.toml"
    path.write_text("[listen]\n\ningest = 'tcp://0.0.0.0:9101'\n")
    result = CliRunner().invoke(main, ["start", "-c", str(path)])
    assert result.exit_code == 78
    assert f"{path}:3: " in result.stderr


def test_a_second_start_says_pid_and_path(tmp_path: Path) -> None:
    held = directory.lock(tmp_path / "data")
    command = [
        sys.executable,
        "-m",
        "zbroker.cli.main",
        "start",
        "--data-dir",
        str(tmp_path / "data"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S)
    os.close(held)
    assert done.returncode == 1
    assert f"{tmp_path / 'data'} is used by the instance with pid {os.getpid()}" in done.stderr


@pytest.mark.process
def test_a_port_in_use_is_exit_78_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (tmp_path / "z.toml").write_text(f"[listen]\ningest = 'tcp://127.0.0.1:{port}'\n")
        arguments = ["start", "-c", str(tmp_path / "z.toml"), "--data-dir", str(tmp_path / "data")]
        command = [sys.executable, "-m", "zbroker.cli.main", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S)
    assert done.returncode == 78
    assert f"`listen.ingest`: cannot listen on tcp://127.0.0.1:{port}" in done.stderr


@pytest.mark.process
def test_an_instance_starts_says_ready_and_stops_cleanly(tmp_path: Path) -> None:
    path = tmp_path / "z.toml"
    path.write_text(
        "[listen]\ningest = 'tcp://127.0.0.1:0'\ndelivery = 'tcp://127.0.0.1:0'\n"
        "queues = 'tcp://127.0.0.1:0'\nadmin = 'http://127.0.0.1:0'\n"
    )
    data = str(tmp_path / "data")
    command = [
        sys.executable,
        "-m",
        "zbroker.cli.main",
        "start",
        "-c",
        str(path),
        "--data-dir",
        data,
    ]
    with subprocess.Popen([*command, "--name", "n1"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            word, url = process.stdout.readline().split()
            running = json.loads((tmp_path / "data" / "run" / "instance.json").read_text())
            assert (word, url, "n1") == ("ready", running["url"], running["name"])
            assert set(running["endpoints"]) == {"ingest", "delivery", "queues", "admin"}
            process.send_signal(signal.SIGTERM)
            assert process.wait(BOUND_S) == 0
            assert process.stdout.read() == ""
        finally:
            process.kill()
