"""`zbroker-admin transaction rollback` rolls a prepared transaction back."""

from __future__ import annotations

from tests.cli.admins import FakeAdmin
from tests.cli.exchange.rows import run
from tests.cli.transaction.rows import MANAGER, XID, answers, body

GIVEN = ("transaction", "rollback", XID, "--principal", "shop")


def test_the_instance_is_reported(fake: FakeAdmin) -> None:
    path = answers(fake, "rollback")
    result = run(fake.data, *GIVEN, "--yes")
    assert result.stdout == f"{XID}: rolled back; 1 message back in queues\n"
    assert MANAGER in result.stderr
    assert fake.reported == [(path, body())]


def test_that_of_another_instance_is_forced(fake: FakeAdmin) -> None:
    path = answers(fake, "rollback")
    result = run(fake.data, *GIVEN, "--force", "--dry-run")
    assert "would be rolled back (dry run)" in result.stdout
    assert fake.reported == [(path, body(force=True, dry_run=True))]


def test_the_instance_that_prepared_it_may_be_named(fake: FakeAdmin) -> None:
    path = answers(fake, "rollback")
    assert run(fake.data, *GIVEN, "--force", "--instance", "0" * 16, "--yes").exit_code == 0
    assert fake.reported == [(path, body(force=True) | {"instance": "0" * 16})]


def test_without_a_terminal_it_wants_a_yes(fake: FakeAdmin) -> None:
    answers(fake, "rollback")
    assert run(fake.data, *GIVEN).exit_code == 2
    assert fake.reported == []
