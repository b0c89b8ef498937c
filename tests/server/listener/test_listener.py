"""zbroker/server/listener/listener.py: real sockets around a listener in this process."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from unittest import mock

import pytest
import zmq

from tests.process.floods import COMMAND, MORE, Stranger, announced, frame, greeting
from zbroker import sockets
from zbroker.clock import SystemClock
from zbroker.errors import ConfigError
from zbroker.server.listener import guard, kernel, zap
from zbroker.server.listener.listener import CURVE_SHAKEN_BYTES, SHAKEN_BYTES, Listener, reachable

WAIT_S = 20.0
FRAME_BYTES = 1 << 20
UNREAD_BYTES = 4 << 20
CONNECTIONS = 8


@pytest.fixture(autouse=True)
def many_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few of them test_gate.py."""
    monkeypatch.setattr(kernel, "descriptors", lambda wanted: kernel.Descriptors(wanted, 0))


class Later(SystemClock):
    """A clock that can be put forward."""

    ahead_ms = 0

    def mono_ms(self) -> int:
        return super().mono_ms() + self.ahead_ms


class Bench:
    """A listener, its loop, and who knocks."""

    def __init__(self, *, curve: bool) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.others: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.clock = Later()
        self.server = sockets.ServerCurve(*zmq.curve_keypair()) if curve else None
        self.known = zmq.curve_keypair()
        self.allowed = {self.known[0].decode()}
        self.listener = Listener(
            self.context, "tcp://127.0.0.1:*", frame_bytes=FRAME_BYTES, sndhwm=0,
            unread_bytes=UNREAD_BYTES, connections=CONNECTIONS, curve=self.server,
            allowed=lambda key: key in self.allowed, clock=self.clock,
            log=logging.getLogger("door"),
        )  # fmt: skip
        self._poller = zmq.Poller()
        self.listener.register(self._poller)
        self._poller.register(self.listener.router, zmq.POLLIN)
        self.reading = True
        self.said: list[tuple[bytes, str, int]] = []
        self._strangers: list[Stranger] = []
        self._clients: list[zmq.Socket[bytes]] = []

    def client(self, keys: tuple[bytes, bytes] | None = None) -> zmq.Socket[bytes]:
        curve = None
        if self.server is not None:
            curve = sockets.Curve(*(keys or self.known), self.server.public)
        made = sockets.dealer(self.others, self.listener.endpoint, -1, curve)
        self._clients.append(made)
        return made

    def named(self, name: bytes) -> zmq.Socket[bytes]:
        """A client that says itself what it is called."""
        made = self.others.socket(zmq.DEALER)
        made.setsockopt(zmq.ROUTING_ID, name)
        if self.server is not None:
            made.setsockopt(zmq.CURVE_PUBLICKEY, self.known[0])
            made.setsockopt(zmq.CURVE_SECRETKEY, self.known[1])
            made.setsockopt(zmq.CURVE_SERVERKEY, self.server.public)
        made.connect(self.listener.endpoint)
        return made

    def stranger(self) -> Stranger:
        made = Stranger(self.listener.endpoint)
        self._strangers.append(made)
        return made

    def turn(self) -> None:
        events = dict(self._poller.poll(10))
        self.listener.turn(events, self.clock.mono_ms())
        if self.reading and self.listener.router in events:
            self._read()

    def _read(self) -> None:
        while (received := self.listener.receive()) is not None:
            rid, _, _, key, size = received
            self.said.append((rid, key, size))

    def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not done():
            assert time.monotonic() < end, f"not in time: {self.listener.counts} {len(self.said)}"
            self.turn()

    def read(self, count: int) -> None:
        """Reads until there were so many messages, and nothing else: not the monitor."""
        while len(self.said) < count:
            assert self.listener.router.poll(int(WAIT_S * 1_000)), "not in time"
            self._read()

    def hear(self, client: zmq.Socket[bytes]) -> bytes:
        """What a client is called, from its next message."""
        before = len(self.said)
        client.send(b"here")
        self.until(lambda: len(self.said) > before)
        return self.said[-1][0]

    def close(self) -> None:
        self.others.destroy(linger=0)
        for peer in self._strangers:
            peer.close()
        self.listener.close()
        self.context.term()


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if libzmq had always received enough for another look."""
    monkeypatch.setattr(kernel, "worked_us", count(0, 1_000_000).__next__)


@pytest.fixture(params=[False, True], ids=["null", "curve"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(curve=request.param)
    yield made
    made.close()


@pytest.fixture
def secure() -> Iterator[Bench]:
    made = Bench(curve=True)
    yield made
    made.close()


# -- keys -----------------------------------------------------------------------------------------


def test_the_key_of_a_message_is_its_senders(bench: Bench) -> None:
    rid = bench.hear(bench.client())
    key = bench.known[0].decode() if bench.server else ""
    assert bench.said == [(rid, key, 4)]


def test_an_unknown_key_is_counted(secure: Bench) -> None:
    secure.client(zmq.curve_keypair()).send(b"here")
    secure.until(lambda: secure.listener.counts["refused_keys"] > 0)
    assert secure.said == []


def test_a_key_that_is_added_comes_in(secure: Bench) -> None:
    keys = zmq.curve_keypair()
    secure.client(keys).send(b"here")
    secure.until(lambda: secure.listener.counts["refused_keys"] > 0)
    secure.allowed.add(keys[0].decode())
    assert secure.hear(secure.client(keys))  # the other one was asked not to try again


def test_authentication_refuses_a_client_without_a_key(secure: Bench) -> None:
    plain = sockets.dealer(secure.others, secure.listener.endpoint)
    plain.send(b"here")
    secure.until(lambda: secure.listener.counts["cut_handshakes"] > 0)
    plain.close(0)
    assert secure.said == []


# -- the self test --------------------------------------------------------------------------------


def test_a_listener_that_holds_passes_its_test(bench: Bench) -> None:
    bench.listener.self_test()
    reported = bench.listener.counts
    bench.until(lambda: bench.listener.counts["connections"] == 0)
    assert (reported["refused_keys"], reported["cut_handshakes"]) == (0, 0)


def test_a_listener_that_knows_every_key_fails(secure: Bench) -> None:
    secure.listener._zap._allowed = lambda _: True  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="a key that is not in the access file came in"):
        secure.listener.self_test()


def test_a_listener_that_knows_no_key_fails(secure: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zap.ZapHandler, "_may_enter", lambda _self, _key: False)
    with pytest.raises(ConfigError, match="a key that is known was refused"):
        secure.listener.self_test()


def test_a_listener_without_a_handler_fails(secure: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ZAP_ENFORCE_DOMAIN libzmq would let everybody in, with it no one."""
    monkeypatch.setattr(zap, "SELF_TEST_MS", 1_000)
    handler = secure.listener._zap
    assert handler is not None
    handler.socket.close(0)
    handler.socket = secure.context.socket(zmq.ROUTER)  # no one asks it
    with pytest.raises(ConfigError, match="this instance does not serve"):
        secure.listener.self_test()


def test_a_listener_of_plain_sockets_fails(secure: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """CURVE was asked for, but libzmq was not informed."""
    plain = sockets.public_router(secure.context, FRAME_BYTES, 0)
    plain.bind("tcp://127.0.0.1:*")
    monkeypatch.setattr(secure.listener, "endpoint", plain.getsockopt_string(zmq.LAST_ENDPOINT))
    with pytest.raises(ConfigError, match="a client without a key came in"):
        secure.listener.self_test()
    plain.close(0)


def test_the_key_of_the_test_is_not_known_afterwards(secure: Bench) -> None:
    secure.listener.self_test()
    assert secure.listener._zap is not None
    assert secure.listener._zap.guest == ""


@pytest.mark.parametrize(
    ("bound", "near"),
    [
        ("tcp://0.0.0.0:9101", "tcp://127.0.0.1:9101"),
        ("tcp://[::]:9101", "tcp://[::1]:9101"),
        ("tcp://10.0.0.1:9101", "tcp://10.0.0.1:9101"),
    ],
)
def test_a_listener_on_all_addresses_is_tried_on_loopback(bound: str, near: str) -> None:
    assert reachable(bound) == near


# -- who is cut -----------------------------------------------------------------------------------


def test_who_does_not_log_on_is_cut(bench: Bench) -> None:
    bench.hear(bench.client())
    bench.clock.ahead_ms = guard.LOGON_MS
    bench.until(lambda: bench.listener.counts["cut_silent"] == 1)


def test_who_logged_on_stays(bench: Bench) -> None:
    client = bench.client()
    rid = bench.hear(client)
    bench.listener.logged_on(rid)
    bench.clock.ahead_ms = 2 * guard.LOGON_MS
    assert bench.hear(client) == rid
    assert bench.listener.counts["cut_silent"] == 0


def test_who_speaks_before_the_monitor_was_read_stays_once_logged_on() -> None:
    """A long turn, or one of hot sources only, reads a logon first."""
    with closing(Bench(curve=False)) as bench:
        early, later = bench.client(), bench.client()
        for client in (early, later):
            client.send(b"here")
        bench.read(2)
        rids = [rid for rid, _, _ in bench.said]
        bench.listener.logged_on(rids[0])
        bench.turn()
        bench.listener.logged_on(rids[1])  # its session was opened in another turn
        bench.clock.ahead_ms = guard.LOGON_MS
        for _ in range(5):
            bench.turn()
        assert bench.listener.counts["connections"] == 2
        assert bench.listener.counts["cut_silent"] == 0


def test_whose_session_ended_is_cut_later(bench: Bench) -> None:
    rid = bench.hear(bench.client())
    bench.listener.logged_on(rid)
    bench.clock.ahead_ms = 2 * guard.LOGON_MS
    bench.listener.forget(rid)
    bench.turn()
    assert bench.listener.counts["cut_silent"] == 0
    bench.clock.ahead_ms = 3 * guard.LOGON_MS
    bench.until(lambda: bench.listener.counts["cut_silent"] == 1)


def test_a_silent_stranger_is_cut_by_the_handshakes_deadline(bench: Bench) -> None:
    peer = bench.stranger()
    bench.until(lambda: bench.listener.counts["cut_handshakes"] == 1)
    bench.until(peer.is_cut)
    bench.until(lambda: bench.listener.counts["connections"] == 0)


def test_a_stranger_may_not_say_much(bench: Bench) -> None:
    """A greeting, and then a command that has no end."""
    peer = bench.stranger()
    assert peer.say(greeting(b"CURVE" if bench.server else b"NULL"))
    assert peer.say(announced(FRAME_BYTES // 2, COMMAND))
    bench.until(lambda: not peer.say(bytes(4_096)))
    bench.until(lambda: bench.listener.counts["cut_handshakes"] == 1)


def test_before_a_key_was_shown_sixteen_kilobytes_are_too_much(
    secure: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[int] = []
    monkeypatch.setattr(kernel, "cut", lambda fd, _port: cut.append(fd))
    peer = secure.stranger()
    said = greeting(b"CURVE") + announced(FRAME_BYTES // 2, COMMAND)
    assert peer.say(said + bytes(guard.SHAKING_MAX_BYTES + 1 - len(said)))
    secure.until(lambda: len(cut) == 1)


def test_who_says_too_much_before_a_logon_is_cut(bench: Bench) -> None:
    bench.reading = False
    client = bench.client()
    for _ in range(20):
        client.send(bytes(guard.WAITING_MAX_BYTES // 10))
    bench.until(lambda: bench.listener.counts["cut_silent"] == 1)


def test_who_is_not_read_is_cut_after_a_logon_too(bench: Bench) -> None:
    client = bench.client()
    bench.listener.logged_on(bench.hear(client))
    bench.reading = False
    for _ in range(80):
        client.send(bytes(UNREAD_BYTES // 20))
    bench.until(lambda: bench.listener.counts["cut_unread"] == 1)


def test_a_message_without_an_end_is_not_read_either() -> None:
    bench = Bench(curve=False)
    peer = bench.stranger()
    assert peer.shake()
    assert peer.say(frame(b"here"))
    bench.until(lambda: len(bench.said) == 1)
    bench.listener.logged_on(bench.said[0][0])
    part = frame(bytes(UNREAD_BYTES // 20), MORE)
    bench.until(lambda: not peer.say(part))
    bench.until(lambda: bench.listener.counts["cut_unread"] == 1)
    bench.close()


def test_who_is_read_may_say_any_amount(bench: Bench) -> None:
    client = bench.client()
    bench.listener.logged_on(bench.hear(client))
    for _ in range(20):
        for _ in range(5):  # far from the bound, if it looks before it has read one of them
            client.send(bytes(UNREAD_BYTES // 20))
        wanted = len(bench.said) + 5
        bench.until(lambda wanted=wanted: len(bench.said) == wanted)
        bench.clock.ahead_ms += guard.INSIDE.every_ms
        bench.turn()
    assert bench.listener.counts["cut_unread"] == 0
    assert bench.hear(client)


def test_over_the_limit_somebody_goes(bench: Bench) -> None:
    client = bench.client()
    bench.listener.logged_on(bench.hear(client))
    for _ in range(CONNECTIONS + 2):
        bench.stranger()
    bench.until(lambda: bench.listener.counts["cut_over_limit"] == 3)
    assert bench.hear(client)


def test_it_tells_where_a_peer_is_and_since_when(bench: Bench) -> None:
    client = bench.client()
    rid = bench.hear(client)
    address, since_ms = bench.listener.peer(rid)
    assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
    assert since_ms is not None
    assert since_ms <= bench.clock.mono_ms()
    assert bench.listener.peer(b"nobody") == ("", None)
    client.close(0)
    bench.until(lambda: bench.listener.peer(rid) == ("", None))


def test_a_peer_that_comes_back_under_its_own_name_is_the_same_to_no_one(bench: Bench) -> None:
    """Its connection is another one: it has to log on, and is found when it has."""
    for _ in range(2):
        client = bench.named(b"myself")
        assert bench.hear(client) == b"myself"
        bench.listener.logged_on(b"myself")
        assert bench.listener.wires.quiet_ms(b"myself") is not None
        client.close(0)
        bench.until(lambda: bench.listener.left)
        assert bench.listener.take_left(1) == [b"myself"]


def test_peers_have_left_when_their_connections_end(bench: Bench) -> None:
    """One that never said anything is not known."""
    bench.client().close(0)
    rids = [bench.hear(bench.client()) for _ in range(2)]
    assert bench.listener.left == 0
    for client in bench._clients[1:]:
        client.close(0)
    bench.until(lambda: bench.listener.left == 2)
    assert sorted(bench.listener.take_left(2)) == sorted(rids)


def test_the_last_words_of_a_peer_end_no_other_one(bench: Bench) -> None:
    """They may be read when another one has its descriptor, and has said something."""
    old, new = bench.client(), bench.client()
    gone, here = bench.hear(old), bench.hear(new)
    wires = bench.listener.wires
    number, frame = wires.fds[here], mock.Mock()
    frame.get = lambda _option: str(number)
    bench.listener._meet(b"of before", frame)  # never heard before
    assert bench.listener.left == 0
    assert bench.hear(new) == here
    old.close(0)
    bench.until(lambda: bench.listener.left == 1)
    bench.listener._meet(gone, frame)
    assert wires.fds[here] == number
    assert bench.listener.take_left(1) == [gone]


def test_of_a_peer_that_left_nothing_comes_after_what_waits(bench: Bench) -> None:
    client = bench.client()
    rid, before = bench.hear(client), len(bench.said)
    bench.reading = False
    for _ in range(1_000):
        client.send(b"here")
    client.close(10_000)
    bench.until(lambda: bench.listener.left == 1)
    bench._read()
    assert [one for one, _, _ in bench.said[before:]] == [rid] * 1_000


def test_a_peer_may_leave_before_its_first_message_is_read(bench: Bench) -> None:
    bench.reading = False
    client = bench.client()
    for _ in range(2):
        client.send(b"here")
    client.close(10_000)
    bench.until(lambda: bench.listener.ended == 1)
    assert bench.listener.left == 0
    bench._read()
    assert bench.listener.take_left(bench.listener.left) == [bench.said[0][0]]
    assert len(bench.said) == 2


@pytest.mark.parametrize("curve", [False, True])
def test_what_a_peer_confirms_tells_whether_its_handshake_is_done(curve: bool) -> None:
    bench = Bench(curve=curve)
    limit = CURVE_SHAKEN_BYTES if curve else SHAKEN_BYTES
    bench.hear(bench.client())
    bench.stranger()
    bench.until(lambda: bench.listener.counts["connections"] == 2)
    flows = [bench.listener._flows.of(fd) for fd in bench.listener._guard._by_fd]
    assert sorted(flow.acked >= limit for flow in flows if flow) == [False, True]
    bench.close()


@pytest.mark.parametrize("curve", [False, True])
def test_bytes_that_are_read_are_counted_as_they_came(
    curve: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "HEARTBEAT_IVL_MS", 1_000 * int(WAIT_S))  # none is among them
    with closing(Bench(curve=curve)) as bench:
        client = bench.client()
        connection = bench.listener._of(bench.hear(client))
        assert connection is not None
        before, read = bench.listener._flows.of(connection.fd), connection.read
        sizes = [0, 1, 200, 221, 222, 223, 254, 255, 256, 257, 70_000]
        for size in sizes:
            client.send_multipart([b"", bytes(size), b"x"])
        bench.until(lambda: len(bench.said) == 1 + len(sizes))
        after = bench.listener._flows.of(connection.fd)
        assert before is not None
        assert after is not None
        assert connection.read - read == after.received - before.received
        assert connection.frames == 1 + 3 * len(sizes)


def test_what_was_cut_is_reported_once_in_a_while(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for ahead in (1, 2):
        bench.hear(bench.client())
        bench.clock.ahead_ms = ahead * 2 * guard.LOGON_MS
        bench.until(lambda ahead=ahead: bench.listener.counts["cut_silent"] >= ahead)
        bench.turn()
    reported = [each.getMessage() for each in caplog.records]
    assert len(reported) == 2
    assert "cut_silent 1; the last one cut came from 127.0.0.1" in reported[0]
