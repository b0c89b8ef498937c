"""`zbroker-admin transaction forget` forgets what an operator decided."""

from __future__ import annotations

from tests.cli.admins import FakeAdmin
from tests.cli.exchange.rows import run
from tests.cli.transaction.rows import XID, answers, body

GIVEN = ("transaction", "forget", XID, "--principal", "shop")


def test_the_instance_is_reported(fake: FakeAdmin) -> None:
    path = answers(fake, "forget")
    result = run(fake.data, *GIVEN, "--yes")
    assert (result.stdout, result.stderr) == (f"{XID}: forgotten\n", "")
    assert fake.reported == [(path, body())]


def test_that_of_another_instance_is_forced(fake: FakeAdmin) -> None:
    path = answers(fake, "forget")
    result = run(fake.data, *GIVEN, "--force", "--dry-run")
    assert result.stdout == f"{XID}: would be forgotten (dry run)\n"
    assert fake.reported == [(path, body(force=True, dry_run=True))]


def test_without_a_terminal_it_wants_a_yes(fake: FakeAdmin) -> None:
    answers(fake, "forget")
    assert run(fake.data, *GIVEN).exit_code == 2
    assert fake.reported == []
