"""`zbroker-admin queue requeue` brings dead letters back."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.queue.rows import done, run

PATH = "/queues/work/requeue"


def test_the_newest_ones_come_back(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = done(1)
    result = run(fake.data, "requeue", "work", "--limit", "5")
    assert result.stdout == "work: 1 dead letter came back\n"
    assert fake.reported == [(PATH, {"bookmarks": [], "limit": 5, "dry_run": False})]


def test_those_that_are_named_come_back(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = done(2)
    names = ["--bookmark", "7|5|", "--bookmark", "7|6|"]
    assert json.loads(run(fake.data, "requeue", "work", *names, "--json").stdout)["count"] == 2
    assert fake.reported[0][1]["bookmarks"] == ["7|5|", "7|6|"]


def test_a_dry_run_is_marked(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = done(2)
    result = run(fake.data, "requeue", "work", "--dry-run")
    assert result.stdout == "work: 2 dead letters would come back (dry run)\n"
    assert fake.reported[0][1]["dry_run"]


def test_an_unknown_queue_is_not_found(fake: FakeAdmin) -> None:
    assert run(fake.data, "requeue", "x").exit_code == 3
