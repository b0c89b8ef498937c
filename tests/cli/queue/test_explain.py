"""`zbroker-admin queue explain` says why nothing is delivered."""

from __future__ import annotations

import json

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.queue.rows import run

FOUND = {"queue": "work", "state": "idle", "lines": ["it has no consumer", "2 are ready"]}


def test_each_reason_is_a_line_the_answer_first(fake: FakeAdmin) -> None:
    fake.answers["GET /queues/work/explain"] = FOUND
    assert run(fake.data, "explain", "work").stdout == "it has no consumer\n2 are ready\n"


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers["GET /queues/work/explain"] = FOUND
    assert json.loads(run(fake.data, "explain", "work", "--json").stdout) == FOUND


@pytest.mark.parametrize(
    ("options", "query"),
    [(["--position", "5"], "position=5"), (["--bookmark", "7|5|"], "bookmark=7%7C5%7C")],
)
def test_one_message_is_named_in_one_of_two_ways(
    fake: FakeAdmin, options: list[str], query: str
) -> None:
    fake.answers[f"GET /queues/work/explain?{query}"] = FOUND
    assert run(fake.data, "explain", "work", *options).exit_code == 0
    both = ["--position", "5", "--bookmark", "7|5|"]
    assert run(fake.data, "explain", "work", *both).exit_code == 2


def test_nothing_to_explain_is_said(fake: FakeAdmin) -> None:
    fake.answers["GET /queues/work/explain"] = FOUND | {"lines": []}
    assert "delivers what it can" in run(fake.data, "explain", "work").stdout


def test_an_unknown_queue_is_not_found(fake: FakeAdmin) -> None:
    assert run(fake.data, "explain", "x").exit_code == 3
