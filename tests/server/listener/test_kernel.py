"""zbroker/server/listener/kernel.py: real connections, and numbers that stand for anything else."""

from __future__ import annotations

import os
import resource
import socket as tcp
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from zbroker.local import LocalBroker
from zbroker.server.listener import kernel

NO_FD = 1 << 20


class Pair:
    """A connection from both sides."""

    def __init__(self) -> None:
        self.listener = tcp.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.peer = tcp.create_connection(("127.0.0.1", self.port))
        self.ours, _ = self.listener.accept()

    def close(self) -> None:
        for each in (self.ours, self.peer, self.listener):
            each.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def test_both_directions_are_counted(pair: Pair) -> None:
    pair.peer.sendall(b"x" * 1_000)
    pair.ours.sendall(b"y" * 10)
    assert pair.ours.recv(1_000, tcp.MSG_WAITALL)[:1] == b"x"
    assert pair.peer.recv(10, tcp.MSG_WAITALL) == b"y" * 10
    flow = kernel.Flows().of(pair.ours.fileno())
    assert flow is not None
    assert flow.received == 1_000
    assert flow.acked in (10, 11)  # the kernel may count its SYN


def test_what_waits_in_the_kernel_counts_as_received(pair: Pair) -> None:
    flows = kernel.Flows()
    before = flows.of(pair.ours.fileno())
    pair.peer.sendall(b"x" * 5)
    assert pair.ours.recv(5, tcp.MSG_WAITALL | tcp.MSG_PEEK)
    after = flows.of(pair.ours.fileno())
    assert before is not None
    assert after is not None
    assert after.received - before.received == 5


def test_a_cut_connection_is_at_its_end_for_both(pair: Pair) -> None:
    assert kernel.cut(pair.ours.fileno(), pair.port) == "127.0.0.1"
    assert pair.peer.recv(1) == b""
    assert pair.ours.recv(1) == b""


def test_a_connection_to_another_port_is_not_cut(pair: Pair) -> None:
    assert kernel.cut(pair.peer.fileno(), pair.port) is None
    pair.ours.sendall(b"x")
    assert pair.peer.recv(1) == b"x"


def test_a_number_that_is_no_connection_is_left_alone(tmp_path: Path, pair: Pair) -> None:
    flows = kernel.Flows()
    one, other = tcp.socketpair()
    with (tmp_path / "file").open("wb") as file, one, other:
        for fd in (file.fileno(), one.fileno(), NO_FD, -1):
            assert flows.of(fd) is None
            assert kernel.cut(fd, pair.port) is None
        one.sendall(b"x")
        assert other.recv(1) == b"x"


def test_the_listener_itself_is_not_cut(pair: Pair) -> None:
    """It listens on that port, but no one is at its other end."""
    assert kernel.cut(pair.listener.fileno(), pair.port) is None


def test_no_descriptor_is_left_behind(pair: Pair) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for port in (pair.port, pair.port + 1):
        for fd in (pair.ours.fileno(), pair.listener.fileno(), 0, NO_FD):
            kernel.cut(fd, port)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_the_work_of_other_threads_is_counted() -> None:
    before = kernel.worked_us()
    done = threading.Event()

    def work() -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    assert done.wait(60)
    worker.join(60)
    assert kernel.worked_us() - before >= 20_000


def test_our_own_work_is_not_counted() -> None:
    before = kernel.worked_us()
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        pass
    assert kernel.worked_us() - before < 200_000


@pytest.mark.parametrize(
    ("soft", "wanted", "connections", "step", "freely"),
    [
        (64, 20_000, 16, 12, 0),
        (256, 20_000, 128, 32, 0),
        (1_000, 20_000, 800, 50, 0),
        (1_000, 800, 800, 50, 0),
        (1_000, 5, 5, 248, 0),
        (24_000, 20_000, 19_200, 1_200, 11_008),
        (40_000, 20_000, 20_000, 0, 20_000),
        (100_000, 20_000, 20_000, 0, 20_000),
        (resource.RLIM_INFINITY, 9, 9, 0, 9),
    ],
)
def test_some_descriptors_are_not_for_connections(
    monkeypatch: pytest.MonkeyPatch,
    soft: int,
    wanted: int,
    connections: int,
    step: int,
    freely: int,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    found = kernel.descriptors(wanted)
    assert found == (connections, step, freely)
    assert soft == resource.RLIM_INFINITY or connections + step < soft - kernel.INTERNAL
    assert not step or not freely or freely + kernel.BURST < soft - kernel.INTERNAL


@pytest.mark.process
def test_a_process_itself_has_fewer_descriptors_than_are_kept_for_it() -> None:
    """Those of a process that serves, as it is now: sockets, logs, index."""
    with LocalBroker() as broker:
        listeners = [broker.pids[room] for room in ("ingest", "delivery", "queues")]
        assert (
            max(len([*Path(f"/proc/{pid}/fd").iterdir()]) for pid in listeners) <= kernel.INTERNAL
        )
