"""`zbroker-admin top` (zbroker/cli/top.py, top_screen.py)."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from tests.cli.admins import FakeAdmin
from tests.cli.journals import Maker
from zbroker.cli import top
from zbroker.cli.admin_main import main
from zbroker.cli.top_screen import Usage, drawn

BOUND_S = 30
NOW = datetime(2026, 1, 2, tzinfo=UTC)
STATUS: dict[str, Any] = {
    "state": "degraded", "name": "n1", "url": "tcp://h:1", "version": "1", "clients": 2,
    "subscriptions": 1, "rates": {"messages_in_s": 1234.4},
    "queues": {"count": 2, "depth": 77, "ready": 70, "leased": 7, "consumers": 3, "dead": 1},
    "journal": {"persisted": 100, "written": 100, "first_position": 1, "bytes": 2048,
                "segments": 1, "sync_ms": 3.5, "free_bytes": None},
    "processes": [
        {"room": "supervisor", "pid": 1, "state": "degraded"},
        {"room": "journal", "pid": os.getpid(), "state": "ready", "restarts": 0, "uptime_s": 5},
        {"room": "delivery", "pid": 0, "state": "down", "restarts": 4},
    ],
    "alarms": [{"code": "disk_80", "since": "T", "what": "[b]80 %", "means": "m", "next": "free"}],
}  # fmt: skip
ROW: dict[str, Any] = {
    "client": "[red]spark", "topic": "orders", "regex": True, "state": "no credit", "lag": 60,
    "lag_s": 1.5, "sent_messages": 39, "credit": 0,
}  # fmt: skip
ASK = "GET /subscriptions?limit=10"


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), "top", *arguments])


@pytest.fixture
def busy(fake: FakeAdmin) -> FakeAdmin:
    fake.answers |= {"GET /status": STATUS, ASK: {"subscriptions": [ROW]}}
    return fake


def test_a_look_is_a_line() -> None:
    found = top.document(STATUS, [ROW], NOW)
    assert top.line(found) == (
        "time=2026-01-02T00:00:00+00:00 state=degraded messages_in_s=1234.4 clients=2 "
        "subscriptions=1 lag_max=60 queued=77 persisted=100 sync_ms=3.5 down=delivery:down "
        "alarms=disk_80"
    )


def test_once_is_one_line(busy: FakeAdmin) -> None:
    result = run(busy.data, "--once")
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1)


def test_once_in_json_is_a_document_with_stable_keys(busy: FakeAdmin) -> None:
    found = json.loads(run(busy.data, "--once", "--json").stdout)
    assert list(found) == [
        "time", "state", "name", "url", "version", "clients", "subscriptions", "queues", "rates",
        "lag_max", "journal", "processes", "farthest", "alarms", "security",
    ]  # fmt: skip
    assert (found["lag_max"], found["farthest"]) == (60, [ROW])


def test_several_in_json_are_lines(busy: FakeAdmin) -> None:
    lines = run(busy.data, "--count", "3", "--interval", "0.1", "--json").stdout.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["degraded"] * 3


def test_an_instance_that_goes_away_is_waited_for(busy: FakeAdmin) -> None:
    answers: list[Any] = [STATUS, (503, {"code": "not_ready", "reason": "later"}), STATUS]
    busy.answers["GET /status"] = lambda _: answers.pop(0)
    result = run(busy.data, "--count", "2", "--interval", "0.1")
    assert result.exit_code == 0


def test_one_that_starts_is_not_asked_for_subscriptions(fake: FakeAdmin) -> None:
    fake.answers["GET /status"] = STATUS | {"state": "starting"}
    assert json.loads(run(fake.data, "--once", "--json").stdout)["farthest"] == []


def test_without_an_instance_the_exit_code_is_not_found(maker: Maker) -> None:
    assert run(maker.directory.parent, "--once").exit_code == 3


def shown(height: int, missing: str = "") -> str:
    found = top.document(STATUS, [ROW] * 10, NOW)
    console = Console(width=160, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    usage = Usage(local=True).of(found["processes"])
    console.print(drawn(found, usage, missing, height))
    console.file.close()
    return console.export_text()


def test_the_screen_has_rates_processes_alarms_and_who_is_behind() -> None:
    text = shown(60)
    for part in (
        "n1",
        "degraded",
        "1,234",
        "persisted 100",
        "[b]80 %",
        "free",
        "journal",
        "queues 2",
        "depth 77",
        "/orders/",
    ):
        assert part in text
    assert text.count("[red]spark") == 10


def test_a_small_screen_has_fewer_subscriptions() -> None:
    assert 0 < shown(20).count("[red]spark") < 10
    assert "[red]spark" not in shown(10)


def test_an_instance_without_queues_has_no_row_for_them() -> None:
    found = top.document(STATUS | {"queues": {"count": 0}}, [], NOW)
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(drawn(found, {}, "", 60))
    assert "queues" not in console.export_text()
    older = top.document({key: STATUS[key] for key in STATUS if key != "queues"}, [], NOW)
    assert "queued=- " in top.line(older), "one that does not know them"


def test_an_old_look_is_marked() -> None:
    assert "not_found: gone: what follows is old" in shown(60, "not_found: gone")


def test_the_use_of_a_process_that_is_gone_is_left_out() -> None:
    pids = [{"pid": os.getpid()}, {"pid": 0}, {"pid": 4_000_000}]
    assert list(Usage(local=True).of(pids)) == [os.getpid()]
    assert Usage(local=False).of(pids) == {}


@pytest.mark.process
def test_q_ends_it_on_a_terminal(busy: FakeAdmin) -> None:
    command = [sys.executable, "-m", "zbroker.cli.admin_main", "--data-dir", str(busy.data), "top"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    text, deadline = b"", time.monotonic() + BOUND_S
    while b"journal" not in text and time.monotonic() < deadline:
        if select.select([terminal], [], [], 1)[0]:
            text += os.read(terminal, 65_536)
    assert b"journal" in text
    os.write(terminal, b"q")
    while time.monotonic() < deadline:
        try:
            os.read(terminal, 65_536)
        except OSError:  # its end is closed
            break
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
