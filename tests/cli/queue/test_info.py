"""`zbroker-admin queue info` tells all of one queue."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.queue.rows import CONSUMER, OWNER, ROW, run
from zbroker.config.queues import QueueConfig

DEFAULTS = {key: getattr(QueueConfig(name="work"), key) for key in QueueConfig.__struct_fields__}
DEFINITION: dict[str, Any] = DEFAULTS | {"lease": 60_000, "retry_delay": [1_000, 10_000]}
QUEUE = ROW | {"definition": DEFINITION, "owners": []}


@pytest.fixture
def busy(fake: FakeAdmin) -> FakeAdmin:
    fake.answers["GET /queues/work"] = QUEUE
    fake.answers["GET /queues/work/consumers"] = {"left_out": 2, "consumers": [CONSUMER]}
    return fake


def test_json_is_what_the_admin_says(busy: FakeAdmin) -> None:
    found = json.loads(run(busy.data, "info", "work", "--json").stdout)
    assert found == {"queue": QUEUE, "consumers": [CONSUMER], "left_out": 2}


def test_numbers_definition_consumers_are_reported(busy: FakeAdmin) -> None:
    result = run(busy.data, "info", "work")
    facts = dict(line.split(None, 1) for line in result.stdout.splitlines()[:-1])
    assert (facts["depth"], facts["acked_s"]) == ("5", "0.5")
    assert facts["definition.lease"] == "1m"
    assert facts["definition.retry_delay"] == "1s,10s"
    assert facts["definition.size_alarm"] == "10GiB"
    assert "definition.filter" not in facts, "what is not set is left out"
    assert result.stdout.splitlines()[-1].startswith("client=ann sid=s1 ")
    assert result.stderr == "2 more consumers\n"


def test_owners_are_listed(busy: FakeAdmin) -> None:
    busy.answers["GET /queues/work"] = QUEUE | {"owners": [OWNER]}
    lines = run(busy.data, "info", "work").stdout.splitlines()
    assert lines[-2].startswith("name=a instance=10b714bc24174273 here=")


def test_no_one_consumes_it(busy: FakeAdmin) -> None:
    busy.answers["GET /queues/work/consumers"] = {"left_out": 0, "consumers": []}
    assert run(busy.data, "info", "work").stdout.endswith("it has no consumer\n")


def test_a_name_may_have_any_sign(fake: FakeAdmin) -> None:
    fake.answers["GET /queues/a%2Fb%3F%20%25"] = QUEUE
    fake.answers["GET /queues/a%2Fb%3F%20%25/consumers"] = {"left_out": 0, "consumers": []}
    assert run(fake.data, "info", "a/b? %").exit_code == 0


def test_an_unknown_queue_is_not_found(fake: FakeAdmin) -> None:
    refused = {"code": "unknown_queue", "reason": "there is no queue 'x'", "hint": ""}
    fake.answers["GET /queues/x"] = (404, refused)
    result = run(fake.data, "info", "x")
    assert (result.exit_code, "no queue 'x'" in result.stderr) == (3, True)


def test_no_name_is_wrong_usage(fake: FakeAdmin) -> None:
    assert run(fake.data, "info").exit_code == 2
    assert run(fake.data, "info", "").exit_code == 2
