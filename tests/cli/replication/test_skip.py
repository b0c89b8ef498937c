"""`zbroker-admin replication skip` gives up what a destination lacks, and says so."""

from __future__ import annotations

from tests.cli.admins import FakeAdmin
from tests.cli.replication.rows import changed, run

PATH = "/replication/b/skip"
ORIGIN = "10b714bc24174273.5"


def test_one_origin_is_given_up(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = changed("skip")
    assert run(fake.data, "skip", "b", ORIGIN).stdout == "b: skip: skip done\n"
    assert fake.reported == [(PATH, {"dry_run": False, "origin": ORIGIN})]


def test_without_an_origin_all_are(fake: FakeAdmin) -> None:
    fake.answers[f"POST {PATH}"] = changed("skip")
    result = run(fake.data, "skip", "b", "--dry-run")
    assert result.stdout == "b: skip (dry run): skip done\n"
    assert fake.reported == [(PATH, {"dry_run": True, "origin": ""})]


def test_nothing_to_give_up_is_not_found(fake: FakeAdmin) -> None:
    refused = {"code": "not_found", "reason": "nothing of any origin holds b up", "hint": ""}
    fake.answers[f"POST {PATH}"] = (404, refused)
    result = run(fake.data, "skip", "b")
    assert (result.exit_code, "holds b up" in result.stderr) == (3, True)
