"""`zbroker-admin point rm` removes a named place; the messages stay."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.admins import FakeAdmin
from zbroker.cli.admin_main import main

FOUND = {"name": "eod", "dry_run": False, "position": 7, "vector": "a1.0.6"}


def rm(data: Any, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), "point", "rm", *arguments])


@pytest.mark.parametrize(
    ("options", "what"), [([], "removed"), (["--dry-run"], "would be removed (dry run)")]
)
def test_the_instance_is_reported(fake: FakeAdmin, options: list[str], what: str) -> None:
    dry_run = bool(options)
    fake.answers["POST /points/remove"] = FOUND | {"dry_run": dry_run}
    result = rm(fake.data, "eod", *options)
    assert result.stdout == f"eod: {what}; it was position 7\n"
    assert fake.reported == [("/points/remove", {"name": "eod", "dry_run": dry_run})]


def test_a_point_without_a_place_here_is_named_by_its_vector(fake: FakeAdmin) -> None:
    fake.answers["POST /points/remove"] = FOUND | {"position": None}
    assert rm(fake.data, "eod").stdout == "eod: removed; it was vector a1.0.6\n"


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers["POST /points/remove"] = FOUND
    assert json.loads(rm(fake.data, "eod", "--json").stdout) == FOUND


def test_a_point_that_is_not_there_is_not_found(fake: FakeAdmin) -> None:
    reason = "there is no point 'eod': it was removed, or never set"
    refusal = {"code": "unknown_point", "reason": reason, "hint": "look"}
    fake.answers["POST /points/remove"] = (404, refusal)
    result = rm(fake.data, "eod")
    assert (result.exit_code, reason in result.stderr) == (3, True)
