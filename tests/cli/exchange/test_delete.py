"""`zbroker-admin exchange delete` deletes an exchange."""

from __future__ import annotations

import json

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.exchange.rows import run
from tests.cli.queue.rows import on_terminal

PATH = "/exchanges/delete"


def answers(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = lambda body: {
        "exchange": "events", "dry_run": body["dry_run"], "bindings": 2
    }  # fmt: skip


def body(*, if_unused: bool = False, dry_run: bool = False) -> dict[str, object]:
    return {"exchange": "events", "if_unused": if_unused, "dry_run": dry_run}


def test_the_instance_is_reported(fake: FakeAdmin) -> None:
    answers(fake)
    result = run(fake.data, "exchange", "delete", "events", "--if-unused", "--yes")
    assert result.stdout == "events: deleted, with 2 bindings\n"
    assert fake.reported == [(PATH, body(if_unused=True))]


def test_a_dry_run_says_what_goes(fake: FakeAdmin) -> None:
    answers(fake)
    result = run(fake.data, "exchange", "delete", "events", "--dry-run")
    assert result.stdout == "events: it would be deleted (dry run), with 2 bindings\n"
    assert fake.reported == [(PATH, body(dry_run=True))]


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    answers(fake)
    found = json.loads(run(fake.data, "exchange", "delete", "events", "--json", "--yes").stdout)
    assert found == {"exchange": "events", "dry_run": False, "bindings": 2}


def test_without_a_terminal_it_wants_a_yes(fake: FakeAdmin) -> None:
    answers(fake)
    result = run(fake.data, "exchange", "delete", "events")
    assert (result.exit_code, fake.reported) == (2, [])
    assert "give --yes, or --dry-run first" in result.stderr


def test_an_unknown_exchange_is_not_found(fake: FakeAdmin) -> None:
    assert run(fake.data, "exchange", "delete", "none", "--yes").exit_code == 3


@pytest.mark.process
@pytest.mark.parametrize(("typed", "count", "status"), [(b"n\n", 1, 1), (b"y\n", 2, 0)])
def test_on_a_terminal_it_says_what_ends_and_asks(
    fake: FakeAdmin, typed: bytes, count: int, status: int
) -> None:
    answers(fake)
    question = "events is deleted, with 2 bindings; go on?"
    found, text = on_terminal(fake.data, ["delete", "events"], question, typed, group="exchange")
    assert (found, question in text) == (status, True)
    assert fake.reported == [(PATH, body(dry_run=True)), (PATH, body())][:count]
