"""Sessions with transactions with a real broker: all or nothing, whoever dies."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

import zbroker
from tests.process.instances import Instances
from tests.process.load import until, until_running
from tests.process.test_replicated_queues import depths, publish, started
from zbroker.cli.admin_main import main
from zbroker.client import Client, connect
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.session import Session
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

T = 30.0
JOBS: Final = int(os.environ.get("ZB_JOBS", "600"))
STEP: Final = max(100, JOBS // 200)  # published between two kills
WORKERS: Final = 2


def _connect(broker: LocalBroker, name: str) -> Client:
    return zbroker.connect(broker.url, name=name)


def _shown(client: Client, topic: str) -> list[bytes]:
    with client.subscribe(topic, since="epoch", until="now") as all_of_it:
        return [message.data for message in all_of_it]


def _left(client: Client, queue: str) -> int:
    return client.declare_queue(queue, passive=True, timeout=T).messages


def _until_left(client: Client, queue: str, count: int) -> None:
    """A commit is answered when it is durable; the queue reads it in the log a moment later."""
    until(lambda: _left(client, queue) == count, f"{count} messages to be left in {queue}")


def _invoice(session: Session, message: QueueMessage, then: Callable[[], None]) -> None:
    with session.transaction():
        session.publish("invoices", b"never").wait(T)
        message.ack()
        then()


def _fail() -> None:
    raise RuntimeError


@pytest.mark.seed("001-62")
@pytest.mark.seed("003-15")
def test_what_is_published_and_acknowledged_holds_together(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        client.declare_queue("orders", timeout=T)
        client.publish_many("orders", [b"1", b"2", b"3"])
        client.flush(timeout=T)
        with client.session("billing") as session, session.consume("orders") as consumer:
            first, second, third = consumer.fetch(3, timeout=T)
            with session.transaction() as done:
                session.publish("invoices", b"for " + first.data).wait(T)
                session.publish("invoices", b"for " + second.data)
                first.ack()
                consumer.ack([second])
                assert _shown(client, "invoices") == []
                _until_left(client, "orders", 3)
            assert done.committed is not None
            assert (done.committed.messages, done.committed.acknowledged) == (2, 2)
            assert _shown(client, "invoices") == [b"for 1", b"for 2"]
            _until_left(client, "orders", 1)
            with pytest.raises(RuntimeError):
                _invoice(session, third, _fail)
            [again] = consumer.fetch(1, timeout=T)
            assert (again.data, again.deliveries) == (b"3", 2)
            session.publish("notes", b"outside of a transaction").wait(T)
            with session.transaction():
                again.ack()
        assert _shown(client, "invoices") == [b"for 1", b"for 2"]
        assert _shown(client, "notes") == [b"outside of a transaction"]
        _until_left(client, "orders", 0)


def test_what_is_rejected_is_a_dead_letter_when_the_transaction_holds(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        client.declare_queue("orders", dead_letter="orders.dead", timeout=T)
        client.publish_many("orders", [b"1", b"2", b"3"])
        client.flush(timeout=T)
        with client.session("billing") as session, session.consume("orders") as consumer:
            first, second, third = consumer.fetch(3, timeout=T)
            with suppress(RuntimeError), session.transaction():
                second.reject("no such customer")
                _fail()
            [second] = consumer.fetch(1, timeout=T)
            assert (second.data, second.deliveries) == (b"2", 2)
            assert _shown(client, "orders.dead") == []
            with session.transaction() as done:
                session.publish("invoices", b"for 1")
                first.ack()
                with second:
                    raise zbroker.Reject("no such customer")
            assert done.committed is not None
            assert (done.committed.acknowledged, done.committed.rejected) == (2, 1)
            session.tpc_begin(session.xid(1, "payment-1"))
            third.reject("not paid")
            session.tpc_prepare()
            assert _shown(client, "orders.dead") == [b"2"]
            decided = session.tpc_commit()
            assert decided is not None
            assert (decided.acknowledged, decided.rejected) == (1, 1)
        with client.subscribe("orders.dead", since="epoch", until="now") as letters:
            texts = [(letter.data, letter.headers["zb-text"]) for letter in letters]
        assert texts == [(b"2", "no such customer"), (b"3", "not paid")]
        _until_left(client, "orders", 0)


def test_the_same_in_an_event_loop(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        async with zbroker.aio.connect(url, name="a") as client:
            await client.declare_queue("orders", timeout=T)
            await client.publish("orders", b"1")
            async with await client.session("billing") as session:
                consumer = await session.consume("orders", timeout=T)
                [message] = await consumer.fetch(1, timeout=T)
                async with session.transaction() as done:
                    session.publish("invoices", b"one")
                    message.ack()
                assert done.committed is not None
                assert done.committed.acknowledged == 1
            assert (await client.declare_queue("orders", passive=True)).messages == 0

    with LocalBroker(tmp_path / "data") as broker:
        asyncio.run(run(broker.url))


def test_a_session_that_begins_again_ends_the_one_before(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        client.declare_queue("orders", timeout=T)
        client.publish("orders", b"1").wait(T)
        with client.session("billing") as old:
            consumer = old.consume("orders")
            [message] = consumer.fetch(1, timeout=T)
            with pytest.raises(ZBrokerError) as refused, _connect(broker, "b") as other:
                _invoice(old, message, lambda: other.session("billing").close())
            assert refused.value.code == "session_fenced"
        assert _shown(client, "invoices") == []
        _until_left(client, "orders", 1)


class Workers:
    """Processes that take jobs. `kill`: one of them dies, and another one has its name."""

    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self._running = [self._start(number) for number in range(count)]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        module = "tests.process.transaction_worker"
        return subprocess.Popen([sys.executable, "-m", module, self._url, f"worker-{number}"])

    def kill(self, number: int) -> None:
        self._stop(self._running[number])
        self._running[number] = self._start(number)

    def close(self) -> None:
        for worker in self._running:
            self._stop(worker)

    @staticmethod
    def _stop(worker: subprocess.Popen[bytes]) -> None:
        worker.kill()
        worker.wait(T)


@pytest.mark.timeout(240 + JOBS // 50)
def test_each_job_has_one_result_whatever_is_killed(tmp_path: Path) -> None:
    """Processes of the broker and workers die meanwhile. ZB_JOBS: how many jobs."""
    rng = random.Random(7)
    victims = ["journal", "queues", "ingest", "worker", "worker"]
    kills: Counter[str] = Counter()
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        client.declare_queue("jobs", timeout=T)
        workers = Workers(broker.url, WORKERS)
        try:
            for first in range(0, JOBS, STEP):
                client.publish_many("jobs", [b"%d" % n for n in range(first, first + STEP)])
                client.flush(timeout=T)
                victim = rng.choice(victims)
                kills[victim] += 1
                if victim == "worker":
                    workers.kill(rng.randrange(WORKERS))
                    continue
                pid = until_running(broker, victim, 0)
                with suppress(ProcessLookupError):  # it ended by itself, after its journal
                    os.kill(pid, signal.SIGKILL)
                until_running(broker, victim, pid)
            until(lambda: _left(client, "jobs") == 0, "all jobs are done", 2 * T + JOBS / 100)
        finally:
            workers.close()
        results = _shown(client, "results")
    sys.stdout.write(f"{JOBS} jobs, killed: {dict(kills)}\n")
    assert sorted(map(int, results)) == list(range(JOBS)), kills


SYNC: Final = {"mode": "sync", "downgrade_after": "2s"}


@pytest.mark.seed("001-03")
@pytest.mark.seed("001-12")
def test_a_session_goes_on_at_another_instance_and_knows_what_holds() -> None:
    """Its instance dies with a transaction that is open, after one that was committed."""
    with Instances(2, destination=SYNC, starts=False) as instances:
        a, b = started(instances)
        with connect(a.url, "pa") as at_a, at_a.session("billing", timeout=T) as session:
            publish(at_a, 4)
            consumer = session.consume("work", timeout=T)
            jobs: list[QueueMessage] = []
            while len(jobs) < 4:
                jobs += consumer.fetch(4 - len(jobs), timeout=T)
            with session.transaction(T) as done:
                session.publish("results", jobs[0].data + jobs[1].data)
                jobs[0].ack()
                jobs[1].ack()
            with connect(b.url, "pb") as at_b:
                until(lambda: _shown(at_b, "results") == [b"01"], "b shows it, too")
                until(lambda: depths(a, b) == [2, 2], "both know which jobs are done")
                left_open = session.transaction(T)
                left_open.__enter__()
                session.publish("results", b"never").wait(T)
                a.kill()
                with pytest.raises(ZBrokerError) as refused:
                    at_b.session("billing", timeout=T)
                assert refused.value.code == "session_elsewhere"
                with at_b.session("billing", force=True, timeout=T) as again:
                    assert again.last == done.id
                    takeover = ["--url", b.url, "queue", "takeover", "work", "--from", "a", "--yes"]
                    CliRunner().invoke(main, takeover, catch_exceptions=False)
                    rest = again.consume("work", timeout=T)
                    for _ in range(2):
                        [job] = rest.fetch(1, timeout=T)
                        assert job.redelivered
                        with again.transaction(T):
                            again.publish("results", job.data)
                            job.ack()
                    assert sorted(_shown(at_b, "results")) == [b"01", b"2", b"3"]
                    assert depths(b) == [0]
            session._client._publisher.abandon()


def test_operators_list_sessions_and_end_one(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        with client.session("billing", timeout=T) as session:
            with session.transaction(T):
                session.publish("invoices", b"1")
            [row] = broker.ask("/sessions")["sessions"]
            assert (row["session"], row["number"], row["messages"]) == ("billing", 1, 1)
            assert row["client"] == "session.billing"
            assert broker.ask("/sessions/end", {"session": "billing"})["attached"] == 1
            with pytest.raises(ZBrokerError) as refused, session.transaction(T):
                session.publish("invoices", b"2")
            assert refused.value.code == "session_fenced"
        assert _shown(client, "invoices") == [b"1"]
