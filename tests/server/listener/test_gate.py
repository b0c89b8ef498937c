"""zbroker/server/listener/gate.py: connections come in a few at a time, whatever waits."""

from __future__ import annotations

import logging
import resource
import socket as tcp
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from tests.process.floods import Stranger
from zbroker import sockets
from zbroker.clock import SystemClock
from zbroker.server.listener import gate, kernel
from zbroker.server.listener.listener import Listener

WAIT_S = 20.0
CONNECTIONS = 6
STEP = 16
FREELY = 3
CROWD = 40

FREE = ["tcp://127.0.0.1:0", "tcp://127.0.0.1:*", "tcp://*:0", "tcp://localhost:0", "tcp://[::1]:0"]


class Bench:
    """A listener that has few descriptors and its loop."""

    def __init__(self, listen: str = FREE[0]) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.listener = Listener(
            self.context, listen, frame_bytes=1 << 20, sndhwm=0, unread_bytes=4 << 20,
            connections=CONNECTIONS, curve=None, allowed=lambda _: True, clock=SystemClock(),
            log=logging.getLogger("door"),
        )  # fmt: skip
        self.poller = zmq.Poller()
        self.listener.register(self.poller)
        self.poller.register(self.listener.router, zmq.POLLIN)
        self.said: list[bytes] = []

    def turn(self) -> None:
        events = dict(self.poller.poll(5))
        self.listener.turn(events, SystemClock().mono_ms())
        while (received := self.listener.receive()) is not None:
            self.said.append(bytes(received[1][0].buffer))

    def until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < deadline, what
            self.turn()

    def close(self) -> None:
        self.listener.close()
        self.context.destroy(0)


@pytest.fixture(autouse=True)
def scarce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "descriptors", lambda _: kernel.Descriptors(CONNECTIONS, STEP))


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def have_more(monkeypatch: pytest.MonkeyPatch) -> kernel.Descriptors:
    """The gate is open until there are `FREELY` connections."""
    room = kernel.Descriptors(CONNECTIONS, STEP, FREELY)
    monkeypatch.setattr(kernel, "descriptors", lambda _: room)
    return room


def descriptors() -> int:
    """Those of two looks: one look is no moment, so what it saw early may have ended meanwhile."""
    looks = [{*Path("/proc/self/fd").iterdir()} for _ in range(2)]
    return len(looks[0] & looks[1])


@pytest.mark.parametrize("freely", [0, FREELY])
def test_a_crowd_never_has_more_than_its_connections_and_a_step(
    monkeypatch: pytest.MonkeyPatch, freely: int
) -> None:
    """However long the loop is busy between two turns: without the gate it would have hundreds."""
    if freely:
        have_more(monkeypatch)
    bench = Bench()
    strangers = [Stranger(bench.listener.endpoint) for _ in range(freely)]
    bench.until(lambda: len(bench.listener._taken) == freely, "as many as it is open for")

    def come() -> None:
        while not over.is_set():
            strangers.append(Stranger(bench.listener.endpoint))

    over = threading.Event()
    crowd = threading.Thread(target=come, daemon=True)
    before, most = descriptors() - 2 * len(strangers), 0
    crowd.start()
    try:
        while bench.listener.counts["cut_over_limit"] <= CROWD:
            over.wait(0.02)  # the loop is busy
            most = max(most, descriptors() - before - len(strangers))
            bench.turn()
    finally:
        over.set()
        bench.until(lambda: not crowd.is_alive(), "the last one is in")
        for each in strangers:
            each.close()
        bench.close()
    # a queue of 16 holds 17; one stranger may be between its socket and the list
    assert CONNECTIONS < most <= CONNECTIONS + STEP + 2


def test_while_descriptors_are_free_libzmq_does_not_wait_for_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would try to accept them in vain, until the loop has time."""
    have_more(monkeypatch)
    bench = Bench()
    strangers: list[Stranger] = []
    for _ in range(2):
        strangers += [Stranger(bench.listener.endpoint) for _ in range(FREELY)]
        while len(bench.listener._taken) < FREELY:
            assert bench.listener._monitor.poll(WAIT_S * 1_000), "they are in, without a turn"
            bench.turn()
        other = Stranger(bench.listener.endpoint)
        bench.listener._monitor.poll(100)
        bench.listener._follow(SystemClock().mono_ms())
        assert len(bench.listener._taken) == FREELY, "now they wait for a turn"
        bench.until(lambda: len(bench.listener._taken) == FREELY + 1, "it is in")
        for each in (*strangers, other):
            each.close()
        strangers.clear()
        bench.until(lambda: not bench.listener._taken, "all are gone")
        bench.turn()
    bench.close()


def test_who_was_on_the_way_when_the_gate_opened_comes_in(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = bench.listener._gate
    assert admission is not None
    for number in (0, 1):
        admission._both[0].choose(number)
        stranger = Stranger(bench.listener.endpoint)
        with monkeypatch.context() as patched:
            patched.setattr(bench.listener, "_descriptors", have_more(patched))
            bench.until(lambda: len(bench.listener._taken) == 1, "it is in")
            assert admission.is_open
        stranger.close()
        bench.until(lambda: not bench.listener._taken and not admission.is_open, "it is gone")


@pytest.mark.parametrize("freely", [0, FREELY])
@pytest.mark.parametrize("listen", FREE)
def test_clients_come_in_and_are_answered(
    monkeypatch: pytest.MonkeyPatch, listen: str, freely: int
) -> None:
    if freely:
        have_more(monkeypatch)
    bench = Bench(listen)
    others: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        at = bench.listener.endpoint.replace("//0.0.0.0:", "//127.0.0.1:")
        clients = [sockets.dealer(others, at) for _ in range(CONNECTIONS)]
        for number, client in enumerate(clients):
            client.send(b"%d" % number)
        bench.until(lambda: len(bench.said) == CONNECTIONS, "all are heard")
        assert sorted(bench.said) == [b"%d" % n for n in range(CONNECTIONS)]
        bench.until(lambda: bench.listener.counts["connections"] == CONNECTIONS, "all are counted")
    finally:
        others.destroy(0)
        bench.close()


def test_a_client_that_comes_while_a_listener_begins_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that tries again and again until the broker is there."""
    connect, early = tcp.socket.connect, tcp.socket()

    def after_another(probe: tcp.socket, address: tuple[str, int]) -> None:
        monkeypatch.setattr(tcp.socket, "connect", connect)
        early.setblocking(False)
        early.connect_ex(address)
        time.sleep(0.05)  # libzmq accepts it, if it may
        connect(probe, address)

    monkeypatch.setattr(tcp.socket, "connect", after_another)
    bench = Bench()
    try:
        bench.until(lambda: bench.listener.counts["connections"] == 1, "it is counted")
    finally:
        early.close()
        bench.close()


def test_a_quiet_listener_sleeps(bench: Bench) -> None:
    assert bench.listener.wake_ms() is None
    assert bench.poller.poll(0) == []
    assert bench.listener.counts == dict.fromkeys(bench.listener.counts, 0)


def test_a_listener_sleeps_while_libzmq_lets_others_in(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the processor from libzmq, as long as the kernel lets it."""
    monkeypatch.setattr(gate._Listener, "drain", lambda _: None)  # libzmq does not get them yet
    stranger = Stranger(bench.listener.endpoint)
    bench.until(
        lambda: bench.listener._gate is not None and bench.listener._gate.is_letting, "it lets in"
    )
    assert bench.poller.poll(0) == []
    assert bench.listener.wake_ms() is not None  # it looks again
    bench.turn()
    assert bench.poller.poll(0) == []
    monkeypatch.undo()
    admission = bench.listener._gate
    assert admission is not None
    admission._both[admission._draining or 0].drain()
    bench.until(lambda: len(bench.listener._taken) == 1 and not admission.is_letting, "it is in")
    other = Stranger(bench.listener.endpoint)
    bench.until(lambda: len(bench.listener._taken) == 2, "the next one is in")
    for each in (stranger, other):
        each.close()


def test_a_listener_sleeps_while_there_is_no_place_for_those_that_wait(bench: Bench) -> None:
    others = range(10_000, 10_001 + CONNECTIONS)
    bench.listener._taken.update(others)
    stranger = Stranger(bench.listener.endpoint)
    bench.until(lambda: bench.poller.poll(100) == [], "it sleeps")
    bench.listener._taken.difference_update(others)
    bench.until(lambda: len(bench.listener._taken) == 1, "it is in")
    stranger.close()


def test_a_connection_that_ends_makes_place(bench: Bench) -> None:
    for _ in range(3 * CONNECTIONS):
        stranger = Stranger(bench.listener.endpoint)
        bench.until(lambda: len(bench.listener._taken) == 1, "it is in")
        stranger.close()
        bench.until(lambda: not bench.listener._taken, "it is gone")
    assert bench.listener.counts["cut_over_limit"] == 0


def test_a_listener_may_be_closed_while_others_wait(bench: Bench) -> None:
    """libzmq would end this process if it did not find its listener."""
    crowd = [Stranger(bench.listener.endpoint) for _ in range(STEP)]
    bench.listener.close()
    bench.listener.close = lambda: None  # type: ignore[method-assign]
    for each in crowd:
        each.close()


def test_a_port_that_is_taken_is_refused_as_libzmq_does() -> None:
    with tcp.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(zmq.ZMQError) as caught:
            gate.AdmissionGate(f"tcp://127.0.0.1:{taken.getsockname()[1]}", STEP)
        assert caught.value.errno == zmq.EADDRINUSE


def test_the_name_of_an_interface_is_left_to_libzmq() -> None:
    assert not gate.can_gate("tcp://no-such-interface:0")
    assert all(gate.can_gate(listen) for listen in FREE)


def test_with_many_descriptors_there_is_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * kernel.BURST:
        pytest.skip("other system: few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        bench = Bench()
        assert bench.listener._gate is None
        bench.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
