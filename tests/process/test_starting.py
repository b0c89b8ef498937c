"""What clients meet while an instance starts, and while one of its processes is restarted."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgpack
import psutil
import pytest
import zmq

from tests.process.load import until, until_running
from zbroker.client import connect
from zbroker.local import LocalBroker
from zbroker.server.spawn import command

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

WAIT_S = 60.0
TRIES = 20
ALL = {"delivery", "queues", "admin"}


class Knocker:
    """Logs on without the library, one try after the other."""

    def __init__(self, url: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 1)
        self._socket.connect(url)
        self._cid = 0

    def knock(self) -> dict[str, Any]:
        self._cid += 1
        logon = {"cmd": "logon", "client": "knocker", "instance": "1", "cid": str(self._cid)}
        self._socket.send(msgpack.packb(logon))
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if self._socket.poll(1_000):
                answer: dict[str, Any] = msgpack.unpackb(self._socket.recv_multipart()[0])
                if answer.get("cid") == str(self._cid):
                    return answer
        raise AssertionError("no answer")

    def close(self) -> None:
        self._context.destroy(linger=0)


@contextmanager
def starting(place: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """An instance that has just been started, and the URL that it will have."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    place.mkdir()
    config = place / "z.toml"
    rest = "".join(f'{name} = "tcp://127.0.0.1:0"\n' for name in ("delivery", "queues"))
    config.write_text(
        f'[instance]\ndata_dir = "{place / "data"}"\n[journal]\nsegment_size = "1MiB"\n'
        f'[listen]\ningest = "{url}"\nadmin = "http://127.0.0.1:0"\n{rest}'
    )
    process = subprocess.Popen(
        command("zbroker.cli.main", "start", "-c", str(config)),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process, url
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)


def freeze(process: subprocess.Popen[bytes], name: str) -> psutil.Process | None:
    """Stops a process as soon as it runs; None if everything is ready before that."""
    parent = psutil.Process(process.pid)
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for child in parent.children():
            with suppress(psutil.NoSuchProcess):
                if child.name() == f"zbroker {name}":
                    child.suspend()
                    return child
    return None


def test_a_logon_is_not_ready_until_every_endpoint_is_known(tmp_path: Path) -> None:
    for number in range(TRIES):
        with starting(tmp_path / str(number)) as (process, url):
            frozen = freeze(process, "queues")
            assert frozen is not None
            knocker = Knocker(url)
            try:
                running = tmp_path / str(number) / "data" / "run" / "instance.json"
                answer = knocker.knock()
                until(running.exists, "the note of the instance", WAIT_S)
                if "queues" in running.read_text():
                    frozen.resume()
                    continue  # it was faster
                assert (answer["cmd"], answer.get("code")) == ("error", "not_ready")
                assert "queues" in answer["reason"]
                frozen.resume()
                until(lambda knocker=knocker: knocker.knock()["cmd"] == "ack", "it is in", WAIT_S)
                assert set(knocker.knock()["endpoints"]) == ALL
                return
            finally:
                knocker.close()
    raise AssertionError("queues was always faster")


def test_endpoints_stay_complete_while_processes_are_restarted() -> None:
    with LocalBroker() as broker:
        knocker = Knocker(broker.url)
        try:
            expected = knocker.knock()["endpoints"]
            assert set(expected) == ALL
            for name in ("delivery", "queues", "admin"):
                pid = until_running(broker, name, 0)
                os.kill(pid, signal.SIGKILL)
                assert knocker.knock()["endpoints"] == expected
                until_running(broker, name, pid)
                assert knocker.knock()["endpoints"] == expected
        finally:
            knocker.close()


def test_a_start_after_a_kill_does_not_tell_the_endpoints_of_the_one_before(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    first = LocalBroker(data)
    os.kill(first.pids["supervisor"], signal.SIGKILL)
    first.close()
    running = data / "run" / "instance.json"
    assert running.exists()
    running.write_text(running.read_text().replace("127.0.0.1", "127.9.9.9"))
    with LocalBroker(data) as second:
        knocker = Knocker(second.url)
        try:
            assert "127.9.9.9" not in str(knocker.knock()["endpoints"])
        finally:
            knocker.close()


def test_an_instance_goes_on_without_its_run_directory(tmp_path: Path) -> None:
    """Somebody removes it: what runs finds its sockets, and so does what is started again."""
    with LocalBroker(tmp_path / "data") as broker:
        url, journal = broker.url, broker.pids["journal"]
        with connect(url, timeout=WAIT_S) as client:
            shutil.rmtree(broker.data_dir / "run")
            client.publish("t", b"1").wait(WAIT_S)
            assert [m.data for m in client.subscribe("t", since="epoch", until="now")] == [b"1"]
            os.kill(journal, signal.SIGKILL)
            client.publish("t", b"2").wait(WAIT_S)
            read = client.subscribe("t", since="epoch", until="now")
            assert [m.data for m in read] == [b"1", b"2"]
