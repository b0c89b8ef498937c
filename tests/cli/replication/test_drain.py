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
    "to": "b", "consumers": 0, "queues": [], "problem": "", "done": True,
}  # fmt: skip


def queue(given: int, left: int = 0, why: str = "", advice: str = "") -> dict[str, Any]:
    return {"queue": "work", "given": given, "left": left, "why": why, "advice": advice}


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


@pytest.mark.parametrize(
    ("row", "lines"),
    [
        (queue(9), ["work: 9 messages were given to b"]),
        (queue(8, 1, "it is late"), ["work: 8 messages were given to b",
                                     "work: 1 message left: it is late"]),
        (queue(0, 2, "", "take it over"), ["work: 2 messages would be given to b",
                                           "work: take it over"]),
    ],
)  # fmt: skip
def test_it_says_what_went_where_and_what_is_left(
    fake: FakeAdmin, row: dict[str, Any], lines: list[str]
) -> None:
    fake.answers[f"POST {PATH}"] = LEFT | {"queues": [row], "sessions": 0}
    assert run(fake.data, "drain").stdout.splitlines() == ["left: stop it", *lines]


@pytest.mark.parametrize(("dry_run", "code"), [(False, 1), (True, 0)])
def test_something_that_is_left_is_an_error(fake: FakeAdmin, dry_run: bool, code: int) -> None:
    fake.answers[f"POST {PATH}"] = LEFT | {"problem": "b lacks it", "done": False}
    fake.answers[f"POST {PATH}"]["dry_run"] = dry_run
    result = run(fake.data, "drain")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (code, "b lacks it")
