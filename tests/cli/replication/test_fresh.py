"""`zbroker-admin replication fresh` lets an empty log begin without its peers."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.admins import FakeAdmin
from tests.cli.replication.rows import run

PATH = "/replication/fresh"


def _done(body: Any) -> dict[str, Any]:
    return {"dry_run": bool(body.get("dry_run")), "text": "publishers may log on"}


def test_it_says_what_follows(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = _done
    assert run(fake.data, "fresh").stdout == "fresh: publishers may log on\n"
    assert fake.reported == [(PATH, {"dry_run": False})]


def test_a_dry_run_changes_nothing(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = _done
    assert run(fake.data, "fresh", "--dry-run").stdout.startswith("fresh (dry run): ")
    found = json.loads(run(fake.data, "fresh", "--dry-run", "--json").stdout)
    assert found == {"dry_run": True, "text": "publishers may log on"}
