"""A real broker with two delivery workers: clients on both, and one worker that dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from tests.process.load import until
from zbroker.client import Client, connect
from zbroker.control.target import Admin, get
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

T = 20.0
COUNT = 300
SETTINGS: Any = {
    "delivery": {"workers": 2},
    "record": [{"topic": "orders"}],
    "journal": {"segment_size": "1MiB"},
}
WORKERS = ("delivery", "delivery-2")


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(settings=SETTINGS) as running:
        yield running


def admin(broker: LocalBroker, path: str) -> dict[str, Any]:
    return get(broker.status()["endpoints"]["admin"], path)


def warm(client: Client) -> None:
    """Publishes into the void until something arrives: its worker is linked to ingest."""
    with client.subscribe("warm-up") as subscription:
        end = time.monotonic() + T
        while time.monotonic() < end:
            client.publish("warm-up", b"?")
            with suppress(ZBrokerError):  # nothing came in time
                assert subscription.next(0.1) is not None
                return
    pytest.fail("nothing unrecorded arrives")


def listener(client: Client) -> str:
    """The delivery listener that this client was given."""
    return client.endpoints["delivery"]


def test_two_clients_on_two_listeners_get_everything(broker: LocalBroker) -> None:
    endpoints = broker.status()["endpoints"]
    with connect(broker.url, "one") as one, connect(broker.url, "two") as two:
        assert {listener(one), listener(two)} == {endpoints[worker] for worker in WORKERS}
        for client in (one, two):
            warm(client)
        with ExitStack() as stack:
            both = [
                stack.enter_context(client.subscribe("orders|prices", regex=True))
                for client in (one, two)
            ]
            for number in range(COUNT):
                one.publish("orders" if number % 2 else "prices", b"%d" % number)
            one.flush(T)
            for subscription in both:
                seen: dict[str, list[bytes]] = {"orders": [], "prices": []}
                for _ in range(COUNT):
                    message = subscription.next(T)
                    assert message is not None
                    seen[message.topic].append(message.data)
                assert seen["orders"] == [b"%d" % n for n in range(COUNT) if n % 2]
                assert seen["prices"] == [b"%d" % n for n in range(0, COUNT, 2)]

            def caught_up() -> bool:
                """What a program has taken counts as handled when it asks for more."""
                for subscription in both:
                    with suppress(ZBrokerError):  # nothing came in time
                        subscription.next(0.1)
                rows = admin(broker, "/subscriptions")["subscriptions"]
                found = sorted((row["client"], row["state"], row["lag"]) for row in rows)
                return found == [("one", "caught up", 0), ("two", "caught up", 0)]

            until(caught_up, "both have handled all")
            rows = admin(broker, "/subscriptions")["subscriptions"]
            assert {row["worker"] for row in rows} == set(WORKERS)
            assert {row["sent_messages"] for row in rows} == {COUNT}
            until(lambda: broker.status()["subscriptions"] == 2, "both workers count")
        until(lambda: broker.status()["subscriptions"] == 0, "both have left")


def test_a_worker_that_dies_is_no_business_of_the_other(broker: LocalBroker) -> None:
    endpoints = broker.status()["endpoints"]
    with connect(broker.url, "one") as one, connect(broker.url, "two") as two:
        for client in (one, two):
            warm(client)
        dies = next(worker for worker in WORKERS if endpoints[worker] == listener(two))
        with (
            one.subscribe("orders|prices", regex=True) as stays,
            two.subscribe("orders") as comes_back,
        ):
            before = broker.pids
            os.kill(before[dies], signal.SIGKILL)
            for number in range(COUNT):
                one.publish("orders" if number % 2 else "prices", b"%d" % number)
                time.sleep(0.001)
            seen = [stays.next(T) for _ in range(COUNT)]
            assert sorted(int(m.data) for m in seen if m is not None) == list(range(COUNT))
            back = [comes_back.next(T) for _ in range(COUNT // 2)]
            assert [m.data for m in back if m] == [b"%d" % n for n in range(COUNT) if n % 2]
            until(lambda: broker.status()["state"] == "ready", "it is back")
            after = broker.pids
            assert {name for name in after if after[name] != before[name]} == {dies}
            assert broker.status()["endpoints"] == endpoints
        warm(two)


def test_removal_waits_for_the_readers_of_each_worker(broker: LocalBroker) -> None:
    admin = Admin(broker.status()["endpoints"]["admin"])
    with connect(broker.url, "one") as one, connect(broker.url, "two") as two:
        for _ in range(40):
            one.publish("orders", os.urandom(100_000))
            one.flush(T)  # in a batch of its own
        until(lambda: admin.ask("/journal")["stated"] > 2, "a newer segment has a snapshot")
        for client, name in ((one, "one"), (two, "two")):
            with client.subscribe("orders", since="epoch", credit=1) as slow:
                assert slow.next(T) is not None
                until(lambda: admin.ask("/holders")["holders"], "it is reported who holds the log")
                reported = admin.tell("/journal/remove", {"through": 1})
                assert reported["serials"] == [], reported
                assert [holder["who"] for holder in reported["held_by"]] == [name], reported
                [row] = admin.ask(f"/subscriptions?client={name}")["subscriptions"]
                assert row["state"] == "no credit"
                assert row["lag"] > 0
                assert row["lag_s"] is not None
            until(lambda: not admin.ask("/holders")["holders"], "no one holds it any more")
        assert admin.tell("/journal/remove", {"through": 1})["serials"] == [1]
        until(lambda: admin.ask("/journal")["segments"][0]["serial"] == 2, "its file is gone")


def test_a_worker_that_does_not_answer_is_named(broker: LocalBroker) -> None:
    pid = broker.pids["delivery-2"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert admin(broker, "/subscriptions")["silent"] == ["delivery-2"]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert admin(broker, "/subscriptions")["silent"] == []
