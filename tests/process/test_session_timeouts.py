"""Sessions with a time-out and a real broker: what they hold outlives connections and processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import zbroker
from tests.process.instances import Instances
from tests.process.load import until, until_running
from tests.process.test_replicated_queues import started
from tests.process.test_transactions import SYNC
from zbroker.client import Client, connect
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

T: Final = 30.0
KEPT: Final = 2.0  # the time-out of a session that is to be over soon
PROGRAM: Final = """
import sys, time, zbroker
with zbroker.connect(sys.argv[1], name="victim") as client:
    session = client.session("billing", session_timeout=float(sys.argv[2]))
    consumer = session.consume("orders", backlog=1)
    [order] = consumer.fetch(1, timeout=30)
    print(order.data.decode(), flush=True)
    time.sleep(300)
"""


def _orders(client: Client, *data: bytes, lease: str = "1s") -> None:
    client.declare_queue("orders", lease=lease, timeout=T)
    client.publish_many("orders", list(data))
    client.flush(timeout=T)


def _row(broker: LocalBroker) -> dict[str, object]:
    [row] = broker.ask("/sessions")["sessions"]
    return dict(row)


def _kill(broker: LocalBroker, process: str) -> None:
    pid = until_running(broker, process, 0)
    os.kill(pid, signal.SIGKILL)
    until_running(broker, process, pid)


def test_what_a_killed_program_held_comes_back_when_its_session_has_timed_out(
    tmp_path: Path,
) -> None:
    with LocalBroker(tmp_path / "data") as broker, zbroker.connect(broker.url, "a") as client:
        _orders(client, b"1")
        command = [sys.executable, "-c", PROGRAM, broker.url, str(KEPT)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
            try:
                assert program.stdout is not None
                assert program.stdout.readline() == b"1\n"
                assert _row(broker)["state"] == "attached"
                other = client.consume("orders", timeout=T)
                with pytest.raises(ZBrokerError, match="no message"):
                    next(other.batches(timeout=1.5))  # longer than a lease
            finally:
                program.kill()
        killed = time.monotonic()
        until(lambda: _row(broker)["state"] == "waiting", "its connection is gone")
        [again] = other.fetch(1, timeout=T)
        assert time.monotonic() - killed > KEPT / 2
        assert (again.data, again.deliveries) == (b"1", 2)
        assert (_row(broker)["state"], _row(broker)["ended"]) == ("ended", "timed out")
        with client.session("billing", timeout=T) as session:
            assert session.ended_before == ("timed out", "", "")


def test_a_session_goes_on_after_its_queues_process_was_killed(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, zbroker.connect(broker.url, "a") as client:
        _orders(client, b"1", b"2")
        with client.session("billing", session_timeout=60, timeout=T) as session:
            consumer = session.consume("orders", backlog=1, timeout=T)
            assert consumer.lease is None
            [first] = consumer.fetch(1, timeout=T)
            with session.transaction(T):
                session.publish("invoices", first.data)
                first.ack()
            epoch = _row(broker)["epoch"]
            _kill(broker, "queues")
            # it is attached again by itself, without a transaction that asks for it
            until(lambda: _row(broker)["epoch"] != epoch, "it is attached again")
            until(lambda: _row(broker)["state"] == "attached", "it is attached again")
            [second] = consumer.fetch(1, timeout=T)
            with session.transaction(T):
                session.publish("invoices", second.data)
                second.ack()
        assert client.declare_queue("orders", passive=True, timeout=T).messages == 0
        assert _row(broker)["ended"] == "detached"


def test_what_is_held_outlives_the_queues_process_and_may_be_committed(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, zbroker.connect(broker.url, "a") as client:
        _orders(client, b"1", b"2", lease="2m")
        with client.session("billing", session_timeout=60, timeout=T) as session:
            consumer = session.consume("orders", backlog=2, timeout=T)
            first, second = consumer.fetch(2, timeout=T)  # it has room for no other one
            other, core = client.consume("orders", timeout=T), consumer._port.core
            epoch, asks = _row(broker)["epoch"], core._asks
            _kill(broker, "queues")
            until(lambda: _row(broker)["epoch"] != epoch, "it is attached again")
            until(lambda: core._asks > asks and core.live, "its consumer is back")
            client.publish("orders", b"3").wait(T)
            [message] = other.fetch(1, timeout=T)
            assert (message.data, message.deliveries) == (b"3", 1), "not what the session holds"
            for held in (first, second):
                with session.transaction(T):
                    session.publish("invoices", held.data)
                    held.ack()
            message.ack()
            other.close()
        assert client.declare_queue("orders", passive=True, timeout=T).messages == 0


def test_the_next_program_hears_why_a_session_failed(tmp_path: Path) -> None:
    async def take(url: str, then: Callable[[zbroker.aio.AsyncSession], object]) -> None:
        async with zbroker.aio.connect(url, name="b") as client:
            session = await client.session("billing", session_timeout=60, timeout=T)
            consumer = await session.consume("orders", timeout=T)
            [message] = await consumer.fetch(1, timeout=T)
            assert message.data == b"1"
            await then(session)  # type: ignore[misc]

    with LocalBroker(tmp_path / "data") as broker, zbroker.connect(broker.url, "a") as client:
        _orders(client, b"1")
        asyncio.run(take(broker.url, lambda session: session.fail("bad_order", "no price")))
        row = _row(broker)
        assert (row["ended"], row["code"], row["text"]) == ("exception", "bad_order", "no price")
        with client.session("billing", session_timeout=60, timeout=T) as session:
            assert session.ended_before == ("exception", "bad_order", "no price")
            [message] = session.consume("orders", timeout=T).fetch(1, timeout=T)
            assert message.deliveries == 2
        asyncio.run(take(broker.url, lambda session: session.close()))
        assert _row(broker)["ended"] == "detached"


@pytest.mark.seed("001-20")
@pytest.mark.seed("001-38")
def test_of_two_instances_the_one_that_has_the_session_ends_it() -> None:
    with Instances(2, destination=SYNC, starts=False) as instances:
        peers = started(instances)
        a, b = (peer.running for peer in peers)
        with connect(peers[0].url, "pa") as client:
            session = client.session("billing", session_timeout=KEPT, timeout=T)
            until(lambda: _state(b) is not None, "both know it")
            assert (_state(a), _state(b)) == ("attached", "")
            assert _row(b)["timeout_ms"] == 1_000 * KEPT
            assert session._keeper is not None
            session._keeper.close()
            session._link.close()  # as if the program hung
            until(lambda: _state(a) == "waiting", "its connection is gone")
            until(lambda: _state(b) == "ended", "it is over on both")
            rows = [_row(broker) for broker in (a, b)]
            assert [row["ended"] for row in rows] == ["timed out"] * 2
            assert rows[0]["instance"] == rows[1]["instance"], "the end is of that instance"
            with client.session("billing", timeout=T) as again:
                assert again.ended_before == ("timed out", "", "")


def _state(broker: LocalBroker) -> object:
    rows = broker.ask("/sessions")["sessions"]
    return rows[0]["state"] if rows else None
