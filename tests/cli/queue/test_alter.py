"""`zbroker-admin queue alter` changes a queue."""

from __future__ import annotations

from tests.cli.admins import FakeAdmin
from tests.cli.queue.rows import done, run

PATH = "/queues/work/alter"


def test_only_what_changes_is_reported(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = done()
    result = run(fake.data, "alter", "work", "--set", "lease=5m", "--set", "max_deliveries=3")
    assert result.stdout == "work: changed\n"
    body = {"definition": {"lease": 300_000, "max_deliveries": 3}, "dry_run": False}
    assert fake.reported == [(PATH, body)]


def test_a_dry_run_is_marked(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = done()
    result = run(fake.data, "alter", "work", "--set", "lease=5m", "--dry-run")
    assert result.stdout == "work: it can be changed (dry run)\n"
    assert fake.reported[0][1]["dry_run"]


def test_nothing_to_change_is_wrong_usage(fake: FakeAdmin) -> None:
    assert run(fake.data, "alter", "work").exit_code == 2
    assert fake.reported == []


def test_what_cannot_change_is_an_error(fake: FakeAdmin) -> None:
    reason = "`topic` of queue 'work' cannot change"
    fake.answers[f"POST {PATH}"] = (400, {"code": "bad_queue", "reason": reason, "hint": ""})
    result = run(fake.data, "alter", "work", "--set", "topic=x")
    assert (result.exit_code, reason in result.stderr) == (1, True)


def test_an_unknown_queue_is_not_found(fake: FakeAdmin) -> None:
    assert run(fake.data, "alter", "x", "--set", "lease=5m").exit_code == 3
