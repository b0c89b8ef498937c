"""`zbroker-admin access explain` says which grant decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from zbroker.access.format import EXAMPLE
from zbroker.cli.admin_main import main

FILTER = "/region = 'EU'"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "access.toml"
    path.write_text(EXAMPLE)
    path.chmod(0o644)
    return str(path)


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["access", "explain", *arguments], prog_name="zbroker-admin")


def line(text: str) -> int:
    """Where `text` is first in the example."""
    return EXAMPLE[: EXAMPLE.index(text)].count("\n") + 1


@pytest.mark.parametrize(
    ("asked", "status", "reported"),
    [
        (
            ["pricer", "publish", "prices.eu"], 0,
            [
                "yes: pricer publish 'prices.eu'",
                f"  role feed, allow 1 (line {line('[[role.feed')}): prices.*, trades",
            ],
        ),
        (
            ["pricer", "publish", "orders"], 1,
            ["no: pricer publish 'orders'", "  no grant of its roles allows it (feed)"],
        ),
        (
            ["risk", "replay", "prices.secret"], 1,
            [
                "no: risk replay 'prices.secret'",
                f"  role reader, deny 1 (line {line('[[role.reader.deny')}): *.secret",
            ],
        ),
        (
            ["ann", "admin_write"], 0,
            ["yes: ann admin_write", f"  role operator, allow 1 (line {line('[[role.oper')}): *"],
        ),
    ],
)  # fmt: skip
def test_the_grant_is_named(file: str, asked: list[str], status: int, reported: list[str]) -> None:
    result = explain(file, *asked)
    assert (result.exit_code, result.stdout.splitlines()) == (status, reported)


def test_a_filter_is_a_yes_for_some(file: str) -> None:
    result = explain(file, "risk", "subscribe", "trades")
    assert result.exit_code == 0
    assert result.stdout.startswith("yes, some: risk subscribe 'trades'\n")
    assert result.stdout.endswith(f": trades where {FILTER}\n")


@pytest.mark.parametrize(("name", "status", "word"), [("risk-1", 0, "yes"), ("ben", 1, "no")])
def test_a_name_is_asked_for_too(file: str, name: str, status: int, word: str) -> None:
    result = explain(file, "risk", "replay", "prices.x", "--name", name)
    assert result.exit_code == status
    assert result.stdout.splitlines()[-1] == f"{word}: the client name {name!r}"


def test_json_has_stable_keys(file: str) -> None:
    result = explain(file, "risk", "replay", "trades", "--name", "risk", "--json")
    assert json.loads(result.stdout) == {
        "permitted": True,
        "verdict": "some",
        "grants": [
            {
                "role": "reader", "kind": "allow", "number": 2, "topics": ["trades"],
                "line": line(f'topics = ["trades"]\nfilter = "{FILTER}"') - 2, "filter": FILTER,
            }
        ],
        "name_permitted": True,
    }  # fmt: skip
    assert json.loads(explain(file, "risk", "replay", "x", "--json").stdout)["permitted"] is False


@pytest.mark.parametrize(
    ("asked", "status", "reported"),
    [
        (["nobody", "replay"], 3, "has no principal 'nobody'"),
        (["risk", "fly"], 2, "'fly' is not one of"),
        (["risk", "replay", ""], 1, "bad_topic"),
    ],
)
def test_what_cannot_be_asked_is_named(
    file: str, asked: list[str], status: int, reported: str
) -> None:
    result = explain(file, *asked)
    assert result.exit_code == status
    assert reported in result.stderr
