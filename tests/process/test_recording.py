"""A real broker that records some topics, or some of one: both kinds side by side, kills."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

import msgpack
import pytest
import zmq

import zbroker
from tests.process.load import until, until_running
from zbroker.client import Client, connect
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

T = 20.0
RECORD = {"record": [{"topic": "orders"}, {"topic": "trades[.].*", "regex": True}]}


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(settings=RECORD) as running:
        yield running


def live_link_is_up(client: Client) -> None:
    """Publishes into the void until something arrives: before, unrecorded messages are dropped."""
    with client.subscribe("warm-up") as subscription:
        end = time.monotonic() + T
        while time.monotonic() < end:
            client.publish("warm-up", b"?")
            with suppress(ZBrokerError):  # nothing came in time
                assert subscription.next(0.1) is not None
                return
    pytest.fail("nothing unrecorded arrives")


@pytest.mark.seed("004-03")
def test_recorded_and_unrecorded_topics_side_by_side(broker: LocalBroker) -> None:
    with connect(broker.url, "mixed") as client:
        live_link_is_up(client)
        with client.subscribe("orders|prices", regex=True) as plain:
            receipts = [
                client.publish("orders" if n % 3 else "prices", b"%d" % n) for n in range(3_000)
            ]
            client.flush(T)
            assert [r.recorded for r in receipts] == [bool(n % 3) for n in range(3_000)]
            assert receipts[0].wait(T) == ""
            messages = [plain.next(T) for _ in range(3_000)]
        seen: dict[str, list[bytes]] = {"orders": [], "prices": []}
        for message in messages:
            assert message is not None
            assert message.recorded is (message.topic == "orders")
            assert bool(message.bookmark) is bool(message.position) is message.recorded
            seen[message.topic].append(message.data)
        assert seen["orders"] == [b"%d" % n for n in range(3_000) if n % 3]
        assert seen["prices"] == [b"%d" % n for n in range(0, 3_000, 3)]
        replayed = list(client.subscribe(".*", regex=True, since="epoch", until="now"))
        assert [message.data for message in replayed] == seen["orders"]
        for since in ("epoch", "now", receipts[1].bookmark):
            with pytest.raises(ZBrokerError, match="topic_not_recorded"):
                client.subscribe("prices", since=since)
    until(lambda: broker.status()["ingest"].get("unrecorded", 0) >= 1_000, "it is not counted")


@pytest.mark.seed("004-28")
def test_a_log_that_records_nothing_delivers_what_comes() -> None:
    with (
        LocalBroker(settings={"journal": {"record": "nothing"}}) as broker,
        connect(broker.url, "live") as client,
    ):
        live_link_is_up(client)
        with client.subscribe("orders") as plain:
            receipts = [client.publish("orders", b"%d" % n) for n in range(10)]
            client.flush(T)
            assert not any(receipt.recorded for receipt in receipts)
            messages = [plain.next(T) for _ in receipts]
        assert [m.data for m in messages if m is not None] == [b"%d" % n for n in range(10)]
        with pytest.raises(ZBrokerError, match="topic_not_recorded"):
            client.subscribe("orders", since="epoch")


@pytest.mark.seed("004-03")
def test_content_decides_what_is_recorded() -> None:
    table = {"topic": "orders", "type": "json", "filter": "/price > 100"}
    with (
        LocalBroker(settings={"record": [table]}) as broker,
        connect(broker.url, "priced") as client,
    ):
        live_link_is_up(client)
        rows = [(b'{"id":%d,"price":%d}' % (n, 90 + n % 20), n % 20 > 10) for n in range(2_000)]
        rows.insert(1_000, (b'{"price":', False))
        sent = [data for data, _ in rows]
        wanted = [data for data, recorded in rows if recorded]
        with client.subscribe("orders") as plain:
            receipts = [client.publish("orders", data) for data in sent]
            client.flush(T)
            assert [receipt.recorded for receipt in receipts] == [kept for _, kept in rows]
            messages = [plain.next(T) for _ in sent]
        found = [(m.data, m.recorded) for m in messages if m is not None]
        assert [data for data, recorded in found if recorded] == wanted
        assert [data for data, recorded in found if not recorded] == [
            data for data, recorded in rows if not recorded
        ]
        until(lambda: broker.status()["ingest"].get("unreadable", 0) >= 1, "it is not counted")
        assert broker.status()["ingest"]["filtered"] >= len(sent) - len(wanted)
        for name in ("journal", "ingest"):
            os.kill(until_running(broker, name, 0), signal.SIGKILL)
            for data in sent:
                client.publish("orders", data)
        client.flush(T * 2)

        def replayed() -> list[bytes]:
            replay = client.subscribe("orders", since="epoch", until="now")
            return [message.data for message in replay]

        until(lambda: len(replayed()) >= 3 * len(wanted), "delivery has not heard of all")
        assert replayed() == wanted * 3


def test_a_client_by_hand_learns_what_is_not_recorded(broker: LocalBroker) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    try:
        socket.connect(broker.url)

        def ask(command: dict[str, object], *body: bytes) -> None:
            socket.send_multipart([msgpack.packb(command), *body])

        def answer() -> dict[str, object]:
            assert socket.poll(int(T * 1_000)), "no answer"
            said: dict[str, object] = msgpack.unpackb(socket.recv_multipart()[0])
            return said

        ask({"cmd": "logon", "cid": "1", "client": "raw", "instance": "a", "version": 1})
        assert answer()["recording"] == "some"
        body = msgpack.packb([b"a", b"b", b"c"])
        index = (0).to_bytes(2, "little") + (1).to_bytes(2, "little") + bytes(2)
        mixed = {"cmd": "publish", "topics": ["orders", "prices"], "seq": 1, "prev": 0, "count": 3}
        ask({**mixed, "columns": {"index": index}, "ack": ["persisted"]}, body)
        ask({"cmd": "publish", "topic": "prices", "seq": 4, "prev": 3, "ack": ["persisted"]}, b"d")
        said = []
        while not said or said[-1]["seq"] != 4:
            said.append(answer())
        assert [one["type"] for one in said if one["type"] == "persisted"]
        assert [one["unrecorded"] for one in said if "unrecorded" in one][-1] == ["prices"]
        assert max(one["seq"] for one in said if one["type"] == "persisted") == 3  # type: ignore[type-var]
    finally:
        context.destroy(linger=0)


def test_killed_processes_lose_nothing_that_is_recorded(broker: LocalBroker) -> None:
    with connect(broker.url, "mixed") as client:
        live_link_is_up(client)
        receipts: list[tuple[int, zbroker.client.Receipt]] = []
        for name in ("delivery", "journal", "ingest", "delivery", "journal"):
            for _ in range(600):
                number = len(receipts)
                topic = ("orders", "prices", "trades.eu")[number % 3]
                receipts.append((number, client.publish(topic, b"%d" % number)))
                if number % 50 == 0:
                    time.sleep(0.005)
            os.kill(until_running(broker, name, 0), signal.SIGKILL)
        client.flush(T * 2)
        assert [r.recorded for n, r in receipts] == [n % 3 != 1 for n, r in receipts]
        found = [
            message.data
            for message in client.subscribe(".*", regex=True, since="epoch", until="now")
        ]
        assert found == [b"%d" % n for n, _ in receipts if n % 3 != 1]
        live_link_is_up(client)


@pytest.mark.seed("004-77")
def test_what_is_not_recorded_is_conflated(broker: LocalBroker) -> None:
    with connect(broker.url) as client:
        live_link_is_up(client)
        found = client.subscribe("passed", conflation="200ms", conflation_key="/id")
        for n in range(50):
            client.publish("passed", b'{"id": %d, "n": %d}' % (n % 2, n))
        client.flush(T)
        newest: dict[int, int] = {}
        while sorted(newest.values()) != [48, 49]:
            message = found.next(T)
            assert message is not None
            row = json.loads(message.data)
            newest[row["id"]] = row["n"]
        assert found.dropped == 0
