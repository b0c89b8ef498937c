"""kill -9 of any process, under load: nothing lost, nothing twice, by content."""

from __future__ import annotations

import os
import random
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.process.load import Follower, Load, compare, processes, until, until_running
from zbroker.client import connect
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

ROUND_ACKED = 50_000
#: all of an instance but the supervisor; three rounds kill the first three
PROCESSES = ("journal", "ingest", "delivery", "zygote", "queues", "admin")


def kill_and_wait(broker: LocalBroker, name: str) -> None:
    """Ends one process; returns when another process has its place."""
    pid = until_running(broker, name, 0)
    os.kill(pid, signal.SIGKILL)
    until_running(broker, name, pid)


def kill_rounds(rounds: int, seed: int) -> None:
    rng = random.Random(seed)
    with LocalBroker() as broker, connect(broker.url, "follower") as reader:
        load = Load(broker.url)
        follower = Follower(reader)
        try:
            load.start()
            for number in range(rounds):
                goal = load.acked() + ROUND_ACKED
                load.wait_acked(goal - ROUND_ACKED + rng.randint(1_000, ROUND_ACKED - 1_000))
                kill_and_wait(broker, PROCESSES[number % len(PROCESSES)])
                load.wait_acked(goal)
            load.finish()
            assert compare(broker, load.sent) >= rounds * ROUND_ACKED
            follower.wait_for(load.sent)
        finally:
            follower.close()
            load.close()


@pytest.mark.seed("002-05")
@pytest.mark.seed("004-05")
@pytest.mark.seed("004-31")
@pytest.mark.seed("004-36")
def test_three_kills_under_load_lose_and_double_nothing() -> None:
    kill_rounds(3, seed=1)


@pytest.mark.long
def test_twenty_kills_under_load_lose_and_double_nothing() -> None:
    kill_rounds(20, seed=2)


def test_the_kills_are_of_every_process() -> None:
    with LocalBroker() as broker:
        assert {*PROCESSES, "supervisor"} == set(processes(broker))


def test_everything_but_the_supervisor_killed_at_once_loses_and_doubles_nothing() -> None:
    """The zygote first: nothing can be started until there is another one."""
    with LocalBroker() as broker, connect(broker.url, "follower") as reader:
        load = Load(broker.url)
        follower = Follower(reader)
        try:
            load.start()
            for number in range(1, 3):
                load.wait_acked(number * 5_000)
                before = processes(broker)
                for name in ("zygote", *before):
                    if name != "supervisor":
                        with suppress(ProcessLookupError):
                            os.kill(before[name], signal.SIGKILL)
                for name in PROCESSES:
                    until_running(broker, name, before[name])
                load.wait_acked(load.acked() + 1_000)
            assert processes(broker)["supervisor"] == before["supervisor"]
            load.finish()
            compare(broker, load.sent)
            follower.wait_for(load.sent)
        finally:
            follower.close()
            load.close()


@pytest.mark.seed("001-30")
@pytest.mark.seed("004-02")
def test_a_killed_supervisor_takes_its_processes_along_and_the_next_start_recovers(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    broker = LocalBroker(data)
    try:
        pids = broker.pids
        load = Load(broker.url, publishers=2)
        try:
            load.start()
            load.wait_acked(5_000)
            os.kill(pids["supervisor"], signal.SIGKILL)
            until(
                lambda: not any(_alive(pid) for name, pid in pids.items() if name != "supervisor"),
                "rooms end",
                2.0,
            )
        finally:
            load.close()
        acked = load.acked()
    finally:
        broker.close()
    with LocalBroker(data) as again:
        assert again.status()["journal"]["persisted"] > acked


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_second_start_on_one_directory_is_refused_and_says_who_has_it(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        with pytest.raises(Exception, match=str(broker.pids["supervisor"])):
            LocalBroker(tmp_path / "data")
        assert broker.status()["state"] == "ready"


@pytest.mark.parametrize("while_running", [False, True])
def test_without_its_index_the_next_start_behaves_the_same(
    tmp_path: Path, while_running: bool
) -> None:
    data = tmp_path / "data"
    with LocalBroker(data) as broker:
        bookmarks = _publish_and_find(broker, "a")
        if while_running:
            shutil.rmtree(data / "index")
            kill_and_wait(broker, "journal")
            assert _behind(broker, bookmarks) == [4, 2, 0]
    if not while_running:
        shutil.rmtree(data / "index")
    with LocalBroker(data) as broker:
        assert _behind(broker, bookmarks) == [4, 2, 0]
        _publish_and_find(broker, "b")


def _publish_and_find(broker: LocalBroker, name: str) -> list[str]:
    with connect(broker.url, name) as client:
        receipts = [client.publish("t", b"%d" % n) for n in range(5)]
        return [receipts[n].wait(20) for n in (0, 2, 4)]


def _behind(broker: LocalBroker, bookmarks: list[str]) -> list[int]:
    """How many messages are after each bookmark."""
    with connect(broker.url) as client:
        return [len(list(client.subscribe("t", since=mark, until="now"))) for mark in bookmarks]
