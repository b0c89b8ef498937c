"""`zbroker-admin replication pause` asks for it, and says what follows."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.replication.rows import changed, run

PATH = "/replication/b/pause"


def test_the_answer_says_what_follows(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = changed("pause")
    assert run(fake.data, "pause", "b").stdout == "b: pause: pause done\n"
    assert fake.reported == [(PATH, {"dry_run": False})]


def test_a_dry_run_is_marked(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = changed("pause")
    result = run(fake.data, "pause", "b", "--dry-run")
    assert result.stdout == "b: pause (dry run): pause done\n"
    assert fake.reported == [(PATH, {"dry_run": True})]
    found = json.loads(run(fake.data, "pause", "b", "--dry-run", "--json").stdout)
    assert found == {"link": "b", "dry_run": True, "text": "pause done"}


def test_an_unknown_destination_is_not_found(fake: FakeAdmin) -> None:
    refused = {"code": "not_found", "reason": "there is no destination 'x'", "hint": ""}
    fake.answers["POST /replication/x%2Fy/pause"] = (404, refused)
    result = run(fake.data, "pause", "x/y")
    assert (result.exit_code, "no destination" in result.stderr) == (3, True)
    assert run(fake.data, "pause", "").exit_code == 2
