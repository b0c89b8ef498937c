"""zbroker/supervisor/loop.py, children.py and zygote.py, with real processes that do little."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.supervisor.fakes import FREED_BYTES
from tests.waiting import Limit
from zbroker.paths import Paths
from zbroker.supervisor import directory

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent.parent
BOUND_S = 20.0
PROCESSES = ("journal", "ingest", "delivery", "queues", "admin")


def wait_for(claim: Callable[[], Any], what: str) -> Any:
    limit = Limit(BOUND_S)
    while not limit.is_over:
        if found := claim():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {BOUND_S} s: {what}")


class Instance:
    """A supervisor of fakes as a process of ours."""

    def __init__(self, data: Path, workers: int = 1, **environment: str) -> None:
        self.data = data
        self.data.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.supervisor.fakes", str(data), str(workers)],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def ready(self) -> str:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], BOUND_S)[0], "not ready in time"
        return self.process.stdout.readline().decode()

    def running(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data / "run" / "instance.json").read_text())
        return found

    def status(self) -> dict[str, Any]:
        url = self.running()["endpoints"]["admin"] + "/status"
        with urllib.request.urlopen(url, timeout=BOUND_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def pids(self) -> dict[str, int]:
        return {row["room"]: row["pid"] for row in self.status()["processes"]}

    def family(self, exactly: list[str] | None = None) -> list[psutil.Process]:
        """Its descendants; with `exactly`, none unless they have just these names.

        The zygote forks twice, and reaps the process between when it gets to it.
        """
        found = psutil.Process(self.process.pid).children(recursive=True)
        with suppress(psutil.NoSuchProcess):
            if exactly is None or sorted(process.name() for process in found) == exactly:
                return found
        return []

    def end(self) -> tuple[int, str]:
        """Its exit code and log, once it has ended by itself."""
        _, log = self.process.communicate(timeout=BOUND_S)
        return self.process.returncode, log.decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=BOUND_S)
        if instance := directory.read_identity(self.data):
            directory.remove_sockets(Paths(self.data, self.data, self.data, instance))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "data"
    place.mkdir()
    return place


@pytest.fixture
def instance(data: Path) -> Iterator[Instance]:
    instance = Instance(data)
    yield instance
    instance.close()


def all_gone(family: list[psutil.Process]) -> bool:
    """True once none of them runs; a zombie waits only for whoever adopted it."""

    def has_ended(process: psutil.Process) -> bool:
        try:
            return bool(process.status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    return bool(wait_for(lambda: all(map(has_ended, family)), "all processes have ended"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_everything_cleanly(instance: Instance, number: int) -> None:
    assert instance.ready() == f"ready {instance.running()['url']}\n"
    everybody = [*sorted(f"zbroker {name}" for name in PROCESSES), "zbroker zygote"]
    family = wait_for(lambda: instance.family(exactly=everybody), "a process of each name")
    instance.process.send_signal(number)
    status, log = instance.end()
    assert status == 0, log
    assert all_gone(family)
    assert not (instance.data / "run" / "instance.json").exists()


def test_status_tells_of_every_process(instance: Instance) -> None:
    instance.ready()
    found = instance.status()
    assert found["state"] == "ready"
    processes = {row["room"]: row["state"] for row in found["processes"]}
    known = ["supervisor", "journal", "ingest", "delivery", "queues", "admin"]
    assert processes == dict.fromkeys(known, "ready")
    assert instance.pids()["supervisor"] == instance.process.pid


def test_processes_keep_freed_memory(instance: Instance) -> None:
    instance.ready()
    kept = wait_for(lambda: instance.status()["journal"].get("kept_bytes"), "a beat")
    assert kept >= FREED_BYTES


def test_nothing_outlives_a_killed_supervisor(instance: Instance) -> None:
    instance.ready()
    family = instance.family()
    instance.process.kill()
    assert all_gone(family)


def test_the_next_start_goes_on_after_a_kill(instance: Instance, data: Path) -> None:
    instance.ready()
    known = instance.running()["instance"]
    instance.process.kill()
    instance.process.wait(BOUND_S)
    second = Instance(data)
    try:
        assert second.ready()
        assert second.running()["instance"] == known
    finally:
        second.close()


def zygote_of(instance: Instance) -> psutil.Process | None:
    for child in psutil.Process(instance.process.pid).children():
        with suppress(psutil.NoSuchProcess):
            if child.name() == "zbroker zygote" and child.status() != psutil.STATUS_ZOMBIE:
                return child
    return None


def test_a_killed_zygote_costs_no_process(instance: Instance) -> None:
    instance.ready()
    before = instance.pids()
    for _ in range(3):
        zygote = wait_for(lambda: zygote_of(instance), "a zygote")
        zygote.kill()
        wait_for(lambda old=zygote: zygote_of(instance) not in (None, old), "another zygote")
    assert instance.pids() == before
    os.kill(before["ingest"], signal.SIGKILL)
    wait_for(lambda: instance.pids()["ingest"] not in (0, before["ingest"]), "ingest is back")
    instance.process.terminate()
    status, log = instance.end()
    assert status == 0
    assert log.count("the zygote, which starts processes, has ended") == 3


def test_everything_killed_at_once_comes_back(instance: Instance) -> None:
    instance.ready()
    before = instance.pids()
    for process in instance.family():
        process.kill()

    def is_back() -> bool:
        with suppress(OSError):
            pids = instance.pids()
            return all(pids[name] not in (0, before[name]) for name in pids if name != "supervisor")
        return False

    wait_for(is_back, "every process has another process")
    wait_for(lambda: instance.status()["state"] == "ready", "it serves")
    assert instance.process.poll() is None


def test_a_zygote_killed_right_after_a_process_leaves_one_process_of_it(instance: Instance) -> None:
    """Whatever the zygote was about to do: no room is there twice, and none is missing."""
    instance.ready()
    for pause_ms in (95, 100, 105, 110):  # around the first back-off
        pid = instance.pids()["queues"]
        os.kill(pid, signal.SIGKILL)
        threading.Event().wait(pause_ms / 1_000)
        if zygote := zygote_of(instance):
            zygote.kill()
        wait_for(lambda old=pid: instance.pids()["queues"] not in (0, old), "it is back")
        wait_for(lambda: instance.status()["state"] == "ready", "it serves")
        names = Counter(process.name() for process in instance.family())
        assert {names[f"zbroker {name}"] for name in instance.pids() if name != "supervisor"} == {1}


def test_a_zygote_that_cannot_run_ends_the_start(data: Path) -> None:
    (data / "sitecustomize.py").write_text(
        "import os\nos.setsid = lambda: os._exit(3)\n"  # the first thing of its own that it does
    )
    instance = Instance(data, PYTHONPATH=f"{data}:{ROOT}")
    try:
        status, log = instance.end()
        assert status == 70
        assert "the zygote ends before it starts anything" in log
    finally:
        instance.close()


def test_a_killed_process_comes_back_on_its_port(instance: Instance) -> None:
    instance.ready()
    before = instance.pids()
    os.kill(before["ingest"], signal.SIGKILL)

    def is_back() -> bool:
        rows = {row["room"]: row for row in instance.status()["processes"]}
        return bool(rows["ingest"]["restarts"] == 1 and rows["ingest"]["state"] == "ready")

    wait_for(is_back, "ingest is back")
    after = instance.pids()
    assert after.pop("ingest") != before.pop("ingest")
    assert after == before
    url = instance.running()["url"]
    wait_for(lambda: instance.status()["ingest"]["listens"] == url, "its port is kept")


def test_each_delivery_worker_is_a_process_with_a_listener(data: Path) -> None:
    instance = Instance(data, workers=3)
    try:
        instance.ready()
        endpoints = instance.running()["endpoints"]
        assert list(endpoints) == [
            "ingest", "delivery", "delivery-2", "delivery-3", "queues", "admin",
        ]  # fmt: skip
        assert len(set(endpoints.values())) == 6
        before = instance.pids()
        assert list(before)[2:6] == ["ingest", "delivery", "delivery-2", "delivery-3"]
        os.kill(before["delivery-2"], signal.SIGKILL)
        wait_for(lambda: instance.pids()["delivery-2"] not in (0, before["delivery-2"]), "again")
        wait_for(lambda: instance.status()["state"] == "ready", "it is back")
        after = instance.pids()
        assert {name for name in after if after[name] != before[name]} == {"delivery-2"}
        assert instance.running()["endpoints"] == endpoints
        instance.process.terminate()
        assert instance.end()[0] == 0
    finally:
        instance.close()


@pytest.mark.parametrize(
    ("name", "does", "status"),
    [
        ("ingest", "wrong config", 78),
        ("journal", "wrong config", 78),
        ("journal", "bad storage", 74),
    ],
)
def test_what_cannot_be_helped_ends_the_start(
    data: Path, name: str, does: str, status: int
) -> None:
    (data / f"{name}.does").write_text(does)
    instance = Instance(data)
    try:
        found, log = instance.end()
        assert found == status
        assert "on purpose" in log
    finally:
        instance.close()


def test_a_process_that_ignores_its_stop_is_killed(data: Path) -> None:
    (data / "journal.does").write_text("ignores stop")
    instance = Instance(data)
    try:
        instance.ready()
        family = instance.family()
        instance.process.terminate()
        status, log = instance.end()
        assert status == 0
        assert "journal ended with signal 9 while stopping" in log
        assert all_gone(family)
    finally:
        instance.close()


def test_a_loss_is_accepted_at_the_first_start_only(data: Path) -> None:
    (data / "journal.does").write_text("accept")
    instance = Instance(data)
    accepted = data / "accepted"
    try:
        instance.ready()
        assert accepted.read_text() == "True"
        os.kill(instance.pids()["journal"], signal.SIGKILL)
        wait_for(lambda: accepted.read_text() == "False", "the journal is back")
    finally:
        instance.close()


def test_a_stranger_on_the_supervisors_socket_is_ignored(instance: Instance) -> None:
    import zmq

    instance.ready()
    place = (instance.data / "run" / "sockets").read_text().strip()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        dealer = context.socket(zmq.DEALER)
        dealer.connect(f"ipc://{place}/supervisor")
        dealer.send(b"\xff\xff")
        assert instance.status()["state"] == "ready"
    finally:
        context.destroy(linger=100)


# -- the admin's listener


def _refused(instance: Instance, path: str, **headers: str) -> tuple[int, str]:
    url = instance.running()["endpoints"]["admin"] + path
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=BOUND_S)
    with caught.value as error:
        return error.code, json.load(error)["code"]


def test_the_admin_answers_only_what_it_has_to_loopback_names(instance: Instance) -> None:
    instance.ready()
    assert _refused(instance, "/nothing") == (404, "not_found")
    assert _refused(instance, "/status", Host="evil.example") == (403, "forbidden")


def test_a_silent_peer_does_not_keep_the_admin_from_answering(instance: Instance) -> None:
    instance.ready()
    host, port = instance.running()["endpoints"]["admin"].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), BOUND_S):
        assert instance.status()["state"] == "ready"
