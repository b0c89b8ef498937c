"""`zbroker-admin transaction commit` commits a prepared transaction."""

from __future__ import annotations

import json

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.exchange.rows import run
from tests.cli.queue.rows import on_terminal
from tests.cli.transaction.rows import MANAGER, XID, answers, body

GIVEN = ("transaction", "commit", XID, "--principal", "shop")


def test_the_instance_is_reported(fake: FakeAdmin) -> None:
    path = answers(fake, "commit")
    result = run(fake.data, *GIVEN, "--yes")
    assert result.stdout == f"{XID}: committed; 2 messages visible, 1 message gone from queues\n"
    assert MANAGER in result.stderr
    assert fake.reported == [(path, body(force=None))]


def test_a_dry_run_says_what_would_come_of_it(fake: FakeAdmin) -> None:
    path = answers(fake, "commit")
    result = run(fake.data, *GIVEN, "--dry-run")
    assert result.stdout.startswith(f"{XID}: would be committed (dry run); 2 messages visible")
    assert result.stderr == ""
    assert fake.reported == [(path, body(force=None, dry_run=True))]


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    answers(fake, "commit")
    result = run(fake.data, *GIVEN, "--json", "--yes")
    assert json.loads(result.stdout)["messages"] == 2
    assert result.stderr == ""


def test_fewer_messages_than_were_locked_are_said(fake: FakeAdmin) -> None:
    answers(fake, "commit", mixed=True)
    assert "it had locked more" in run(fake.data, *GIVEN, "--yes").stderr


def test_without_a_terminal_it_wants_a_yes(fake: FakeAdmin) -> None:
    answers(fake, "commit")
    result = run(fake.data, *GIVEN)
    assert (result.exit_code, fake.reported) == (2, [])
    assert "give --yes, or --dry-run first" in result.stderr


def test_what_another_instance_prepared_cannot_be_forced(fake: FakeAdmin) -> None:
    answers(fake, "commit")
    assert run(fake.data, *GIVEN, "--force").exit_code == 2
    assert fake.reported == []


@pytest.mark.process
@pytest.mark.parametrize(("typed", "count", "status"), [(b"n\n", 1, 1), (b"y\n", 2, 0)])
def test_on_a_terminal_it_says_what_it_means_and_asks(
    fake: FakeAdmin, typed: bytes, count: int, status: int
) -> None:
    path = answers(fake, "commit")
    arguments = ["commit", XID, "--principal", "shop"]
    found, text = on_terminal(fake.data, arguments, "go on?", typed, group="transaction")
    assert found == status
    assert "is committed; 2 messages visible, 1 message gone from queues. That is final" in (
        " ".join(text.split())
    )
    many = [(path, body(force=None, dry_run=True)), (path, body(force=None))]
    assert fake.reported == many[:count]
