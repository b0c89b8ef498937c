"""`zbroker-admin binding rm` takes a binding back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.exchange.rows import run

PATH = "/bindings/remove"


def rm(fake: FakeAdmin, *options: str) -> Any:
    fake.answers.setdefault(f"POST {PATH}", lambda body: {
        "queue": body["queue"], "exchange": body["exchange"], "key": body["key"],
        "dry_run": body["dry_run"], "changed": True,
    })  # fmt: skip
    return run(fake.data, "binding", "rm", "bills", "events", *options)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--key", "k"], "bills, events by 'k': unbound\n"),
        (["--argument", "n=1", "--dry-run"], "bills, events: it would be unbound (dry run)\n"),
    ],
)
def test_the_instance_is_reported(fake: FakeAdmin, options: list[str], line: str) -> None:
    assert rm(fake, *options).stdout == line
    [(path, body)] = fake.reported
    assert (path, body["queue"], body["exchange"]) == (PATH, "bills", "events")
    assert body["dry_run"] is ("--dry-run" in options)
    assert body["arguments"] == ({"n": 1} if "--dry-run" in options else {})


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    assert json.loads(rm(fake, "--json").stdout)["queue"] == "bills"


def test_a_binding_that_is_not_there_is_not_found(fake: FakeAdmin) -> None:
    reason = "queue 'bills' is not bound like that to exchange 'events'"
    refusal = {"code": "unknown_binding", "reason": reason, "hint": "look"}
    fake.answers[f"POST {PATH}"] = (404, refusal)
    result = rm(fake)
    assert (result.exit_code, reason in result.stderr) == (3, True)
