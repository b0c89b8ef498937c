"""zbroker/server/public_listener.py: answers to clients; what connections held is given back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.waiting import Limit
from zbroker.config import Config
from zbroker.engine.effects import Answer, Send
from zbroker.engine.events import Full, Gone
from zbroker.limits import MIB
from zbroker.paths import Paths
from zbroker.server.process import Process
from zbroker.server.public_listener import (
    FREE_MAX_BYTES,
    HEAP_LOOK_MS,
    HEAP_LOOKS,
    TRIM_MS,
    Allocator,
    Heap,
    PublicListener,
)
from zbroker.wire import codec
from zbroker.wire import messages as m

WAIT_S = 20.0
NOBODY = b"\0nobd"
LARGE = m.Ack("persisted", "x" * MIB)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[PublicListener]:
    """One with short queues."""
    paths = Paths(tmp_path, tmp_path / "journal", tmp_path / "archive", 1)
    process = Process("ingest", Config(), paths, "tcp://127.0.0.1:0")
    yield PublicListener(process, zmq.Poller(), frame_bytes=MIB, sndhwm=1)
    process.close()


@pytest.fixture
def client(listener: PublicListener) -> Iterator[zmq.Socket[bytes]]:
    context: zmq.Context[Any] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.RCVHWM, 1)
    socket.connect(listener.connections.endpoint)
    yield socket
    context.destroy(linger=0)


def test_what_is_sent_to_a_peer_that_is_not_connected_says_so(listener: PublicListener) -> None:
    assert listener.answer(Answer(NOBODY, m.Ack("persisted", seq=1))) == Gone(NOBODY)
    assert listener.send(Send(NOBODY, b"answer")) == Gone(NOBODY)


def test_an_answer_that_a_full_queue_did_not_take_comes_back(
    listener: PublicListener, client: zmq.Socket[bytes]
) -> None:
    client.send(b"hello")
    assert listener.connections.router.poll(WAIT_S * 1_000)
    received = listener.connections.receive()
    assert received is not None
    answer, sent = Answer(received[0], LARGE), 0
    while (refused := listener.answer(answer)) is None:
        sent += 1
        assert sent < 100, "its queue has a limit"
    assert isinstance(refused, Full)
    assert (refused.rid, refused.effect) == (received[0], answer)
    assert client.recv() == codec.encode(LARGE)
    limit = Limit(WAIT_S)
    while listener.answer(answer) is not None:
        assert not limit.is_over
        if client.poll(10):
            client.recv()


class Fake(Allocator):
    """Notes at which looks memory was given back."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.looks = self.trims = 0

    def free_bytes(self) -> int:
        self.looks += 1
        return self.free

    def trim(self) -> None:
        self.trims += 1


def test_nothing_is_looked_at_while_no_connection_ended() -> None:
    fake = Fake(1 << 40)
    heap = Heap(fake)
    for now_ms in range(0, 100_000, 100):
        heap.turn(0, now_ms)
    assert fake.looks == 0


def test_a_lot_is_given_back_once_connections_ended() -> None:
    fake = Fake(FREE_MAX_BYTES + 1)
    heap = Heap(fake)
    heap.turn(5, 0)
    assert fake.trims == 0, "not at once: libzmq has not freed it yet"
    heap.turn(5, HEAP_LOOK_MS)
    assert fake.trims == 1


def test_a_little_is_kept() -> None:
    fake = Fake(FREE_MAX_BYTES)
    heap = Heap(fake)
    for now_ms in range(0, 100_000, 100):
        heap.turn(1, now_ms)
    assert (fake.trims, fake.looks) == (0, HEAP_LOOKS)


def test_what_is_freed_late_is_given_back_too() -> None:
    fake = Fake(0)
    heap = Heap(fake)
    heap.turn(1, 0)
    heap.turn(1, HEAP_LOOK_MS)
    fake.free = FREE_MAX_BYTES + 1
    heap.turn(1, 2 * HEAP_LOOK_MS)
    assert fake.trims == 1


def test_connections_that_come_and_go_do_not_make_it_trim_all_the_time() -> None:
    fake = Fake(1 << 40)
    heap = Heap(fake)
    end_ms = 100_000
    for now_ms in range(0, end_ms, 100):
        heap.turn(now_ms, now_ms)
    assert 1 <= fake.trims <= end_ms // TRIM_MS + 1


REAL = """
import psutil
from zbroker.server.process import keep_freed_memory
from zbroker.server.public_listener import HEAP_LOOK_MS, Heap
keep_freed_memory()
heap = Heap()
many = [bytes(100_000) for _ in range(1_500)]
kept = many[::200]
held = psutil.Process().memory_info().rss
del many
heap.turn(1, 0)
before = psutil.Process().memory_info().rss
heap.turn(1, HEAP_LOOK_MS)
print(held, before, psutil.Process().memory_info().rss)
"""


def test_pages_go_back_to_the_system_with_the_settings_of_our_processes() -> None:
    command = [sys.executable, "-c", REAL]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    held, before, after = map(int, done.stdout.split())
    assert held - before < 50 * MIB, "glibc keeps it by itself"
    assert held - after > 100 * MIB
