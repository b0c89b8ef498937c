"""`zbroker-admin replication pause | resume | downgrade | upgrade`: asked for, and answered."""

from __future__ import annotations

import json

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.replication.rows import changed, run

pytestmark = pytest.mark.parametrize("what", ["pause", "resume", "downgrade", "upgrade"])


def test_the_answer_says_what_follows(fake: FakeAdmin, what: str) -> None:
    path = f"/replication/b/{what}"
    fake.answers[f"POST {path}"] = changed(what)
    assert run(fake.data, what, "b").stdout == f"b: {what}: {what} done\n"
    assert fake.reported == [(path, {"dry_run": False})]


def test_a_dry_run_is_marked(fake: FakeAdmin, what: str) -> None:
    path = f"/replication/b/{what}"
    fake.answers[f"POST {path}"] = changed(what)
    result = run(fake.data, what, "b", "--dry-run")
    assert result.stdout == f"b: {what} (dry run): {what} done\n"
    assert fake.reported == [(path, {"dry_run": True})]
    found = json.loads(run(fake.data, what, "b", "--dry-run", "--json").stdout)
    assert found == {"link": "b", "dry_run": True, "text": f"{what} done"}


def test_an_unknown_destination_is_not_found(fake: FakeAdmin, what: str) -> None:
    refused = {"code": "not_found", "reason": "there is no destination 'x'", "hint": ""}
    fake.answers[f"POST /replication/x%2Fy/{what}"] = (404, refused)
    result = run(fake.data, what, "x/y")
    assert (result.exit_code, "no destination" in result.stderr) == (3, True)
    assert run(fake.data, what, "").exit_code == 2
