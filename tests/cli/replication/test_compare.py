"""`zbroker-admin replication compare` says whether instances hold the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.admins import FakeAdmin
from tests.control.compared_logs import A, B, FakeLog, published
from zbroker.cli import show
from zbroker.cli.admin_main import main


class LogAdmin(FakeAdmin):
    """The admin of an instance with these messages."""

    def __init__(self, data: Path, instance: int, positions: range, wrong: int = 0) -> None:
        super().__init__(data)
        batches = [published(n, crc=1 if n == wrong else 99) for n in positions]
        self.log = FakeLog(instance, batches)
        self.answers = _AnyQuery(self.log)


class _AnyQuery(dict[str, Any]):
    def __init__(self, log: FakeLog) -> None:
        super().__init__()
        self.log = log

    def get(self, key: str, default: Any = None) -> Any:
        if key.startswith("GET /replication/digests?"):
            return self.log.ask(key.removeprefix("GET "))
        return super().get(key, default)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[LogAdmin]]:
    """a and b hold the same, c has another message at position 7 and one less."""
    made = [
        LogAdmin(tmp_path / "a", A, range(1, 11)),
        LogAdmin(tmp_path / "b", B, range(1, 11)),
        LogAdmin(tmp_path / "c", 0xC, range(1, 10), wrong=7),
    ]
    yield made
    for one in made:
        one.close()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["replication", "compare", *arguments])


def test_equal_logs_are_exit_code_0(three: list[LogAdmin]) -> None:
    result = run(three[0].url, three[1].url)
    assert (result.exit_code, result.stdout.splitlines()[-1][:6]) == (0, "equal:")
    assert result.stdout.splitlines()[0] == (
        f"origin={A:016x}.1 instance={three[0].url} state=equal last=10 lag=0 messages=10 ties=0 "
        "missing=0 newest=yes"
    )


def test_a_difference_is_exit_code_1(three: list[LogAdmin]) -> None:
    result = run(*(one.url for one in three))
    assert result.exit_code == 1
    assert f"origin {A:016x}.1 differs first at position 7: {three[0].url} has" in result.stdout
    assert "content 00000063" in result.stdout
    assert "content 00000001" in result.stdout


def test_a_lag_is_exit_code_1(three: list[LogAdmin]) -> None:
    three[1].log.persisted -= 2
    result = run(three[0].url, three[1].url)
    assert (result.exit_code, "lag: what all of them hold is equal so far" in result.stdout) == (
        1, True
    )  # fmt: skip
    assert " state=lag last=8 lag=2 " in result.stdout


def test_json_has_all_of_it(three: list[LogAdmin]) -> None:
    found = json.loads(run(three[0].url, three[2].url, "--json").stdout)
    assert (found["state"], found["code"]) == ("different", 1)
    assert [one["instance"] for one in found["instances"]] == [f"{A:016x}", f"{0xC:016x}"]
    (origin,) = found["origins"]
    assert origin["difference"]["position"] == 7
    assert [held["lag"] for held in origin["held"]] == [0, 1]


def test_a_damaged_log_is_named(three: list[LogAdmin]) -> None:
    three[1].log.damaged = [[4, 6]]
    shown = run(three[0].url, three[1].url).stdout
    assert f"{three[1].url}: its log cannot be read from position 4 to 5" in shown


def test_a_terminal_gets_a_table(three: list[LogAdmin], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "110")
    output = run(three[0].url, three[1].url).stdout
    assert max(map(len, output.splitlines())) <= 110
    assert "messages" in output


def test_a_token_is_read_from_a_file(three: list[LogAdmin], tmp_path: Path) -> None:
    urls = three[0].url, three[1].url
    three[1].readers = {"secret"}
    assert "no token" in run(*urls).stderr
    (tmp_path / "token").write_text("secret\n")
    assert run(*urls, "--token-file", str(tmp_path / "token")).exit_code == 0
    assert run(*urls, "--token-file", str(tmp_path / "none")).exit_code == 3


def test_what_cannot_be_found_out_is_exit_code_3(three: list[LogAdmin]) -> None:
    url = three[0].url
    assert run(url).exit_code == 3
    assert run(url, url).exit_code == 3
    assert run(url, three[1].url, *["--token-file", "x"] * 3).exit_code == 3
    assert "no answer" in run(url, "http://127.0.0.1:1").stderr
    assert run(url, "nonsense").exit_code == 3
    three[1].log.instance = A
    assert "are one instance" in run(url, three[1].url).stderr


def test_logs_without_messages_are_equal(three: list[LogAdmin]) -> None:
    for one in three:
        one.log.batches.clear()
    assert run(three[0].url, three[1].url).stdout.startswith("equal: none of them")
