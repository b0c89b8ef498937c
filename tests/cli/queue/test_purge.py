"""`zbroker-admin queue purge` has messages leave a queue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.queue.rows import done, on_terminal, run

PATH = "/queues/work/purge"


@pytest.fixture
def busy(fake: FakeAdmin) -> FakeAdmin:
    fake.answers[f"POST {PATH}"] = done(2)
    return fake


@pytest.mark.parametrize(
    ("options", "body"),
    [
        (["--before", "7"], {"before": 7, "leased": False, "dead_letters": False}),
        (["--point", "eod", "--leased"], {"point": "eod", "leased": True, "dead_letters": False}),
        (["--all"], {"all": True, "leased": False, "dead_letters": False}),
        (
            ["--all", "--dead-letter"],
            {"all": True, "leased": False, "dead_letters": True},
        ),
    ],
)
def test_the_instance_is_reported(
    busy: FakeAdmin, options: list[str], body: dict[str, Any]
) -> None:
    assert run(busy.data, "purge", "work", *options, "--yes").stdout == "work: 2 messages purged\n"
    assert busy.reported == [(PATH, body)]


def test_json_says_how_many(busy: FakeAdmin) -> None:
    result = run(busy.data, "purge", "work", "--all", "--yes", "--json")
    assert json.loads(result.stdout) == {
        "queue": "work", "dry_run": False, "count": 2, "text": "",
    }  # fmt: skip


def test_a_dry_run_changes_nothing(busy: FakeAdmin) -> None:
    result = run(busy.data, "purge", "work", "--all", "--dry-run", "--yes")
    assert result.stdout == "work: 2 messages would be purged (dry run)\n"
    assert busy.reported == [
        (PATH, {"all": True, "leased": False, "dead_letters": False, "dry_run": True})
    ]


@pytest.mark.parametrize(
    "options", [[], ["--leased"], ["--all", "--before", "7"], ["--before", "7", "--point", "eod"]]
)
def test_what_leaves_is_said_in_one_way(busy: FakeAdmin, options: list[str]) -> None:
    assert run(busy.data, "purge", "work", *options, "--yes").exit_code == 2
    assert busy.reported == []


def test_where_no_one_can_be_asked_it_wants_a_yes(busy: FakeAdmin) -> None:
    result = run(busy.data, "purge", "work", "--all", typed="y\n")
    assert (result.exit_code, "--yes" in result.stderr) == (2, True)
    assert busy.reported == []


def test_an_unknown_queue_is_not_found(fake: FakeAdmin) -> None:
    assert run(fake.data, "purge", "work", "--all", "--yes").exit_code == 3


@pytest.mark.process
@pytest.mark.parametrize(("typed", "asked", "status"), [(b"y\n", 2, 0), (b"n\n", 1, 1)])
def test_on_a_terminal_it_asks(busy: FakeAdmin, typed: bytes, asked: int, status: int) -> None:
    arguments = ["purge", "work", "--all"]
    found, text = on_terminal(busy.data, arguments, "2 messages leave work; go on?", typed)
    assert (found, len(busy.reported)) == (status, asked), text
    assert busy.reported[0][1]["dry_run"], "the count comes from a dry run"
