"""Publishers of queues that refuse while they are full, with a real broker."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import zbroker
from tests.process.load import until, until_running
from tests.process.taking import take
from zbroker.cli.admin_main import main
from zbroker.client import Client
from zbroker.client.session import Session
from zbroker.errors import Unavailable, ZBrokerError
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

T = 30.0
MESSAGES = 300
LIMIT = 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path / "data") as running:
        yield running


def _connect(broker: LocalBroker, name: str = "a") -> Client:
    return zbroker.connect(broker.url, name=name)


def _declare(client: Client, most: int = LIMIT, **more: Any) -> None:
    settings = {"topic": "orders", "max_length": most, "overflow": "reject-publish", **more}
    client.declare_queue("work", timeout=T, **settings)


def _refusal(client: Client, topic: str = "orders", **more: Any) -> str:
    """The code with which a message is refused; "" if it is taken."""
    try:
        client.publish(topic, b"probe", **more).wait(T)
    except ZBrokerError as error:
        return error.code
    return ""


def _until_full(client: Client, **more: Any) -> None:
    until(lambda: _refusal(client, **more) == "queue_full", "it refuses", T)


def _publish_both(session: Session) -> None:
    with session.transaction():
        session.publish("trades", b"1")
        session.publish("events", b"2", key=b"order.1")


def _logged(client: Client, topic: str = "orders") -> list[bytes]:
    with client.subscribe(topic, since="epoch", until="now") as all_of_it:
        return [message.data for message in all_of_it]


def _operator(broker: LocalBroker, *words: str) -> Any:
    result = CliRunner().invoke(main, ["--data-dir", str(broker.data_dir), "--json", *words])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_publisher_hears_that_a_queue_is_full_and_goes_on(broker: LocalBroker) -> None:
    with _connect(broker) as client:
        _declare(client)
        _until_full(client)
        with pytest.raises(Unavailable, match="queue 'work' is full") as refused:
            client.publish("orders", b"x").wait(T)
        assert "(max_length 20); the message is not in the log" in refused.value.reason
        client.publish("trades", b"1").wait(T)
        count = len(_logged(client))
        assert count >= LIMIT
        assert b"x" not in _logged(client)
        [row] = _operator(broker, "queue", "ls")["queues"]
        assert (row["full"], row["depth"], row["dropped"]) == (True, count, 0)
        explained = _operator(broker, "queue", "explain", "work")
        assert "this instance refuses" in explained["lines"][-1]
        assert take(client, "work", count, T) == [b"probe"] * count
        until(lambda: _refusal(client) == "", "it takes messages again", T)


def test_nothing_is_lost_or_refused_and_in_the_log(broker: LocalBroker) -> None:
    """A publisher that is refused publishes again, and consumers begin then."""
    taken: list[bytes] = []
    with _connect(broker) as client, _connect(broker, "worker") as worker:
        _declare(client)
        accepted: list[str] = []
        refusals: set[str] = set()

        def work() -> None:
            with worker.consume("work", backlog=5) as consumer:
                while len(taken) < MESSAGES:
                    for message in consumer.fetch(5, timeout=T):
                        taken.append(message.data)
                        message.ack()

        consuming = threading.Thread(target=work)
        for number in range(MESSAGES):
            while len(accepted) == number:
                receipt = client.publish("orders", b"%d" % number)
                try:
                    accepted.append(receipt.wait(T))
                except Unavailable:
                    if not refusals:
                        consuming.start()
                    refusals.add(receipt.bookmark)
        consuming.join(T)
        assert taken == [b"%d" % number for number in range(MESSAGES)]
        with client.subscribe("orders", since="epoch", until="now") as all_of_it:
            logged = [(message.bookmark, message.data) for message in all_of_it]
        assert [data for _, data in logged] == taken
        assert [bookmark for bookmark, _ in logged] == accepted
        assert refusals.isdisjoint(accepted)


def test_it_is_full_whatever_process_is_killed(broker: LocalBroker) -> None:
    with _connect(broker) as client:
        _declare(client)
        _until_full(client)
        pid = until_running(broker, "queues", 0)
        os.kill(pid, signal.SIGKILL)
        assert _refusal(client) == "queue_full", "while there is no queues process"
        until_running(broker, "queues", pid)
        assert _refusal(client) == "queue_full", "by the next one"
        os.kill(until_running(broker, "ingest", 0), signal.SIGKILL)
        _until_full(client)
        count = len(_logged(client))
        assert len(take(client, "work", count, T)) == count
        until(lambda: _refusal(client) == "", "it takes messages again", T)


def test_an_exchange_and_a_transaction_are_refused(broker: LocalBroker) -> None:
    with _connect(broker) as client:
        client.declare_exchange("events", "topic", timeout=T)
        _declare(client, topic="", bound=True)
        client.declare_queue("audit", bound=True)
        client.bind("work", "events", "order.#")
        client.bind("audit", "events", "#")
        _until_full(client, topic="events", key=b"order.1")
        assert _refusal(client, "events", key=b"trade.1") == ""
        count = len(_logged(client, "events"))
        assert client.declare_queue("audit", passive=True).messages == count
        with client.session("s", timeout=T) as session:
            with pytest.raises(Unavailable) as ended:
                _publish_both(session)
            assert ended.value.code == "queue_full"
            assert _logged(client, "trades") == []
            with session.transaction():
                session.publish("trades", b"3")
        assert _logged(client, "trades") == [b"3"]
