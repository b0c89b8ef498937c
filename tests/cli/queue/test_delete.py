"""`zbroker-admin queue delete` deletes a queue."""

from __future__ import annotations

import json

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.queue.rows import ROW, done, on_terminal, run

PATH = "/queues/work/delete"
LOST = (
    "5 messages that are not done yet, 3 of them with consumers, and every acknowledgement that "
    "was given here; the messages stay in the log"
)


def test_the_instance_is_reported(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = done()
    assert run(fake.data, "delete", "work", "--yes").stdout == "work: deleted\n"
    assert fake.reported == [(PATH, {"dry_run": False})]


def test_a_dry_run_says_what_it_holds(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = done()
    fake.answers["GET /queues/work"] = ROW
    result = run(fake.data, "delete", "work", "--dry-run")
    assert result.stdout == f"work: it would be deleted, with {LOST} (dry run)\n"
    assert fake.reported == [(PATH, {"dry_run": True})]


def test_json_says_what_became_of_it(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = done()
    found = json.loads(run(fake.data, "delete", "work", "--json", "--yes").stdout)
    assert (found["queue"], found["dry_run"]) == ("work", False)


def test_an_unknown_queue_is_not_found(fake: FakeAdmin) -> None:
    assert run(fake.data, "delete", "x", "--yes").exit_code == 3
    assert run(fake.data, "delete", "x", "--dry-run").exit_code == 3


def test_without_a_terminal_it_wants_a_yes(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = done()
    result = run(fake.data, "delete", "work")
    assert (result.exit_code, fake.reported) == (2, [])
    assert "give --yes, or --dry-run first" in result.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("typed", "reported", "status"), [(b"n\n", [], 1), (b"y\n", [(PATH, {"dry_run": False})], 0)]
)
def test_on_a_terminal_it_says_what_is_lost_and_asks(
    fake: FakeAdmin, typed: bytes, reported: list[object], status: int
) -> None:
    fake.answers[f"POST {PATH}"] = done()
    fake.answers["GET /queues/work"] = ROW
    question = f"work is deleted for good, with {LOST}; go on?"
    found, text = on_terminal(fake.data, ["delete", "work"], question, typed)
    assert (found, fake.reported) == (status, reported), text
