"""zbroker/sockets.py: what the kernel tells of the connections after a ROUTER, and topics."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import zmq

from zbroker import sockets

WAIT_S = 10.0


class Bench:
    """A public ROUTER, its peers, and what is known of them."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.router = sockets.public_router(self.context, 1_000, 0)
        self.router.bind("tcp://127.0.0.1:*")
        self.url = self.router.getsockopt_string(zmq.LAST_ENDPOINT)
        self.peers: list[zmq.Socket[bytes]] = []
        self.wires = sockets.Wires()

    def peer(self, interval_s: float | None = None) -> tuple[zmq.Socket[bytes], bytes]:
        """One that said a single thing, and its routing id."""
        socket = self.context.socket(zmq.DEALER)
        self.peers.append(socket)
        sockets.ask_for_heartbeats(socket, interval_s)
        socket.connect(self.url)
        socket.send(b"here")
        assert self.router.poll(WAIT_S * 1_000)
        received = sockets.receive_from(self.router)
        assert received is not None
        rid, frames, _ = received
        assert rid not in self.wires.fds
        self.wires.add(rid, frames[0])
        return socket, rid

    def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < end, "it did not come about in time"
            time.sleep(0.01)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    for socket in (made.router, *made.peers):
        socket.close(0)
    made.context.term()


def test_a_peer_is_quiet_until_the_next_byte_comes(bench: Bench) -> None:
    peer, rid = bench.peer()
    bench.until(lambda: (bench.wires.quiet_ms(rid) or 0) >= 200)
    peer.send(b"again")
    bench.until(lambda: (bench.wires.quiet_ms(rid) or 0) < 200)


def test_pings_are_bytes_although_they_are_no_messages(bench: Bench) -> None:
    """Said nothing for long, but quiet only up to the next PING, again and again."""
    _, rid = bench.peer(0.1)
    seen = [0]

    def came_down_often() -> bool:
        seen.append(bench.wires.quiet_ms(rid) or 0)
        return sum(after < before for before, after in pairwise(seen)) >= 5

    bench.until(came_down_often)
    assert not bench.router.poll(0)


def test_of_a_peer_that_is_gone_or_unknown_nothing_is_reported(bench: Bench) -> None:
    assert bench.wires.quiet_ms(b"\0none") is None
    peer, rid = bench.peer()
    peer.close(0)
    bench.until(lambda: bench.wires.quiet_ms(rid) is None)


def test_a_descriptor_that_is_used_again_is_the_new_peers(bench: Bench) -> None:
    first, old = bench.peer()
    number = bench.wires.fds[old]
    first.close(0)
    bench.until(lambda: bench.wires.quiet_ms(old) is None)
    for _ in range(50):
        _, rid = bench.peer()
        if bench.wires.fds[rid] == number:
            break
    else:
        pytest.fail("the descriptor did not come again")
    assert (old in bench.wires.fds, bench.wires.quiet_ms(old)) == (False, None)
    assert bench.wires.quiet_ms(rid) is not None


@pytest.mark.seed("002-39")
@pytest.mark.parametrize(
    ("interval_s", "limit_ms"), [(None, 8_000), (0.001, 2), (0.25, 500), (1.0, 2_000)]
)
def test_a_ping_is_sent_and_given_up_within_two_intervals(
    bench: Bench, interval_s: float | None, limit_ms: int
) -> None:
    """Without an interval that was asked for: within eight seconds."""
    peer, _ = bench.peer(interval_s)
    every_ms, timeout_ms = (
        peer.getsockopt(option) for option in (zmq.HEARTBEAT_IVL, zmq.HEARTBEAT_TIMEOUT)
    )
    assert 1 <= every_ms <= timeout_ms
    assert every_ms + timeout_ms <= limit_ms


BROKEN_OFF = """
import socket, struct, sys, time, zmq
from tests.process.floods import COMMAND, Stranger, frame
from zbroker import sockets
sockets.HEARTBEAT_IVL_MS = 50
context = zmq.Context()
router = sockets.public_router(context, 1_000, 0)
router.bind("tcp://127.0.0.1:*")
peer = Stranger(router.getsockopt_string(zmq.LAST_ENDPOINT))
peer.shake()
peer.say(frame(b"x") * 2_600 + frame(b"\\4PING" + bytes(2), COMMAND))
router.poll(10_000)
time.sleep(0.2)
peer._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
peer.close()
time.sleep(float(sys.argv[1]))
count = 0
while router.poll(200):
    sockets.receive_from(router)
    count += 1
print(count)
"""


@pytest.mark.parametrize("pause_s", [0.01, 0.3], ids=["a PING came last", "a heartbeat is due"])
def test_a_connection_that_breaks_off_with_much_unread_ends_no_process(pause_s: float) -> None:
    """libzmq 4.3.5 asserts there that it may write, if a high-water mark has stopped its reading.
    In a process of its own."""
    command = [sys.executable, "-c", BROKEN_OFF, str(pause_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert 0 < int(done.stdout) <= 2_600  # a broken connection may lose the last ones


@pytest.mark.parametrize(
    ("follows", "topics"),
    [
        ({}, [sockets.EVERY_BEAT]),
        ({"every_commit": True}, [sockets.EVERY_BEAT, sockets.EVERY_COMMIT]),
        (
            {"every_commit": True, "every_write": True},
            [sockets.EVERY_BEAT, sockets.EVERY_COMMIT, sockets.EVERY_WRITE],
        ),
    ],
)
def test_a_reader_gets_the_topics_that_it_follows(
    follows: dict[str, bool], topics: list[bytes]
) -> None:
    """Of two frames that come after one another it keeps the newer one, so the first may be one
    that it should not get, unnoticed."""
    with zmq.Context() as context, sockets.watermarks_publisher(context) as publisher:
        publisher.setsockopt(zmq.LINGER, 0)
        publisher.bind("inproc://marks")
        with sockets.watermarks_subscriber(context, "inproc://marks", **follows):
            assert publisher.poll(int(WAIT_S * 1_000))
            prefix = publisher.recv()[1:]
    every = [sockets.EVERY_BEAT, sockets.EVERY_COMMIT, sockets.EVERY_WRITE]
    assert [topic for topic in every if topic.startswith(prefix)] == topics
    assert {len(topic) for topic in every} == {sockets.TOPIC_BYTES}
