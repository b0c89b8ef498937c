"""`zbroker-admin point set` gives a place of the log a name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.admins import FakeAdmin
from zbroker.cli.admin_main import main

FOUND = {"name": "eod", "position": 7, "vector": "a1.0.6"}


def set_point(data: Any, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), "point", "set", *arguments])


@pytest.mark.seed("003-25")
@pytest.mark.parametrize(
    ("options", "body"), [([], {"name": "eod"}), (["--at", "7"], {"name": "eod", "at": 7})]
)
def test_the_instance_is_reported(
    fake: FakeAdmin, options: list[str], body: dict[str, Any]
) -> None:
    fake.answers["POST /points"] = FOUND
    result = set_point(fake.data, "eod", *options)
    assert result.stdout == "eod: position 7, vector a1.0.6\n"
    assert fake.reported == [("/points", body)]


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers["POST /points"] = FOUND
    assert json.loads(set_point(fake.data, "eod", "--json").stdout) == FOUND


def test_a_place_that_is_none_is_wrong_usage(fake: FakeAdmin) -> None:
    assert set_point(fake.data, "eod", "--at", "0").exit_code == 2
    assert set_point(fake.data).exit_code == 2
