"""`zbroker-admin replication downgrade` asks for it, and says what follows."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.replication.rows import changed, run

PATH = "/replication/b/downgrade"


def test_the_answer_says_what_follows(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = changed("downgrade")
    assert run(fake.data, "downgrade", "b").stdout == "b: downgrade: downgrade done\n"
    assert fake.reported == [(PATH, {"dry_run": False})]


def test_a_dry_run_is_marked(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = changed("downgrade")
    result = run(fake.data, "downgrade", "b", "--dry-run")
    assert result.stdout == "b: downgrade (dry run): downgrade done\n"
    assert fake.reported == [(PATH, {"dry_run": True})]
    found = json.loads(run(fake.data, "downgrade", "b", "--dry-run", "--json").stdout)
    assert found == {"link": "b", "dry_run": True, "text": "downgrade done"}


def test_an_unknown_destination_is_not_found(fake: FakeAdmin) -> None:
    refused = {"code": "not_found", "reason": "there is no destination 'x'", "hint": ""}
    fake.answers["POST /replication/x%2Fy/downgrade"] = (404, refused)
    result = run(fake.data, "downgrade", "x/y")
    assert (result.exit_code, "no destination" in result.stderr) == (3, True)
    assert run(fake.data, "downgrade", "").exit_code == 2
