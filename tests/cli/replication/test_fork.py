"""`zbroker-admin replication fork` asks for it, and says what follows."""

from __future__ import annotations

from tests.cli.admins import FakeAdmin
from tests.cli.replication.rows import changed, run

ORIGIN = "10b714bc24174273.5"
PATH = "/replication/b/fork"


def test_the_host_whose_records_are_kept_is_asked_about(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = changed("fork")
    result = run(fake.data, "fork", ORIGIN, "--keep", "b")
    assert result.stdout == "b: fork: fork done\n"
    assert fake.reported == [(PATH, {"dry_run": False, "origin": ORIGIN})]


def test_a_dry_run_is_marked(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = changed("fork")
    result = run(fake.data, "fork", ORIGIN, "--keep", "b", "--dry-run")
    assert result.stdout == "b: fork (dry run): fork done\n"
    assert fake.reported == [(PATH, {"dry_run": True, "origin": ORIGIN})]


def test_without_a_host_nothing_is_asked(fake: FakeAdmin) -> None:
    result = run(fake.data, "fork", ORIGIN)
    assert (result.exit_code, "--keep" in result.output) == (2, True)
    assert fake.reported == []
