"""Distributed transactions with a real broker and database: both or neither, whoever dies."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest
from click.testing import CliRunner

import zbroker
from tests.process.branch_worker import settle
from tests.process.decision_store import Database, DecisionStore, database
from tests.process.instances import Instances, Peer
from tests.process.load import until, until_running
from tests.process.test_replicated_queues import depths, started
from tests.process.test_replicated_queues import publish as publish_jobs
from tests.process.test_transactions import SYNC
from zbroker.cli.admin_main import main
from zbroker.client import Client, connect
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.data_manager import join
from zbroker.client.questions import ask
from zbroker.client.session import Session
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker
from zbroker.wire.branches import Branch, BranchDecided, BranchList, DecideBranch, ListBranches
from zbroker.xids import Xid

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

T: Final = 30.0
XID: Final = Xid(1, "payment", "broker")


def shown(client: Client, topic: str) -> list[bytes]:
    with client.subscribe(topic, since="epoch", until="now") as all_of_it:
        return [message.data for message in all_of_it]


def left(client: Client, queue: str) -> int:
    return client.declare_queue(queue, passive=True, timeout=T).messages


def until_left(client: Client, queue: str, count: int) -> None:
    """A commit is answered when it is durable; the queue reads it in the log a moment later."""
    until(lambda: left(client, queue) == count, f"{count} messages to be left in {queue}")


def refused(call: Any, *given: object) -> str:
    with pytest.raises(ZBrokerError) as caught:
        call(*given)
    return caught.value.code


def prepare(session: Session, order: QueueMessage, xid: Xid = XID) -> None:
    """An invoice for an order."""
    session.tpc_begin(xid)
    session.publish("invoices", b"for " + order.data)
    order.ack()
    session.tpc_prepare(T)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[Client]:
    """With two orders in a queue."""
    with connect(broker.url, "a") as connected:
        connected.declare_queue("orders", timeout=T)
        connected.publish_many("orders", [b"1", b"2"]).wait(T)
        yield connected


@pytest.mark.seed("001-64")
@pytest.mark.seed("003-15")
def test_what_is_prepared_waits_for_its_decision(client: Client) -> None:
    with client.session("billing") as session, session.consume("orders") as consumer:
        [first] = consumer.fetch(1, timeout=T)
        prepare(session, first)
        [branch] = session.tpc_recover(T)
        assert (branch.xid, branch.state, branch.session) == (XID, "prepared", "billing")
        assert (branch.messages, branch.acknowledged) == (1, 1)
        assert shown(client, "invoices") == []
        until_left(client, "orders", 2)
        done = session.tpc_commit()
        assert done is not None
        assert (done.messages, done.acknowledged, done.mixed) == (1, 1, False)
        assert shown(client, "invoices") == [b"for 1"]
        until_left(client, "orders", 1)
        assert session.tpc_recover(T) == []
        [second] = consumer.fetch(1, timeout=T)
        prepare(session, second)
        session.tpc_rollback()
        [again] = consumer.fetch(1, timeout=T)
        assert (again.data, again.redelivered) == (b"2", True)
        assert shown(client, "invoices") == [b"for 1"]
        session.tpc_begin(XID)  # it is free again
        again.ack()
        done = session.tpc_commit()  # in one phase
        assert done is not None
        assert done.acknowledged == 1
        until_left(client, "orders", 0)


@pytest.mark.parametrize("restart", ["", "queues", "journal"])
@pytest.mark.parametrize("session_timeout", [0, 60], ids=["", "a session that is kept"])
def test_another_program_decides_by_the_xid(
    broker: LocalBroker, client: Client, session_timeout: int, restart: str
) -> None:
    """Also after a restart of processes; what is locked is given to no consumer meanwhile."""
    with client.session("billing", session_timeout=session_timeout) as session:
        consumer = session.consume("orders")
        prepare(session, consumer.fetch(1, timeout=T)[0])
        if restart:
            kill_process(broker, restart)
    with connect(broker.url, "b") as other, other.session("recovery") as session:
        with session.consume("orders") as consumer:
            assert [message.data for message in consumer.fetch(2, timeout=T)] == [b"2"]
            assert consumer.fetch(1, timeout=0.5) == []
        session.tpc_begin(XID)
        assert refused(session.tpc_prepare) == "branch_exists"
        [branch] = session.tpc_recover(T)
        session.tpc_commit(branch)
        assert refused(session.tpc_commit, branch) == "unknown_branch"
    assert shown(client, "invoices") == [b"for 1"]
    until_left(client, "orders", 1)


def test_a_transaction_takes_no_message_that_is_not_held(client: Client) -> None:
    with client.session("billing") as session:
        with session.consume("orders") as consumer:
            [first] = consumer.fetch(1, timeout=T)
            first.release()
            consumer.flush(T)
            session.tpc_begin(XID)
            session.publish("invoices", b"never")
            first.ack()
            assert refused(session.tpc_prepare) == "transaction_aborted"
        session.tpc_rollback()
        assert session.tpc_recover(T) == []
    assert shown(client, "invoices") == []
    until_left(client, "orders", 2)


def test_the_same_in_an_event_loop(broker: LocalBroker, client: Client) -> None:
    async def run() -> None:
        async with (
            zbroker.aio.connect(broker.url, name="b") as other,
            await other.session("billing") as session,
        ):
            consumer = await session.consume("orders", timeout=T)
            [message] = await consumer.fetch(1, timeout=T)
            await session.tpc_begin(session.xid(*XID))
            session.publish("invoices", b"one")
            message.ack()
            await session.tpc_prepare()
            assert len(await session.tpc_recover()) == 1
            assert await session.tpc_commit() is not None

    asyncio.run(run())
    assert shown(client, "invoices") == [b"one"]
    until_left(client, "orders", 1)


def test_a_prepare_that_is_cancelled_is_rolled_back(broker: LocalBroker, client: Client) -> None:
    """It may be on its way, in a thread of the event loop."""

    async def run() -> None:
        async with (
            zbroker.aio.connect(broker.url, name="b") as other,
            await other.session("billing") as session,
        ):
            consumer = await session.consume("orders", timeout=T)
            for number in range(5):
                [message] = await consumer.fetch(1, timeout=T)
                await session.tpc_begin(session.xid(1, f"payment {number}"))
                receipt = session.publish("invoices", b"never")
                await receipt
                message.ack()
                task = asyncio.create_task(session.tpc_prepare())
                await asyncio.wait([task], timeout=number / 1_000)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                await session.tpc_rollback()
                assert await session.tpc_recover() == []

    asyncio.run(run())
    assert shown(client, "invoices") == []
    until_left(client, "orders", 2)


@pytest.mark.parametrize("fails", ["", "tpc_vote"])
def test_other_data_managers_take_part(client: Client, fails: str) -> None:
    transaction = pytest.importorskip("transaction", reason="needs package transaction")
    from tests.client.test_data_manager import Database as OtherManager

    manager, log = transaction.TransactionManager(explicit=True), []  # type: ignore[var-annotated]
    with client.session("billing") as session, session.consume("orders") as consumer:
        [first] = consumer.fetch(1, timeout=T)
        manager.begin()
        join(session, manager=manager)
        manager.get().join(OtherManager(log, fails))
        session.publish("invoices", b"for 1")
        first.ack()
        with suppress(RuntimeError):  # it votes no
            manager.commit()
        assert "tpc_vote" in log
        assert session.tpc_recover(T) == []
    assert shown(client, "invoices") == ([] if fails else [b"for 1"])
    until_left(client, "orders", 2 if fails else 1)


@pytest.mark.seed("001-64")
def test_what_an_operator_has_decided_is_kept_until_it_is_forgotten(client: Client) -> None:
    with client.session("billing") as session, session.consume("orders") as consumer:
        prepare(session, consumer.fetch(1, timeout=T)[0])
        decide(client, DecideBranch(XID, "commit", heuristic=True))
        assert shown(client, "invoices") == [b"for 1"]
        assert refused(session.tpc_rollback) == "branch_decided"
        session.tpc_commit(XID)  # it is what was decided
        [branch] = session.tpc_recover(T)
        assert branch.state == "committed"
        session.tpc_forget(branch)
        assert session.tpc_recover(T) == []
    until_left(client, "orders", 1)


def decide(client: Client, command: DecideBranch) -> BranchDecided:
    """As an operator does."""
    answer = ask(client._queues, T, "decide", lambda to: to.ask(command))
    assert isinstance(answer, BranchDecided)
    return answer


# -- on several instances -------------------------------------------------------------------------


def listed(client: Client) -> list[Branch]:
    """All that an instance knows."""
    answer = ask(client._queues, T, "list", lambda to: to.ask(ListBranches()))
    assert isinstance(answer, BranchList)
    return answer.branches


@pytest.mark.seed("001-65")
def test_each_instance_knows_what_is_prepared_and_one_decides() -> None:
    with Instances(2, destination=SYNC, starts=False) as instances:
        a, b = started(instances)
        with connect(a.url, "pa") as at_a, connect(b.url, "pb") as at_b:
            publish_jobs(at_a, 2)
            with at_a.session("billing", timeout=T) as session:
                consumer = session.consume("work", timeout=T)
                [first] = consumer.fetch(1, timeout=T)
                prepare(session, first)
                until(lambda: [each.here for each in listed(at_b)] == [False], "b knows it")
                with at_b.session("recovery", timeout=T) as elsewhere:
                    assert elsewhere.tpc_recover(T) == []
                    assert refused(elsewhere.tpc_commit, XID) == "branch_elsewhere"
                    assert refused(elsewhere.tpc_rollback, XID) == "branch_elsewhere"
                assert depths(a, b) == [2, 2]
                session.tpc_commit()
            for each in (at_a, at_b):
                until(lambda each=each: shown(each, "invoices") == [b"for 0"], "it is shown")
            until(lambda: depths(a, b) == [1, 1], "both know that it is done")
            until(lambda: not listed(at_b), "b knows that it is over")


@pytest.mark.seed("001-65")
def test_another_instance_rolls_back_what_the_one_that_is_gone_has_prepared() -> None:
    with Instances(2, destination=SYNC, starts=False) as instances:
        a, b = started(instances)
        with connect(a.url, "pa") as at_a, connect(b.url, "pb") as at_b:
            publish_jobs(at_a, 2)
            session = at_a.session("billing", timeout=T)
            consumer = session.consume("work", timeout=T)
            [first] = consumer.fetch(1, timeout=T)
            prepare(session, first)
            until(lambda: len(listed(at_b)) == 1, "b knows it")
            a.kill()
            with at_b.session("recovery", timeout=T) as elsewhere:
                assert refused(elsewhere.tpc_commit, XID) == "branch_elsewhere"
            decide(at_b, DecideBranch(XID, "rollback", force=True))
            assert [each.state for each in listed(at_b)] == ["rolled_back"]
            decide(at_b, DecideBranch(XID, "forget", force=True))
            assert listed(at_b) == []
            takeover = ["--url", b.url, "queue", "takeover", "work", "--from", "a", "--yes"]
            CliRunner().invoke(main, takeover, catch_exceptions=False)
            with at_b.consume("work", timeout=T) as consumer:
                jobs: list[QueueMessage] = []
                while len(jobs) < 2:
                    jobs += consumer.fetch(2 - len(jobs), timeout=T)
                assert sorted(job.data for job in jobs) == [b"0", b"1"]
            assert shown(at_b, "invoices") == []
            session._client._publisher.abandon()
            at_a._publisher.abandon()


# -- whoever dies ---------------------------------------------------------------------------------

OWN_KILLS: Final = 8


def transactions(session: Session, over: Event) -> list[int]:
    """One after the other, until it is `over`: those of which it was said that they hold."""
    held: list[int] = []
    for number in count():
        if over.is_set():
            return held
        session.tpc_begin(Xid(1, f"payment {number}"))
        session.publish("invoices", b"%d" % number)
        try:
            session.tpc_prepare(T)
        except ZBrokerError as error:
            if error.code != "transaction_aborted":
                raise
            continue
        if number % 4 == 3:
            session.tpc_rollback(timeout=T)
        else:
            session.tpc_commit(timeout=T)
            held.append(number)
    raise AssertionError("numbers do not end")


def test_a_session_goes_on_and_knows_what_holds(broker: LocalBroker, client: Client) -> None:
    """Processes are killed while they have a prepare, or a decision, to answer."""
    over = Event()
    with client.session("billing", timeout=T) as session, ThreadPoolExecutor(1) as pool:
        running = pool.submit(transactions, session, over)
        try:
            for number in range(OWN_KILLS):
                seen = len(shown(client, "invoices"))
                until(
                    lambda seen=seen: running.done() or len(shown(client, "invoices")) > seen,
                    "the session goes on",
                )
                kill_process(broker, ("queues", "journal")[number % 2])
        finally:
            over.set()
        held = running.result(2 * T)
        assert session.tpc_recover(T) == []
    assert sorted(map(int, shown(client, "invoices"))) == held


def kill_process(broker: LocalBroker, name: str) -> None:
    pid = until_running(broker, name, 0)
    with suppress(ProcessLookupError):  # it ended by itself, after its journal
        os.kill(pid, signal.SIGKILL)
    until_running(broker, name, pid)


WORKERS: Final = 2
STEP: Final = 20  # jobs published between two kills
BACKLOG: Final = 100  # jobs at most when it is killed: so workers are at work
LEASE: Final = "2s"  # of what a dead one had
KILLS: Final = 6
MANY_KILLS: Final = 200
CHANCE: Final = 0.12  # of a worker to die by itself, at each of its steps
VICTIMS: Final = ("journal", "queues", "ingest", "instance", "worker", "database")


class Crowd:
    """Workers, each of which is started again when it has ended."""

    def __init__(self, url: str, database_url: str) -> None:
        self._arguments = url, database_url
        self._running = {f"worker-{n}": self._start(f"worker-{n}") for n in range(WORKERS)}

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        url, database_url = self._arguments
        module = ["-m", "tests.process.branch_worker"]
        return subprocess.Popen([sys.executable, *module, url, name, database_url, str(CHANCE)])

    def kill(self, rng: random.Random) -> None:
        self._running[rng.choice(sorted(self._running))].kill()

    def revive(self) -> None:
        for name, worker in self._running.items():
            if worker.poll() is not None:
                assert worker.returncode == -9, f"{name} failed"
                self._running[name] = self._start(name)

    def close(self) -> None:
        for worker in self._running.values():
            worker.kill()
            worker.wait(T)


class World:
    """An instance, a database and workers. kills: how many of each there were."""

    def __init__(self, kind: str, directory: Path, seed: int) -> None:
        self.rng, self.kills = random.Random(seed), Counter[str]()
        self.peer = Peer("a", directory / "data")
        listen = {name: url for name, url in self.peer.listen.items() if name != "replication"}
        self.peer.settings = {"listen": listen}
        self.database: Database = database(kind, directory)
        self.crowd: Crowd | None = None
        try:
            self.peer.start()
            self.crowd = Crowd(self.peer.url, self.database.url)
        except BaseException:
            self.close()
            raise

    def kill(self) -> None:
        """Whatever it is, it goes on at once."""
        victim = self.rng.choice(VICTIMS)
        self.kills[victim] += 1
        if victim == "database":
            self.database.kill()
            self.database.start()
        elif victim == "worker":
            self.workers.kill(self.rng)
        elif victim == "instance":
            self.peer.kill()
            self.peer.start()
        else:
            with suppress(ProcessLookupError):  # it ended by itself, after its journal
                self.peer.kill_process(victim)
        self.workers.revive()

    @property
    def workers(self) -> Crowd:
        assert self.crowd is not None
        return self.crowd

    def close(self) -> None:
        if self.crowd is not None:
            self.crowd.close()
        self.peer.close()
        self.database.close()


def publish(client: Client, first: int) -> None:
    client.publish_many("jobs", [b"%d" % n for n in range(first, first + STEP)])
    client.flush(timeout=2 * T)


def is_down_to(world: World, client: Client, jobs: int) -> bool:
    world.workers.revive()
    return left(client, "jobs") <= jobs


def recover(client: Client, url: str) -> None:
    """As the last one does it who is left."""
    with client.session("recovery", timeout=T) as session, DecisionStore(url) as store:
        for branch in session.tpc_recover(T):
            settle(session, store, branch.xid)
        assert session.tpc_recover(T) == []


def check_kills(kind: str, directory: Path, kills: int, seed: int) -> None:
    """Rows = messages = jobs, each once, and nothing is left."""
    world, jobs = World(kind, directory, seed), kills * STEP
    try:
        with connect(world.peer.url, "publisher", timeout=2 * T) as client:
            client.declare_queue("jobs", lease=LEASE, timeout=T)
            for first in range(0, jobs, STEP):
                publish(client, first)
                until(lambda: is_down_to(world, client, BACKLOG), "workers to work", 2 * T)
                world.kill()
            until(lambda: is_down_to(world, client, 0), f"all jobs are done: {world.kills}", 4 * T)
            world.workers.close()
            recover(client, world.database.url)
            results, empty = shown(client, "results"), left(client, "jobs")
        with DecisionStore(world.database.url) as store:
            rows = store.jobs()
    finally:
        world.close()
    assert rows == list(range(jobs)), world.kills
    assert sorted(map(int, results)) == rows, world.kills
    assert empty == 0


KINDS: Final = ("sqlite3", "postgresql")


@pytest.fixture(params=KINDS)
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[DecisionStore]]:
    """Two connections to one database."""
    made = database(request.param, tmp_path)
    try:
        with DecisionStore(made.url) as one, DecisionStore(made.url) as other:
            yield [one, other]
    finally:
        made.close()


def test_recovery_waits_for_what_is_on_its_way_in_the_database(
    stores: list[DecisionStore],
) -> None:
    """A plain SELECT would not see it, and the broker would roll back what the database commits."""
    dying, recovering = stores
    dying.insert("x", [1])
    with ThreadPoolExecutor(1) as pool:
        # sqlite3 holds a connection to its thread
        settled = pool.submit(settle_alone, recovering.url, "x")
        assert not wait([settled], 0.5).done
        dying.commit()
        assert settled.result(T) is True
    assert recovering.jobs() == [1]


def test_what_comes_after_recovery_fails_in_the_database(stores: list[DecisionStore]) -> None:
    late, recovering = stores
    assert recovering.settle("x") is False
    with pytest.raises(late.errors):
        late.insert("x", [1])
    late.close()
    assert recovering.jobs() == []


def settle_alone(url: str, xid: str) -> bool:
    with DecisionStore(url) as store:
        return store.settle(xid)


@pytest.mark.seed("001-64")
def test_each_job_has_one_row_and_one_message_whatever_is_killed(tmp_path: Path) -> None:
    """Processes of the broker, all of it, and workers in the middle of their transactions."""
    check_kills("sqlite3", tmp_path, KILLS, 7)


@pytest.mark.long
def test_the_same_with_a_database_that_is_killed(tmp_path: Path) -> None:
    check_kills("postgresql", tmp_path, KILLS, 8)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_for_many_kills(kind: str, tmp_path: Path) -> None:
    """ZB_KILLS: how many. ZB_FIRST_SEED: of what is killed when."""
    kills = int(os.environ.get("ZB_KILLS", MANY_KILLS))
    check_kills(kind, tmp_path, kills, int(os.environ.get("ZB_FIRST_SEED", "1")))
