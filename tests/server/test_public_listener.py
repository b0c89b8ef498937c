"""zbroker/server/public_listener.py: answers to clients."""

from __future__ import annotations

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
from zbroker.server.public_listener import PublicListener
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
