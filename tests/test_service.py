"""conf/zbroker.service: the unit says what the programs understand."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zbroker.cli.main import main
from zbroker.local import STOP_S
from zbroker.supervisor.core import EX_CONFIG

UNIT = Path(__file__).parent.parent / "conf" / "zbroker.service"


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser


def test_the_command_line_is_one_that_zbroker_takes(unit: configparser.ConfigParser) -> None:
    program, name, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "zbroker"
    with main.make_context("zbroker", [name, *arguments]) as context:
        _, command, rest = main.resolve_command(context, [name, *arguments])
        assert command is not None
        given = command.make_context(name, rest, parent=context).params
    assert given["path"] == Path("/etc/zbroker/zbroker.toml")
    assert given["data_dir"] == "/var/lib/zbroker"
    assert not given["accept_tail_loss"]
    assert not given["accept_missing"]


def test_a_wrong_config_is_not_tried_again(unit: configparser.ConfigParser) -> None:
    assert unit["Service"]["Restart"] == "on-failure"
    assert unit["Service"]["RestartPreventExitStatus"].split() == [str(EX_CONFIG)]


def test_a_clean_stop_gets_the_time_that_it_may_take(unit: configparser.ConfigParser) -> None:
    assert unit["Service"]["KillMode"] == "mixed"
    assert int(unit["Service"]["TimeoutStopSec"]) > STOP_S


def test_what_is_kept_may_be_written(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    assert service["ProtectSystem"] == "strict"
    assert f"/var/lib/{service['StateDirectory']}" in service["ExecStart"]
    assert f"/etc/{service['ConfigurationDirectory']}/" in service["ExecStart"]
    assert unit["Unit"]["RequiresMountsFor"] == f"/var/lib/{service['StateDirectory']}"


def test_systemd_knows_every_line(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs package systemd")
    text = UNIT.read_text().replace("/opt/zbroker/bin/zbroker", sys.executable)
    copy = tmp_path / "zbroker.service"
    copy.write_text(text)
    done = subprocess.run(
        [analyze, "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    said = [line for line in done.stderr.splitlines() if "zbroker.service" in line]
    assert said == [], done.stderr


def test_a_line_that_systemd_does_not_know_is_noticed(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs package systemd")
    copy = tmp_path / "zbroker.service"
    copy.write_text(UNIT.read_text() + "\n[Service]\nFlyAway=yes\n")
    done = subprocess.run(
        [analyze, "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "FlyAway" in done.stderr
