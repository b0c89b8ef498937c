"""`zbroker-admin queue browse` lists messages, and takes none."""

from __future__ import annotations

import json

import pytest

from tests.cli.admins import TOKEN, FakeAdmin
from tests.cli.queue.rows import MESSAGE, run

ALL = "GET /queues/work/browse?limit=100"
FOUND = {"next": None, "messages": [MESSAGE]}


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers[ALL] = FOUND
    assert json.loads(run(fake.data, "browse", "work", "--json").stdout) == FOUND


def test_each_message_is_a_line(fake: FakeAdmin) -> None:
    fake.answers[ALL] = FOUND
    result = run(fake.data, "browse", "work")
    assert result.stdout == (
        "position=5 bookmark=7|5| topic=orders time=20260101T000000Z size=20 state=leased "
        "deliveries=2 failures=1 owner=ann due_ms=500\n"
    )
    assert result.stderr == ""


def test_what_is_wanted_is_asked_for(fake: FakeAdmin) -> None:
    path = "GET /queues/work/browse?after=4&limit=2&filter=%2Fx+%3D+1&state=leased&data=1"
    fake.answers[path] = {"next": 6, "messages": [MESSAGE | {"data": '{"x": 1}'}]}
    options = ["--after", "4", "--limit", "2", "--filter", "/x = 1", "--state", "leased", "--data"]
    result = run(fake.data, "browse", "work", *options)
    assert 'data="{\\"x\\": 1}"' in result.stdout
    assert result.stderr == "there may be more; see --limit, and --after 6\n"


@pytest.mark.parametrize(
    ("options", "query", "reported"),
    [([], "limit=100", "it is empty\n"),
     (["--state", "ready"], "limit=100&state=ready", "there is no such message\n")],
)  # fmt: skip
def test_nothing_there_is_said(
    fake: FakeAdmin, options: list[str], query: str, reported: str
) -> None:
    fake.answers[f"GET /queues/work/browse?{query}"] = {"next": None, "messages": []}
    assert run(fake.data, "browse", "work", *options).stdout == reported


@pytest.mark.parametrize(
    ("options", "query", "token"),
    [
        ([], "limit=100", "reader"),
        (["--data"], "limit=100&data=1", TOKEN),
        (["--filter", "x"], "limit=100&filter=x", TOKEN),
    ],
)
def test_what_messages_say_needs_the_token_of_the_admin(
    fake: FakeAdmin, options: list[str], query: str, token: str
) -> None:
    (fake.data / "run" / "admin-read.token").write_text("reader\n")
    fake.readers = {token}
    fake.answers[f"GET /queues/work/browse?{query}"] = FOUND
    assert run(fake.data, "browse", "work", *options).exit_code == 0


def test_an_unknown_queue_is_not_found(fake: FakeAdmin) -> None:
    assert run(fake.data, "browse", "x").exit_code == 3


def test_more_than_one_answer_holds_is_a_mistake(fake: FakeAdmin) -> None:
    assert run(fake.data, "browse", "work", "--limit", "1001").exit_code == 2
