"""`zbroker-admin point ls` tells the named places of the log."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from tests.cli.admins import FakeAdmin
from tests.cli.journals import Maker
from zbroker.cli.admin_main import main

ROW = {"name": "eod", "scope": "local", "position": 7, "vector": "a1.0.6", "set_at": 9}
FOUND = {"points": [ROW]}


def ls(data: Any, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), "point", "ls", *arguments])


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers["GET /points"] = FOUND
    assert json.loads(ls(fake.data, "--json").stdout) == FOUND


def test_each_point_is_a_line(fake: FakeAdmin) -> None:
    fake.answers["GET /points"] = FOUND
    assert ls(fake.data).stdout == "name=eod scope=local position=7 vector=a1.0.6 set_at=9\n"


def test_one_point_is_asked_for_by_name(fake: FakeAdmin) -> None:
    fake.answers["GET /points?name=eod"] = FOUND
    assert json.loads(ls(fake.data, "eod", "--json").stdout) == FOUND


def test_without_any_it_says_how_to_set_one(fake: FakeAdmin) -> None:
    fake.answers["GET /points"] = {"points": []}
    assert "point set" in ls(fake.data).stdout


def test_without_an_instance_the_exit_code_is_not_found(maker: Maker) -> None:
    assert ls(maker.directory.parent).exit_code == 3
