"""`zbroker-admin session end` ends a session."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.exchange.rows import run

PATH = "/sessions/end"


def answers(fake: FakeAdmin, attached: int = 1) -> None:
    fake.answers[f"POST {PATH}"] = lambda body: {
        "principal": body["principal"], "session": body["session"], "dry_run": body["dry_run"],
        "attached": attached,
    }  # fmt: skip


def test_the_instance_is_reported(fake: FakeAdmin) -> None:
    answers(fake)
    result = run(fake.data, "session", "end", "billing", "--principal", "shop")
    assert result.stdout == "billing: ended; 1 connection of this instance had it attached\n"
    assert fake.reported == [
        (PATH, {"session": "billing", "principal": "shop", "dry_run": False})
    ]  # fmt: skip


def test_a_dry_run_says_who_has_it(fake: FakeAdmin) -> None:
    answers(fake, 0)
    result = run(fake.data, "session", "end", "billing", "--dry-run")
    assert "it would be ended (dry run); 0 connections" in result.stdout


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    answers(fake)
    result = run(fake.data, "session", "end", "billing", "--json")
    assert json.loads(result.stdout)["attached"] == 1
