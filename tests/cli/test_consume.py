"""`zbroker consume` (zbroker/cli/consume.py)."""

from __future__ import annotations

import json
from datetime import datetime
from inspect import signature

import pytest
from click.testing import CliRunner

import zbroker
from tests.client.consumer.fakes import QueueBroker
from tests.client.fakes import wait_until
from zbroker.cli.consume import consume
from zbroker.cli.main import main
from zbroker.client import Client
from zbroker.wire import queue_messages as q


@pytest.fixture
def broker():
    with QueueBroker() as fake:
        yield fake


def run(broker, *args):
    return CliRunner().invoke(main, ["consume", broker.url, "work", *args])


def test_what_was_written_is_acked(broker):
    broker.publish(5)
    result = run(broker, "--ack", "--limit", "3")
    assert (result.exit_code, result.stdout) == (0, "1\n2\n3\n")
    assert broker.acked == [1, 2, 3]


def test_without_ack_all_of_them_go_back(broker):
    broker.publish(5)
    result = run(broker, "--limit", "3")
    assert (result.exit_code, result.stdout) == (0, "1\n2\n3\n")
    wait_until(lambda: not broker.listener.takers)
    assert (broker.acked, broker.listener.released) == ([], []), "and no cancel is counted"
    assert broker.commands(q.Consume)[0].backlog == 3, "others get the rest meanwhile"


def test_it_stops_when_none_came_for_a_while(broker):
    broker.publish(2)
    result = run(broker, "--ack", "--wait", "0.1", "--backlog", "7")
    assert (result.exit_code, result.stdout) == (0, "1\n2\n")
    assert broker.commands(q.Consume)[0].backlog == 7


def test_json_has_what_the_queue_says_of_a_message(broker):
    broker.publish()
    broker.listener.delivered[1] = 1
    result = run(broker, "--json", "--limit", "1")
    row = json.loads(result.stdout)
    assert row.pop("time").startswith("1970-01-01T00:00:01")
    assert row == {
        "topic": "t", "bookmark": "7|1|", "position": 1, "data": "1", "deliveries": 2,
        "redelivered": True,
    }  # fmt: skip


def test_json_of_a_replayable_queue_says_what_was_acked():
    with QueueBroker(kind="replayable") as broker:
        broker.publish(2)
        broker.listener.noted = {1}
        result = run(broker, "--json", "--limit", "2", "--since", "epoch")
        rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row.get("acked") for row in rows] == [True, None]


def test_the_command_passes_its_options_to_the_client(monkeypatch):
    asked = {}

    class Fake:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def consume(self, queue, **options):
            asked.update(options, queue=queue)
            return self

        def fetch(self, most, wait):
            return []

    monkeypatch.setattr(zbroker, "connect", lambda url: Fake())
    args = ["tcp://h:1", "audit", "--since", "-1h", "--selector", "/a = 1", "--until", "point:noon"]
    assert CliRunner().invoke(consume, [*args, "--filter", "/b > 1"]).exit_code == 0
    assert isinstance(asked.pop("since"), datetime)
    assert asked == {
        "queue": "audit", "selector": "/a = 1", "until": "point:noon", "filter": "/b > 1",
        "backlog": None, "bookmark_not_found": "fail",
    }  # fmt: skip
    assert asked.keys() <= signature(Client.consume).parameters.keys()


def test_an_option_that_cannot_be_is_an_error_with_its_code(broker):
    result = run(broker, "--since", "[0")
    assert (result.exit_code, "bad_bookmark" in result.stderr) == (1, True)
    broker.listener.code = "not_entitled"
    result = run(broker)
    assert (result.exit_code, "not_entitled" in result.stderr) == (1, True)
    missing = CliRunner().invoke(main, ["consume", broker.url])
    assert (missing.exit_code, "QUEUE" in missing.stderr) == (2, True)
