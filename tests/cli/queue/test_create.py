"""`zbroker-admin queue create` makes a queue."""

from __future__ import annotations

import json

import pytest
from click import Context, Option

from tests.cli.admins import FakeAdmin
from tests.cli.queue.rows import done, run
from zbroker.cli.queue.changes import complete_key, create

PATH = "/queues/work/create"


@pytest.fixture
def busy(fake: FakeAdmin) -> FakeAdmin:
    fake.answers[f"POST {PATH}"] = done()
    return fake


def test_values_are_read_as_in_the_config(busy: FakeAdmin) -> None:
    options = [
        "--topic", "orders", "--set", "lease=1m", "--set", "retry_delay=1s, 10s", "--set",
        "size_alarm=2GiB", "--set", "regex=true", "--set", "filter=/price = 'x=y'",
    ]  # fmt: skip
    assert run(busy.data, "create", "work", *options).stdout == "work: made\n"
    definition = {
        "topic": "orders", "lease": 60_000, "retry_delay": [1_000, 10_000],
        "size_alarm": 2 << 30, "regex": True, "filter": "/price = 'x=y'",
    }  # fmt: skip
    assert busy.reported == [(PATH, {"definition": definition, "dry_run": False})]


def test_without_a_topic_it_takes_that_of_its_name(busy: FakeAdmin) -> None:
    assert run(busy.data, "create", "work").exit_code == 0
    assert busy.reported[0][1]["definition"] == {}


def test_a_dry_run_is_marked(busy: FakeAdmin) -> None:
    busy.answers[f"POST {PATH}"] = done(text="it would begin with 70 messages")
    result = run(busy.data, "create", "work", "--dry-run")
    assert result.stdout == "work: it can be made (dry run)\nit would begin with 70 messages\n"
    assert busy.reported[0][1]["dry_run"]


def test_json_says_what_became_of_it(busy: FakeAdmin) -> None:
    assert json.loads(run(busy.data, "create", "work", "--json").stdout)["queue"] == "work"


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (["--set", "lease"], "write KEY=VALUE"),
        (["--set", "=1"], "write KEY=VALUE"),
        (["--set", "lease=1s", "--set", "lease=2s"], "given twice"),
        (["--topic", "a", "--set", "topic=b"], "given twice"),
        (["--set", "leese=1s"], "did you mean `lease`?"),
        (["--set", "lease=long"], "is not a duration"),
        (["--set", "kind=heap"], "kind"),
    ],
)
def test_a_wrong_setting_is_wrong_usage(busy: FakeAdmin, options: list[str], reported: str) -> None:
    result = run(busy.data, "create", "work", *options)
    assert (result.exit_code, reported in result.stderr) == (2, True), result.stderr
    assert busy.reported == []


def test_what_the_instance_refuses_is_an_error(busy: FakeAdmin) -> None:
    refused = {"code": "queue_exists", "reason": "there is one", "hint": "alter it"}
    busy.answers[f"POST {PATH}"] = (409, refused)
    result = run(busy.data, "create", "work")
    assert (result.exit_code, "queue_exists: there is one (alter it)" in result.stderr) == (1, True)


def test_keys_are_completed() -> None:
    found = complete_key(Context(create), Option(["--set"]), "max_d")
    assert [item.value for item in found] == ["max_deliveries="]
