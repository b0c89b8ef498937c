"""`zbroker-admin replication ls` shows links."""

from __future__ import annotations

import json

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.journals import Maker
from tests.cli.replication.rows import ALL, IN, OUT, links, run
from zbroker.cli import show

FOUND = links(OUT, OUT | {"name": "c", "downgraded": True, "by_hand": True}, IN)


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers[ALL] = FOUND
    assert json.loads(run(fake.data, "ls", "--json").stdout) == FOUND


def test_each_link_is_a_line(fake: FakeAdmin) -> None:
    fake.answers[ALL] = FOUND
    first, second, third = run(fake.data, "ls").stdout.splitlines()
    assert first == (
        "name=b direction=out state=sending mode=sync topics=- filter=- downgraded=- lag=12 "
        "mark=5300 on_the_way_bytes=4096 log_bytes=0 stopped=- problem=- address=-"
    )
    assert 'downgraded="by hand"' in second
    assert third.startswith(
        "name=b direction=in state=receiving mode=- topics=- filter=- downgraded=- lag=7 "
    )
    assert third.endswith(" address=10.0.0.2:40112")


def test_stopped_origins_are_counted(fake: FakeAdmin) -> None:
    fake.answers[ALL] = links(OUT | {"downgraded": True, "stopped": {"a.1": "fork", "a.2": "gap"}})
    (line,) = run(fake.data, "ls").stdout.splitlines()
    assert " downgraded=yes " in line
    assert " stopped=2 " in line


def test_a_terminal_of_80_columns_gets_a_table(
    fake: FakeAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = OUT | {
        "name": "emea-primary", "lag": 1_234_567, "mark": 123_456_789_012, "log_bytes": 12 << 30,
        "on_the_way_bytes": 16 << 20, "stopped": {"a.1": "fork"}, "downgraded": True,
        "problem": "protocol 2 is not known here, 1 is",
    }  # fmt: skip
    fake.answers[ALL] = links(row, IN)
    monkeypatch.setattr(show, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    output = run(fake.data, "ls").stdout
    assert max(map(len, output.splitlines())) <= 80
    for shown in ("emea-primary", "out", "sending", "1234567", "receiving"):
        assert shown in output


def test_without_any_it_says_where_they_come_from(fake: FakeAdmin) -> None:
    fake.answers[ALL] = links() | {"replicates": False}
    assert "[[destination]]" in run(fake.data, "ls").stdout


def test_a_process_that_does_not_answer_is_an_error(fake: FakeAdmin) -> None:
    fake.answers[ALL] = (503, {"code": "not_ready", "reason": "it starts", "hint": ""})
    result = run(fake.data, "ls")
    assert (result.exit_code, "it starts" in result.stderr) == (1, True)


def test_without_an_instance_the_exit_code_is_not_found(maker: Maker) -> None:
    assert run(maker.directory.parent, "ls").exit_code == 3
