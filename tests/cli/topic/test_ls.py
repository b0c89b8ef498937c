"""`zbroker-admin topic ls` tells what the log holds, by topic."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from tests.cli.admins import FakeAdmin
from tests.cli.journals import Maker
from zbroker.cli.admin_main import main

ROW: dict[str, Any] = {
    "topic": "orders", "recorded": True, "messages": 3, "bytes": 2048,
    "first_time": "20260101T000000Z", "last_time": "20260102T000000Z", "last_position": 7,
    "subscriptions": 1,
}  # fmt: skip
FOUND = {"topics": [ROW], "left_out": 0, "complete": True}
ALL = "GET /topics?limit=1000"


def ls(data: Any, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), "topic", "ls", *arguments])


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers[ALL] = FOUND
    assert json.loads(ls(fake.data, "--json").stdout) == FOUND


def test_each_topic_is_a_line(fake: FakeAdmin) -> None:
    fake.answers[ALL] = FOUND
    assert ls(fake.data).stdout == (
        "topic=orders recorded=yes messages=3 bytes=2048 first_time=20260101T000000Z "
        "last_time=20260102T000000Z last_position=7 subscriptions=1\n"
    )


def test_what_is_wanted_is_asked_for(fake: FakeAdmin) -> None:
    fake.answers["GET /topics?match=a%2A%26&limit=3"] = FOUND
    assert ls(fake.data, "--match", "a*&", "--limit", "3").stdout.startswith("topic=orders")


def test_what_is_not_reported_is_said(fake: FakeAdmin) -> None:
    fake.answers[ALL] = {"topics": [], "left_out": 4, "complete": False}
    result = ls(fake.data)
    assert result.stdout == "the log holds no topic\n"
    assert result.stderr.splitlines() == [
        "the log is still being counted: there may be more of each",
        "4 more; see --limit and --match",
    ]


def test_without_an_instance_the_exit_code_is_not_found(maker: Maker) -> None:
    assert ls(maker.directory.parent).exit_code == 3
