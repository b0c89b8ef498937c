"""`zbroker-admin replication drain` asks for it, and says what follows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.replication.rows import run

PATH = "/replication/drain"
LEFT: dict[str, Any] = {
    "state": "left", "sessions": 3, "dry_run": False, "text": "stop it", "names": ["b"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ((), {"wait_s": 10.0, "off": False, "dry_run": False}),
        (("--wait", "30", "--dry-run"), {"wait_s": 30.0, "off": False, "dry_run": True}),
        (("--off",), {"wait_s": 10.0, "off": True, "dry_run": False}),
    ],
)
def test_it_is_asked_for(fake: FakeAdmin, options: tuple[str, ...], body: dict[str, Any]) -> None:
    fake.answers[f"POST {PATH}"] = LEFT
    assert run(fake.data, "drain", *options).stdout == "left: stop it (3 sessions ended)\n"
    assert fake.reported == [(PATH, body)]
    assert json.loads(run(fake.data, "drain", "--json").stdout) == LEFT


def test_a_refusal_is_an_error(fake: FakeAdmin) -> None:
    refused = {"code": "not_ready", "reason": "b lacks 12 positions", "hint": ""}
    fake.answers[f"POST {PATH}"] = (503, refused)
    result = run(fake.data, "drain")
    assert (result.exit_code, "b lacks 12 positions" in result.stderr) == (1, True)


def test_a_wait_has_bounds(fake: FakeAdmin) -> None:
    assert run(fake.data, "drain", "--wait", "51").exit_code == 2
    assert run(fake.data, "drain", "--wait", "0").exit_code == 2
