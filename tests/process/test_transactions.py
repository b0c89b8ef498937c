"""Sessions with transactions with a real broker: all or nothing, whoever dies."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections.abc import Callable
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
JOBS = 400
WORKERS = 2


def _connect(broker: LocalBroker, name: str) -> Client:
    return zbroker.connect(broker.url, name=name)


def _shown(client: Client, topic: str) -> list[bytes]:
    with client.subscribe(topic, since="epoch", until="now") as all_of_it:
        return [message.data for message in all_of_it]


def _left(client: Client, queue: str) -> int:
    return client.declare_queue(queue, passive=True, timeout=T).messages


def _invoice(session: Session, message: QueueMessage, then: Callable[[], None]) -> None:
    with session.transaction():
        session.publish("invoices", b"never").wait(T)
        message.ack()
        then()


def _fail() -> None:
    raise RuntimeError


@pytest.mark.seed("001-62")
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
                assert _left(client, "orders") == 3
            assert done.committed is not None
            assert (done.committed.messages, done.committed.acknowledged) == (2, 2)
            assert _shown(client, "invoices") == [b"for 1", b"for 2"]
            assert _left(client, "orders") == 1
            with pytest.raises(RuntimeError):
                _invoice(session, third, _fail)
            [again] = consumer.fetch(1, timeout=T)
            assert (again.data, again.deliveries) == (b"3", 2)
            session.publish("notes", b"outside of a transaction").wait(T)
            with session.transaction():
                again.ack()
        assert _shown(client, "invoices") == [b"for 1", b"for 2"]
        assert _shown(client, "notes") == [b"outside of a transaction"]
        assert _left(client, "orders") == 0


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
        assert _left(client, "orders") == 1


class _Worker(threading.Thread):
    """Takes jobs and publishes their results, each in one transaction, until there are none."""

    def __init__(self, url: str, number: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.url, self.number, self.over = url, number, over
        self.aborted = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with (
                zbroker.connect(self.url, f"worker-{self.number}") as client,
                client.session(f"worker-{self.number}", timeout=T) as session,
                session.consume("jobs", backlog=8, timeout=T) as consumer,
            ):
                while not self.over.is_set():
                    self._work(session, consumer.fetch(5, timeout=0.5))
        except BaseException as error:
            self.error = error

    def _work(self, session: Session, messages: list[QueueMessage]) -> None:
        if not messages:
            return
        try:
            with session.transaction(timeout=T):
                for message in messages:
                    session.publish("results", message.data)
                    message.ack()
        except ZBrokerError as error:
            if error.code != "transaction_aborted":
                raise
            self.aborted += 1


def test_each_job_has_one_result_whatever_is_killed(tmp_path: Path) -> None:
    """Processes of the broker die while workers take jobs and publish results."""
    rng = random.Random(7)
    over = threading.Event()
    with LocalBroker(tmp_path / "data") as broker, _connect(broker, "a") as client:
        client.declare_queue("jobs", timeout=T)
        workers = [_Worker(broker.url, number, over) for number in range(WORKERS)]
        for worker in workers:
            worker.start()
        sent = 0
        while sent < JOBS:
            client.publish_many("jobs", [b"%d" % n for n in range(sent, sent + 50)])
            sent += 50
            client.flush(timeout=T)
            victim = rng.choice(["journal", "queues", "ingest"])
            pid = until_running(broker, victim, 0)
            os.kill(pid, signal.SIGKILL)
            until_running(broker, victim, pid)
        deadline = threading.Event()
        for _ in range(600):
            if _left(client, "jobs") == 0 or any(one.error for one in workers):
                break
            deadline.wait(0.1)
        over.set()
        for worker in workers:
            worker.join(T)
        assert [one.error for one in workers] == [None] * WORKERS
        assert _left(client, "jobs") == 0
        found = _shown(client, "results")
        assert sorted(map(int, found)) == list(range(JOBS))


SYNC: Final = {"mode": "sync", "downgrade_after": "2s"}


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
                with pytest.raises(ZBrokerError) as refused:
                    at_b.session("billing", timeout=T)
                assert refused.value.code == "session_elsewhere"
                left_open = session.transaction(T)
                left_open.__enter__()
                session.publish("results", b"never").wait(T)
                a.kill()
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
