"""zbroker/local.py: a broker of one's own, gone when its block ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import zbroker
from tests.waiting import until
from zbroker import LocalBroker, memory_notes
from zbroker.errors import ZBrokerError

pytestmark = pytest.mark.process

WAIT_S = 20.0


def test_it_serves_until_its_block_ends() -> None:
    with zbroker.LocalBroker() as broker:
        pids, data = broker.pids, broker.data_dir
        assert set(pids) == {"supervisor", "journal", "ingest", "delivery", "queues", "admin"}
        assert broker.url.startswith("tcp://127.0.0.1:")
        assert broker.status()["state"] == "ready"
        instance = int(broker.status()["instance"], 16)
        notes = memory_notes.place(memory_notes.SHARED_MEMORY, instance, "*")
        assert [*notes.parent.glob(notes.name)]
    assert not any(map(psutil.pid_exists, pids.values()))
    assert not data.exists()
    assert not [*notes.parent.glob(notes.name)], "each would stay in memory until a reboot"


def test_it_stops_when_the_users_block_raises() -> None:
    pids: dict[str, int] = {}

    def use() -> None:
        with LocalBroker() as broker:
            pids.update(broker.pids)
            raise KeyError

    with pytest.raises(KeyError):
        use()
    assert pids
    assert not any(map(psutil.pid_exists, pids.values()))


def test_a_given_data_directory_stays(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        known = broker.status()["instance"]
    with LocalBroker(tmp_path / "data") as broker:
        assert broker.status()["instance"] == known
    assert (tmp_path / "data" / "instance.json").exists()


def test_closing_twice_is_fine() -> None:
    broker = LocalBroker()
    broker.close()
    broker.close()
    with pytest.raises((OSError, ZBrokerError, urllib.error.URLError)):
        broker.status()


def test_settings_go_over_the_defaults() -> None:
    with LocalBroker(settings={"instance": {"name": "mine"}}) as broker:
        assert broker.status()["name"] == "mine"


def test_a_start_that_fails_shows_the_log() -> None:
    with pytest.raises(ZBrokerError, match=r"unknown key `journal\.colour`") as caught:
        LocalBroker(settings={"journal": {"colour": "red"}})
    assert caught.value.code == "not_started"


def test_a_second_one_on_the_same_directory_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "data") as broker:
        with pytest.raises(ZBrokerError, match="already_running") as caught:
            LocalBroker(tmp_path / "data")
        assert caught.value.code == "not_started"
        kill_and_await_restart(broker, "journal")  # it needs the sockets that all share
        with zbroker.connect(broker.url, name="publisher", timeout=WAIT_S) as client:
            client.publish("orders", b"1").wait(WAIT_S)


def kill_and_await_restart(broker: LocalBroker, process: str) -> None:
    pid = broker.pids[process]
    os.kill(pid, signal.SIGKILL)
    until(lambda: broker.pids.get(process, pid) != pid, f"{process} runs again", WAIT_S)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place))
    if os.geteuid() or subprocess.run(command, check=False).returncode:
        pytest.skip("needs root: mounts a tmpfs")
    yield place
    subprocess.run(("umount", str(place)), check=True)


def test_a_read_only_directory_is_refused_in_the_words_of_the_broker(disk: Path) -> None:
    LocalBroker(disk / "data").close()
    subprocess.run(("mount", "-o", "remount,ro", str(disk)), check=True)
    with pytest.raises(ZBrokerError, match="cannot be used: Read-only file system") as caught:
        LocalBroker(disk / "data")
    assert caught.value.code == "not_started"


def test_a_start_that_takes_too_long_leaves_nothing(tmp_path: Path) -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with pytest.raises(ZBrokerError, match="not ready after 0 s"):
        LocalBroker(tmp_path, timeout=0)
    after = {process.pid for process in psutil.Process().children(recursive=True)}
    assert after <= before


@pytest.mark.process
def test_a_forgotten_broker_ends_with_its_program() -> None:
    program = "import zbroker; b = zbroker.LocalBroker(); print(b.pids['journal'], b.data_dir)"
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    pid, data_dir = out.stdout.split()
    assert not Path(f"/proc/{pid}").exists()
    assert not Path(data_dir).exists()


def test_a_broker_ends_with_its_program_that_is_killed() -> None:
    program = (
        "import zbroker; b = zbroker.LocalBroker(); print(*b.pids.values(), flush=True); input()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        pids = [int(pid) for pid in child.stdout.readline().split()]
        assert pids
        child.kill()
    until(lambda: not any(map(psutil.pid_exists, pids)), "all of them have ended", WAIT_S)
