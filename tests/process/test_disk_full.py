"""A journal on a disk that fills up: publishers are refused before the edge, the rest goes on."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.process.load import read_all, until
from zbroker.client import Client, connect
from zbroker.control.target import Admin
from zbroker.errors import ZBrokerError
from zbroker.ids import publisher_id
from zbroker.limits import KIB, MIB
from zbroker.local import SEGMENT_SIZE, LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

DISK: Final = 64 * MIB
SEGMENT: Final = int(SEGMENT_SIZE.removesuffix("MiB")) * MIB
BODY: Final = 20 * KIB
RESUME_S: Final = 5.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts a tmpfs")
    command = ("mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place))
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs root: may not mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(("umount", "-l", str(place)), check=True)


class Publisher:
    """Publishes numbers until it is asked to stop; each message has BODY bytes."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.sent = 0
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                data = b"x:%d:" % self.sent
                with suppress(TimeoutError):
                    self._publish(data.ljust(BODY, b"."))
        except BaseException as error:
            self.errors.append(error)

    def _publish(self, data: bytes) -> None:
        try:
            self.client.publish("t", data, timeout=0.1)
        except ZBrokerError as error:
            if error.code != "store_full":
                raise
        else:
            self.sent += 1

    @property
    def acked(self) -> int:
        return self.sent - self.client.unpersisted

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self.errors, self.errors


def accepting(broker: LocalBroker) -> bool:
    return bool(broker.status()["journal"]["accepting"])


def free_bytes(disk: Path) -> int:
    state = os.statvfs(disk)
    return state.f_bavail * state.f_frsize


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("preallocate", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_full_disk_refuses_publishers_only_until_there_is_space_again(
    tmp_path: Path, disk: Path, preallocate: bool, everything: bool
) -> None:
    """`everything`: index and the rest are on the full disk, too."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(20 * MIB))
    data = disk / "data" if everything else tmp_path / "data"
    settings: dict[str, dict[str, str | int | bool]] = {
        "journal": {"directory": "" if everything else str(disk), "preallocate": preallocate},
        "log": {"file": str(disk / "log") if everything else ""},
    }
    with LocalBroker(data, settings=settings) as broker, connect(broker.url, "p") as client:
        pids = broker.pids
        publisher = Publisher(client)
        try:
            until(lambda: not accepting(broker), "publishers are refused", 60)
            until(lambda: publisher.client.unpersisted > 0, "something waits")
            acked = _settled(publisher)
            assert free_bytes(disk) < SEGMENT, "the last possible segment is in use"
            assert acked * BODY > DISK - 20 * MIB - 3 * SEGMENT
            _the_rest_goes_on(broker, acked)
            ballast.unlink()
            begun = time.monotonic()
            until(lambda: publisher.acked > acked, "publishing resumes", RESUME_S)
            assert time.monotonic() - begun <= RESUME_S
            assert not publisher.errors
            until(lambda: not accepting(broker), "the disk is full again", 60)
            # nothing that was reported in the meantime ended anybody
            assert broker.pids == pids
        finally:
            publisher.stop()
        client.close(flush=False)
    _once_and_in_order(disk / "data/journal" if everything else disk, publisher)


def _settled(publisher: Publisher) -> int:
    """What is acknowledged once nothing more is."""
    acked = -1
    while acked != publisher.acked:
        acked = publisher.acked
        time.sleep(1.5)  # longer than the client waits between two attempts
    return acked


def _the_rest_goes_on(broker: LocalBroker, acked: int) -> None:
    with connect(broker.url, "reader") as reader:
        seen = sum(1 for _ in reader.subscribe("t", since="epoch", until="now"))
        assert seen >= acked
        with pytest.raises(ZBrokerError, match=r"timeout|disk_full"):
            reader.publish("t", b"x:0:".ljust(2 * MIB)).wait(2)  # it may land later
        reader.close(flush=False)


def _once_and_in_order(journal: Path, publisher: Publisher) -> None:
    """Every number once, in order, at least those that were acknowledged."""
    from zbroker.log.reader import Log

    log = Log(journal)
    end = log.end()
    log.close()
    numbers = read_all(journal, end)[publisher_id("p")]
    assert numbers == list(range(len(numbers)))
    assert publisher.acked <= len(numbers) <= publisher.sent


def test_after_a_start_on_a_full_disk_what_is_there_is_served(tmp_path: Path, disk: Path) -> None:
    settings = {"journal": {"directory": str(disk)}}
    data = tmp_path / "data"
    with LocalBroker(data, settings=settings) as broker, connect(broker.url, "p") as client:
        publisher = Publisher(client)
        try:
            until(lambda: not accepting(broker), "publishers are refused", 60)
            acked = _settled(publisher)
        finally:
            publisher.stop()
        client.close(flush=False)
    rest = free_bytes(disk)
    (disk / "other").write_bytes(bytes(max(rest - 64 * KIB, 0)))  # what an earlier spare took
    with LocalBroker(data, settings=settings) as broker:
        _the_rest_goes_on(broker, acked)
        assert not accepting(broker)
        (disk / "other").unlink()
        with connect(broker.url, "later") as client:
            client.publish("t", b"x:0:").wait(RESUME_S)


def test_removing_segments_ends_a_full_disk(tmp_path: Path, disk: Path) -> None:
    settings = {"journal": {"directory": str(disk)}}
    with (
        LocalBroker(tmp_path / "data", settings=settings) as broker,
        connect(broker.url, "p") as client,
    ):
        publisher = Publisher(client)
        try:
            until(lambda: not accepting(broker), "publishers are refused", 60)
            acked = _settled(publisher)
            admin = Admin(broker.status()["endpoints"]["admin"])
            assert admin.tell("/journal/remove", {"through": 2})["serials"] == [1, 2]
            until(lambda: publisher.acked > acked, "publishing resumes", RESUME_S)
            until(lambda: not accepting(broker), "the disk is full again", 60)
        finally:
            publisher.stop()
        client.close(flush=False)
