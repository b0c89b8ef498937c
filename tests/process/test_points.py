"""Named points as places to begin and to end: subscriptions, ranges, the command line."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zbroker import Range
from zbroker.client import Client, connect
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker
from zbroker.server.spawn import command

pytestmark = [pytest.mark.process, pytest.mark.timeout(120), pytest.mark.seed("003-26")]

T = 20.0


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """Ten messages; morning is set before the third, evening before the eighth."""
    with LocalBroker() as running, connect(running.url, "p") as client:
        for n in range(10):
            if n in (2, 7):
                client.flush(T)
                running.ask("/points", {"name": {2: "morning", 7: "evening"}[n]})
            client.publish("t", b"%d" % n)
        client.flush(T)
        yield running


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[Client]:
    with connect(broker.url) as one:
        yield one


def numbers(client: Client, **ends: Any) -> list[int]:
    return [int(message.data) for message in client.subscribe("t", **ends)]


def test_a_subscription_begins_at_a_point(client: Client) -> None:
    assert numbers(client, since="point:morning", until="now") == list(range(2, 10))


def test_a_subscription_ends_at_a_point(client: Client) -> None:
    assert numbers(client, since="epoch", until="point:evening") == list(range(7))


def test_points_are_the_ends_of_a_range(client: Client) -> None:
    for brackets in ("[)", "(]"):
        range_ = Range("point:morning", "point:evening", brackets)
        assert numbers(client, since=range_) == list(range(2, 7))
    assert numbers(client, since="[point:evening:now]") == [7, 8, 9]


def test_ranges_begin_at_a_point(client: Client) -> None:
    found = client.ranges("t", since="point:morning", until="point:evening")
    assert found.first == found.ranges[0][0]


def test_a_point_that_is_not_there_is_an_error(client: Client) -> None:
    for ends in ({"since": "point:noon"}, {"since": "epoch", "until": "point:noon"}):
        with pytest.raises(ZBrokerError) as raised:
            numbers(client, **ends)
        assert raised.value.code == "unknown_point"


def test_a_removed_point_stays_removed_until_it_is_set_again(tmp_path: Path) -> None:
    def point(broker: LocalBroker, *arguments: str) -> None:
        admin = command("zbroker.cli.admin_main", "--url", broker.url, "point", *arguments)
        subprocess.run(admin, capture_output=True, timeout=T, check=True)

    with LocalBroker(tmp_path / "data") as broker, connect(broker.url) as client:
        client.publish("t", b"0").wait(T)
        point(broker, "set", "noon")
        point(broker, "rm", "noon")
    with LocalBroker(tmp_path / "data") as broker, connect(broker.url) as client:
        with pytest.raises(ZBrokerError, match="it was removed, or never set") as raised:
            numbers(client, since="point:noon")
        assert raised.value.code == "unknown_point"
        point(broker, "set", "noon", "--at", "1")
        assert numbers(client, since="point:noon", until="now") == [0]


def test_the_command_line_begins_at_a_point(broker: LocalBroker) -> None:
    for options in (["--since", "point:morning", "--until", "point:evening"],
                    ["--since", "[point:morning:point:evening)"]):  # fmt: skip
        done = subprocess.run(
            command("zbroker.cli.main", "sub", broker.url, "t", *options),
            capture_output=True, text=True, timeout=T, check=True,
        )  # fmt: skip
        assert done.stdout.split() == ["2", "3", "4", "5", "6"]


def test_an_end_that_is_set_again_stays_for_who_subscribed(broker: LocalBroker) -> None:
    with connect(broker.url) as client:
        broker.ask("/points", {"name": "moving"})
        found = client.subscribe("t", since="point:morning", until="point:moving", credit=1)
        first = found.next(T)
        assert first is not None
        client.publish("t", b"10").wait(T)
        broker.ask("/points", {"name": "moving"})
        os.kill(broker.pids["delivery"], signal.SIGKILL)
        rest = [int(message.data) for message in found]
    assert [int(first.data), *rest] == list(range(2, 10))
