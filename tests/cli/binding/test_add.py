"""`zbroker-admin binding add` binds a queue to an exchange."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.exchange.rows import run

PATH = "/bindings"


def add(fake: FakeAdmin, *options: str, changed: bool = True) -> Any:
    fake.answers[f"POST {PATH}"] = lambda body: {
        "queue": body["queue"], "exchange": body["exchange"], "key": body["key"],
        "dry_run": body["dry_run"], "changed": changed,
    }  # fmt: skip
    return run(fake.data, "binding", "add", "bills", "events", *options)


def test_the_instance_is_asked_for_it(fake: FakeAdmin) -> None:
    result = add(fake, "--key", "order.*")
    assert result.stdout == "bills, events by 'order.*': bound\n"
    assert fake.reported == [
        (PATH, {"queue": "bills", "exchange": "events", "key": "order.*", "arguments": {},
                "dry_run": False}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("eu", "eu"), ("5", 5), ("-1.5", -1.5), ("true", True), ("null", None), ('"5"', "5"),
        ("", ""), ("NaN", "NaN"), ("[1]", "[1]"), ("a=b", "a=b"), ("1e999", "1e999"),
    ],
)  # fmt: skip
def test_a_value_is_a_scalar_of_json_or_text(fake: FakeAdmin, given: str, value: object) -> None:
    assert add(fake, "--argument", f"n={given}", "--argument", "x-match=any").exit_code == 0
    found = fake.reported[0][1]["arguments"]
    assert found == {"n": value, "x-match": "any"}
    assert type(found["n"]) is type(value)


def test_what_was_so_and_what_would_be_are_reported_so(fake: FakeAdmin) -> None:
    assert add(fake, changed=False).stdout == "bills, events: it is bound already\n"
    assert add(fake, "--dry-run").stdout == "bills, events: it can be bound (dry run)\n"
    assert json.loads(add(fake, "--json").stdout)["changed"] is True


@pytest.mark.parametrize("pairs", [["n"], ["=1"], ["n=1", "n=2"]])
def test_an_argument_has_a_name_once_and_a_value(fake: FakeAdmin, pairs: list[str]) -> None:
    options = [part for pair in pairs for part in ("--argument", pair)]
    assert (add(fake, *options).exit_code, fake.reported) == (2, [])
