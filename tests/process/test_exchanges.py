"""Exchanges with a real broker: what is published after the answer to `bind` enters the queue."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import zbroker
from tests.process.instances import Instances, Peer
from tests.process.load import until, until_running
from tests.process.taking import take
from zbroker.cli.admin_main import main
from zbroker.client import BindingInfo, Client, ExchangeInfo
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

T = 30.0
ROUNDS = 6
PREDECLARED = ["amq.direct", "amq.fanout", "amq.match", "amq.topic"]


def _connect(broker: LocalBroker, name: str) -> Client:
    return zbroker.connect(broker.url, name=name)


@pytest.mark.seed("001-66")
def test_messages_go_to_the_queues_that_are_bound(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        assert client.declare_exchange("events", "topic", timeout=T)
        assert not client.declare_exchange("events", "topic")
        client.declare_queue("bills", bound=True)
        client.declare_queue("audit", bound=True)
        assert client.bind("bills", "events", "order.*.paid")
        assert client.bind("audit", "events", "#")
        client.publish("events", b"1", key=b"order.7.paid")
        client.publish("events", b"2", key=b"order.7.sent")
        client.publish("events", b"3")
        client.flush(timeout=T)
        assert take(client, "bills", 1, T) == [b"1"]
        assert take(client, "audit", 3, T) == [b"1", b"2", b"3"]
        assert client.unbind("audit", "events", "#")
        client.publish("events", b"4", key=b"order.8.paid").wait(T)
        assert take(client, "bills", 1, T) == [b"4"]
        with pytest.raises(ZBrokerError) as refused:
            client.delete_exchange("events", if_unused=True)
        assert refused.value.code == "exchange_in_use"
        assert client.declare_queue("audit", passive=True).messages == 0
        assert client.delete_exchange("events")
        with client.subscribe("events", since="epoch", until="now") as all_of_it:
            assert [message.data for message in all_of_it] == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("size", [1, 100_000])
def test_of_many_mandatory_messages_those_without_a_queue_are_named(
    tmp_path: Path, size: int
) -> None:
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        client.declare_exchange("events", "fanout", timeout=T)
        client.declare_queue("bills", bound=True)
        client.bind("bills", "events")
        topics = ["events", "nowhere"] * 3
        mixed = client.publish_many(topics, [b"x" * size] * 6, mandatory=True)
        plain = client.publish_many("nowhere", [b"x"] * 3)
        client.flush(timeout=T)
        assert mixed.returned_indexes == [1, 3, 5]
        assert plain.returned_indexes == []
        many = client.publish_many("nowhere", [b"%d" % n for n in range(2_500)], mandatory=True)
        many.wait(T)
        assert many.returned_indexes == list(range(2_500))
        assert client.declare_queue("bills", passive=True, timeout=T).messages == 3


def test_of_many_mandatory_messages_in_an_event_loop(tmp_path: Path) -> None:
    async def run(url: str) -> list[int] | None:
        async with zbroker.aio.connect(url, name="a") as client:
            receipt = client.publish_many("nowhere", [b"1", b"2"], mandatory=True)
            await receipt
            return receipt.returned_indexes

    with LocalBroker(tmp_path / "data") as broker:
        assert asyncio.run(run(broker.url)) == [0, 1]


def test_dead_letters_go_to_the_queues_that_are_bound(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        client.declare_exchange("dead", "topic", timeout=T)
        for queue in ("morgue", "unread"):
            client.declare_queue(queue, bound=True)
        client.bind("morgue", "dead", "orders.#")
        client.bind("unread", "dead", "other")
        client.declare_queue("orders", dead_letter="dead", dead_letter_key="orders.dead")
        client.publish("orders", b"1", key=b"other").wait(T)
        with client.consume("orders", timeout=T) as consumer:
            [order] = consumer.fetch(1, timeout=T)
            order.reject("no such customer")
        with client.consume("morgue", timeout=T) as consumer:
            [letter] = consumer.fetch(1, timeout=T)
            assert (letter.topic, letter.key, letter.data) == ("dead", b"orders.dead", b"1")
            assert letter.headers["zb-text"] == "no such customer"
            letter.ack()
        assert client.declare_queue("unread", passive=True, timeout=T).messages == 0


def test_headers_decide_too_in_an_event_loop(tmp_path: Path) -> None:
    async def run(url: str) -> list[bytes]:
        async with zbroker.aio.connect(url, name="a") as client:
            await client.declare_exchange("offers", "headers", timeout=T)
            await client.declare_queue("eu", bound=True)
            await client.bind("eu", "offers", arguments={"region": "eu", "n": 1})
            client.publish("offers", b"no", headers={"region": "us", "n": 1})
            client.publish("offers", b"yes", headers={"region": "eu", "n": 1.0})
            await client.flush(timeout=T)
            async with client.consume("eu", timeout=T) as consumer:
                found = await consumer.fetch(1, timeout=T)
                return [message.data for message in found]

    with LocalBroker(tmp_path / "data") as broker:
        assert asyncio.run(run(broker.url)) == [b"yes"]


def test_programs_ask_what_is_bound(tmp_path: Path) -> None:
    async def asked(url: str) -> list[str]:
        async with zbroker.aio.connect(url, name="b") as client:
            return [one.key for one in await client.bindings("events", timeout=T)]

    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        client.declare_exchange("events", "topic", timeout=T)
        client.declare_queue("bills", bound=True)
        client.bind("bills", "events", "order.*")
        client.bind("bills", "amq.match", arguments={"n": 1})
        assert client.exchanges("events") == [ExchangeInfo("events", "topic", "", False, False)]
        assert client.exchanges("none") == []
        assert [one.name for one in client.exchanges()] == [*PREDECLARED, "events"]
        assert client.bindings("events", "bills", key="order.*")
        assert not client.bindings("events", "bills", key="order.7")
        arguments = {"n": 1, "x-match": "all"}
        assert client.bindings("amq.match") == [BindingInfo("amq.match", "bills", "", arguments)]
        assert client.bindings(arguments={"n": 1}) == client.bindings("amq.match")
        assert asyncio.run(asked(broker.url)) == ["order.*"]
        client.delete_exchange("events")
        assert client.bindings("events") == []


@pytest.mark.seed("001-67")
def test_each_instance_says_what_is_bound() -> None:
    with Instances(2, starts=False) as instances:
        a, b = instances.peers
        with ThreadPoolExecutor() as threads:
            list(threads.map(Peer.start, instances.peers))
        with zbroker.connect(a.url, "a") as at_a, zbroker.connect(b.url, "b") as at_b:
            at_a.declare_exchange("events", "topic", timeout=T)
            at_a.declare_queue("bills", bound=True, scope="distributed", timeout=T)
            at_a.declare_queue("here", bound=True)
            for queue in ("bills", "here"):
                at_a.bind(queue, "events", "order.*")
            until(lambda: at_b.bindings("events", "bills", key="order.*"), "the binding to come")
            assert at_b.exchanges("events") == at_a.exchanges("events")
            assert [one.queue for one in at_a.bindings("events")] == ["bills", "here"]
            assert [one.queue for one in at_b.bindings("events")] == ["bills"]
            until(lambda: len(listed(b.url)) == 2, "the other one to come")
            assert [(row["queue"], row["here"]) for row in listed(b.url)] == [
                ("bills", True), ("here", False)
            ]  # fmt: skip


def listed(url: str) -> list[dict[str, Any]]:
    """What `binding ls` says at an instance."""
    found: list[dict[str, Any]] = admin(url, "binding", "ls", "--exchange", "events")["bindings"]
    return found


def admin(url: str, *arguments: str) -> Any:
    """What `zbroker-admin --json` says."""
    result = CliRunner().invoke(main, ["--json", "--url", url, *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_operators_bind_and_see_what_is_bound(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        at = broker.url
        client.declare_queue("bills", bound=True, timeout=T)
        assert admin(at, "exchange", "declare", "events", "--kind", "topic")["changed"]
        assert admin(at, "binding", "add", "bills", "events", "--key", "#")["changed"]
        assert not admin(at, "binding", "add", "bills", "events", "--key", "#")["changed"]
        client.publish("events", b"1", key=b"any").wait(T)
        assert take(client, "bills", 1, T) == [b"1"]
        found = admin(at, "exchange", "info", "events")
        assert (found["exchange"]["bindings"], found["bindings"][0]["key"]) == (1, "#")
        assert [row["name"] for row in admin(at, "exchange", "ls")["exchanges"]] == [
            *PREDECLARED, "events"
        ]  # fmt: skip
        assert admin(at, "binding", "rm", "bills", "events", "--key", "#")["changed"]
        assert admin(at, "exchange", "delete", "events", "--yes")["bindings"] == 0
        entries = broker.ask("/audit")["entries"]
        changes = [entry["what"] for entry in entries if "POST /b" in entry["what"]]
        assert changes[0].startswith("POST /bindings/remove queue exchange key")


def test_filters_read_routing_keys(tmp_path: Path) -> None:
    paid, without = "KEY() LIKE '[.]paid$'", "KEY() IS NULL"
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        client.declare_exchange("events", "fanout", timeout=T)
        client.declare_queue("paid", bound=True, filter=paid)
        client.declare_queue("plain", topic="events", filter=without)
        client.bind("paid", "events")
        with client.subscribe("events", filter=paid, timeout=T) as live:
            for number, key in enumerate((b"1.paid", b"1.sent", None, b"", b"2.paid")):
                client.publish("events", b"%d" % number, key=key)
            client.flush(T)
            found = [live.next(T), live.next(T)]
            assert [one.data for one in found if one is not None] == [b"0", b"4"]
        for wanted, expected in ((paid, [b"0", b"4"]), (without, [b"2", b"3"])):
            bounds = {"since": "epoch", "until": "now"}
            replayed = client.subscribe("events", filter=wanted, **bounds)  # type: ignore[arg-type]
            assert [message.data for message in replayed] == expected
        assert take(client, "paid", 2, T) == [b"0", b"4"]
        assert take(client, "plain", 2, T) == [b"2", b"3"]


def test_a_publisher_is_told_what_is_in_no_queue(tmp_path: Path) -> None:
    async def told(url: str) -> list[bool | None]:
        async with zbroker.aio.connect(url, name="b") as client:
            keys = (b"bound", b"lost")
            receipts = [client.publish("events", b"x", key=key, mandatory=True) for key in keys]
            await client.flush(timeout=T)
            return [one.returned for one in receipts]

    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        client.declare_exchange("events", "direct", timeout=T)
        client.declare_queue("bills", bound=True)
        client.bind("bills", "events", "bound")
        found: list[bool | None] = []
        receipts = [
            client.publish("events", b"%d" % number, key=key, mandatory=mandatory)
            for number, (key, mandatory) in enumerate(
                ((b"bound", True), (b"lost", True), (b"lost", False), (None, True))
            )
        ]
        receipts[1].add_done_callback(lambda receipt: found.append(receipt.returned))
        client.flush(T)
        assert [one.returned for one in receipts] == [False, True, False, True]
        until(lambda: found == [True], "the callback")
        assert receipts[1].wait(T), "it has a bookmark: the log has it"
        assert client.publish("orders", b"", mandatory=True).wait(T)
        assert asyncio.run(told(broker.url)) == [False, True]
        assert take(client, "bills", 2, T) == [b"0", b"x"]
        everything = client.subscribe("events", since="epoch", until="now")
        assert [message.data for message in everything] == [b"0", b"1", b"2", b"3", b"x", b"x"]


def test_what_is_lost_with_a_connection_is_not_known_and_never_wrong(tmp_path: Path) -> None:
    """ingest dies again and again; what is told is right all the same."""
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        client.declare_exchange("events", "direct", timeout=T)
        client.declare_queue("bills", bound=True)
        client.bind("bills", "events", "bound")
        receipts, pid = [], 0
        for number in range(4 * ROUNDS):
            key = b"bound" if number % 2 else b"lost"
            some = [client.publish("events", b"x", key=key, mandatory=True) for _ in range(50)]
            receipts.append((key, some))
            if number % 4 == 2:
                pid = until_running(broker, "ingest", pid)  # not the one that was killed
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        client.flush(T)
        for key, some in receipts:
            assert {one.returned for one in some} <= {key == b"lost", None}
        known = [one for _, some in receipts for one in some if one.returned is not None]
        assert known, "most are told"


def test_nothing_misses_a_queue_whatever_is_killed(tmp_path: Path) -> None:
    """Each round binds, publishes after the answer, and something dies meanwhile."""
    rng = random.Random(5)
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        client.declare_exchange("events", "direct", timeout=T)
        client.declare_queue("bills", bound=True, timeout=T)
        expected: list[bytes] = []
        for number in range(ROUNDS):
            process = ("ingest", "journal", "queues")[number % 3]
            pid = until_running(broker, process, 0)
            if rng.random() < 0.5:
                os.kill(pid, signal.SIGKILL)
                client.bind("bills", "events", f"k{number}", timeout=T)
            else:
                client.bind("bills", "events", f"k{number}", timeout=T)
                os.kill(pid, signal.SIGKILL)
            key = f"k{number}".encode()
            payloads = [b"%d.%d" % (number, each) for each in range(20)]
            for payload in payloads:
                client.publish("events", payload, key=key)
            expected += payloads
            client.flush(timeout=T)
        assert sorted(set(take(client, "bills", len(expected), T))) == sorted(expected)
