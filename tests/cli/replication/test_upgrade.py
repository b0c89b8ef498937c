"""`zbroker-admin replication upgrade` asks for it, and says what follows."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.replication.rows import changed, run

PATH = "/replication/b/upgrade"


def test_the_answer_says_what_follows(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = changed("upgrade")
    assert run(fake.data, "upgrade", "b").stdout == "b: upgrade: upgrade done\n"
    assert fake.reported == [(PATH, {"dry_run": False})]


def test_a_dry_run_is_marked(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = changed("upgrade")
    result = run(fake.data, "upgrade", "b", "--dry-run")
    assert result.stdout == "b: upgrade (dry run): upgrade done\n"
    assert fake.reported == [(PATH, {"dry_run": True})]
    found = json.loads(run(fake.data, "upgrade", "b", "--dry-run", "--json").stdout)
    assert found == {"link": "b", "dry_run": True, "text": "upgrade done"}


def test_an_unknown_destination_is_not_found(fake: FakeAdmin) -> None:
    refused = {"code": "not_found", "reason": "there is no destination 'x'", "hint": ""}
    fake.answers["POST /replication/x%2Fy/upgrade"] = (404, refused)
    result = run(fake.data, "upgrade", "x/y")
    assert (result.exit_code, "no destination" in result.stderr) == (3, True)
    assert run(fake.data, "upgrade", "").exit_code == 2
