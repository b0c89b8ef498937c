"""`zbroker-admin status`, and how it finds the instance (zbroker/control/target.py)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from zbroker import LocalBroker
from zbroker.cli.admin_main import main
from zbroker.cli.status import lines, overview

STATUS = {
    "instance": "a1",
    "state": "ready",
    "journal": {"written": 9},
    "processes": [{"room": "journal", "pid": 7, "state": "ready"}],
}


class Admin(BaseHTTPRequestHandler):
    """Answers what an admin would."""

    def do_GET(self) -> None:
        found = self.path == "/status"
        body = json.dumps(STATUS if found else {"code": "not_found", "reason": "no"}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """The data directory of an instance whose admin answers."""
    server = HTTPServer(("127.0.0.1", 0), Admin)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    _running(tmp_path, {"endpoints": {"admin": f"http://127.0.0.1:{server.server_port}"}})
    yield tmp_path
    server.shutdown()
    thread.join()
    server.server_close()


def _running(data: Path, text: object) -> None:
    (data / "run").mkdir()
    (data / "run" / "instance.json").write_text(json.dumps(text))


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), *arguments])


@pytest.mark.parametrize("arguments", [("--json", "status"), ("status", "--json")])
def test_json_is_what_the_admin_says(data: Path, arguments: tuple[str, ...]) -> None:
    result = run(data, *arguments)
    assert result.exit_code == 0
    assert json.loads(result.output) == STATUS


def test_plain_text_is_one_fact_or_process_per_line(data: Path) -> None:
    expected = ["instance a1", "state ready", "journal.written 9"]
    assert lines(STATUS) == [*expected, "room=journal pid=7 state=ready"]
    assert run(data, "status").output.splitlines() == lines(STATUS)


def test_an_alarm_says_what_it_means_and_what_to_do(data: Path) -> None:
    alarm = {"code": "disk_full", "since": "T", "what": "2 MiB free", "means": "m", "next": "n"}
    text = lines(STATUS | {"alarms": [alarm]})
    assert "alarm disk_full since T: 2 MiB free; m; n" in text


def test_a_terminal_gets_tables(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zbroker.cli.show.on_terminal", lambda: True)
    output = run(data, "status").output
    assert "\u2502" in output or "|" in output
    assert len(output.splitlines()) < 20, "a person looks at it"
    assert max(map(len, output.splitlines())) <= 80


def test_the_overview_has_what_one_looks_at() -> None:
    found = {
        "name": "prod", "instance": "a1", "version": "0.1.0", "state": "ready", "clients": 3,
        "subscriptions": 2, "rates": {"messages_in_s": 12.5, "idle": 0},
        "journal": {"persisted": 24001, "bytes": 3 << 20, "free_bytes": 5 << 30},
        "queues": {"count": 1, "depth": 7},
        "security": {"on": True},
    }  # fmt: skip
    assert overview(found) == [
        ("instance", "prod a1 0.1.0"), ("state", "ready"),
        ("log", "24,001 persisted, 3 MiB, 5 GiB free"), ("rates", "12.5 messages_in_s"),
        ("clients", "3, 2 subscriptions"), ("queues", "1 count, 7 depth"), ("security", "on"),
    ]  # fmt: skip


LINKS: dict[str, Any] = {
    "destinations": 2, "up": 2, "sources": 0, "lag": 0, "paused": 0, "downgraded": 0, "stopped": 0,
    "needed": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("links", "line"),
    [
        (LINKS, "2 of 2 destinations, lag 0"),
        (LINKS | {"sources": 1}, "2 of 2 destinations, lag 0, 1 source"),
        (
            LINKS | {"up": 1, "lag": 1_234, "paused": 1, "downgraded": 1, "stopped": 2},
            "1 of 2 destinations, lag 1,234, 1 paused, 1 downgraded, 2 stopped origins",
        ),
        (LINKS | {"destinations": 0, "up": 0, "sources": 2}, "2 sources"),
        (LINKS | {"up": None}, "2 destinations, their process does not answer"),
    ],
)
def test_links_have_one_line(links: dict[str, Any], line: str) -> None:
    assert ("replication", line) in overview({"replication": links})


def test_without_links_there_is_no_line_of_them() -> None:
    assert "replication" not in dict(overview({"replication": {}}))


def test_no_instance_is_exit_3(tmp_path: Path) -> None:
    result = run(tmp_path, "status")
    assert result.exit_code == 3
    assert f"no instance runs on {tmp_path}" in result.stderr


def test_an_instance_that_was_killed_is_exit_3(tmp_path: Path) -> None:
    _running(tmp_path, {"endpoints": {"admin": "http://127.0.0.1:9"}})
    result = run(tmp_path, "status")
    assert result.exit_code == 3
    assert "no answer at" in result.stderr


def test_an_instance_without_an_admin_yet_is_exit_3(tmp_path: Path) -> None:
    _running(tmp_path, {"endpoints": {}})
    assert run(tmp_path, "status").exit_code == 3


def test_a_url_that_is_none_is_an_error() -> None:
    result = CliRunner().invoke(main, ["--url", "nowhere", "status"])
    assert result.exit_code == 1
    assert "tcp://nowhere:9101" in result.stderr


@pytest.mark.process
def test_an_instance_is_found_by_its_url() -> None:
    with LocalBroker() as broker:
        result = CliRunner().invoke(main, ["--url", broker.url, "--json", "status"])
        assert result.exit_code == 0, result.output
        found = json.loads(result.output)
        assert (found["url"], found["state"]) == (broker.url, "ready")
        keys = ["first_position", "written", "persisted", "segments", "bytes", "durability"]
        assert list(found["journal"])[:6] == keys
