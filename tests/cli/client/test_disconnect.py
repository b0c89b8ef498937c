"""`zbroker-admin client disconnect` ends the sessions of a client."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from tests.cli.admins import FakeAdmin
from tests.cli.client.rows import FOUND
from zbroker.cli.admin_main import main

POST = "POST /clients/disconnect"


def disconnect(data: Any, *arguments: str) -> Result:
    program = ["--data-dir", str(data), "client", "disconnect", *arguments]
    return CliRunner().invoke(main, program)


def test_the_instance_is_reported(fake: FakeAdmin) -> None:
    fake.answers[POST] = {"disconnected": 2}
    assert disconnect(fake.data, "pricer").stdout == "pricer: 2 connections ended\n"
    assert fake.reported == [("/clients/disconnect", {"client": "pricer"})]


def test_json_says_how_many(fake: FakeAdmin) -> None:
    fake.answers[POST] = {"disconnected": 1}
    expected = {"client": "pricer", "dry_run": False, "disconnected": 1}
    assert json.loads(disconnect(fake.data, "pricer", "--json").stdout) == expected


def test_a_dry_run_shows_them_and_ends_none(fake: FakeAdmin) -> None:
    fake.answers["GET /clients?client=pricer&limit=1000"] = FOUND
    result = disconnect(fake.data, "pricer", "--dry-run")
    assert len(result.stdout.splitlines()) == 3
    assert result.stdout.endswith("pricer: 2 connections would be ended\n")
    assert fake.reported == []


def test_no_one_of_that_name_is_not_found(fake: FakeAdmin) -> None:
    fake.answers[POST] = {"disconnected": 0}
    assert disconnect(fake.data, "x").exit_code == 3
    fake.answers["GET /clients?client=x&limit=1000"] = FOUND | {"clients": []}
    assert disconnect(fake.data, "x", "--dry-run").exit_code == 3
