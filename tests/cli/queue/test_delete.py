"""`zbroker-admin queue delete` deletes a queue."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.queue.rows import ROW, done, run

PATH = "/queues/work/delete"


def test_the_instance_is_told(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = done()
    assert run(fake.data, "delete", "work").stdout == "work: deleted\n"
    assert fake.told == [(PATH, {"dry_run": False})]


def test_a_dry_run_says_what_it_holds(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = done()
    fake.answers["GET /queues/work"] = ROW
    result = run(fake.data, "delete", "work", "--dry-run")
    assert result.stdout == "work: it would be deleted; it holds 5 messages (dry run)\n"
    assert fake.told == [(PATH, {"dry_run": True})]


def test_json_says_what_became_of_it(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = done()
    found = json.loads(run(fake.data, "delete", "work", "--json").stdout)
    assert (found["queue"], found["dry_run"]) == ("work", False)


def test_an_unknown_queue_is_not_found(fake: FakeAdmin) -> None:
    assert run(fake.data, "delete", "x").exit_code == 3
    assert run(fake.data, "delete", "x", "--dry-run").exit_code == 3
