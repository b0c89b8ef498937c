"""zbroker/server/ports.py and its twin of the simulation: both keep what a core may rely on.

A Reconnect drops what is queued in the old socket, answers come before watermarks, of watermarks
only the newest comes, and of a peer that is not connected a send says so.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Protocol
from unittest import mock

import pytest
import zmq

from tests.sim.net import Net, Scheduler
from tests.sim.ports import JournalLink, WatermarksPublisher
from zbroker import sockets
from zbroker.engine.contract import Limit
from zbroker.engine.effects import (
    JOURNAL,
    WATERMARKS,
    Follow,
    Gate,
    Reconnect,
    Say,
)
from zbroker.engine.events import Gone, StopAsked
from zbroker.journal.effects import PublishWatermarks
from zbroker.limits import BEAT_MS, IDLE_BEAT_MS
from zbroker.server.ports import CommandsPort, JournalPort, SupervisorPort
from zbroker.wire import codec
from zbroker.wire.internal import Confirm, InternalMessage, Located, Watermarks, Welcome

WAIT_S = 20.0
MANY = Limit(1_000)


def watermarks(incarnation: int, persisted: int = 1) -> Watermarks:
    return Watermarks(incarnation, 1, 1, 1, persisted, persisted, 1, 0)


def welcome_of(incarnation: int) -> Welcome:
    return Welcome(incarnation, 1, 1, 1, 1, "sync", 1, 1, 1)


class Rig(Protocol):
    """A port and a journal at the other end."""

    port: Any

    def start(self) -> None:
        """The journal listens from now on."""

    def got(self, count: int) -> list[InternalMessage]:
        """The next messages that it is sent."""

    def answer(self, message: InternalMessage) -> None:
        """To the sender of the last message it got; it has arrived when this returns."""

    def publish(self, one: Watermarks) -> None:
        """It has arrived when this returns."""

    def commit(self, one: Watermarks) -> None:
        """Watermarks of a commit, which go to those that follow; others come after them."""

    def write(self, one: Watermarks) -> None:
        """The same of a group that is not durable yet."""

    def subscribed(self) -> None:
        """Returns when the journal has had the next subscription."""

    def heard(self) -> Iterator[Any]:
        """What the port has now, event by event."""


class Simulated:
    def __init__(self, *, every_write: bool = False) -> None:
        self.at = Scheduler(Random(1))
        self.net = Net(self.at)
        self.port = JournalLink(self.net, "journal", "marks", every_write=every_write)
        self._received: list[InternalMessage] = []
        self._listener: Any = None
        self._rid = b""

    def _settle(self) -> None:
        self.at.run_until(self.at.now_ms + 100)

    def start(self) -> None:
        self._listener = self.net.bind("journal", self._arrived)
        self._watermarks = WatermarksPublisher(self.net, "marks", lambda: None)
        self._settle()

    def _arrived(self, rid: bytes, frame: Any) -> None:
        self._rid = rid
        self._received.append(codec.TO_JOURNAL.decode(frame[0]))

    def got(self, count: int) -> list[InternalMessage]:
        self._settle()
        found, self._received = self._received[:count], self._received[count:]
        return found

    def answer(self, message: InternalMessage) -> None:
        self.net.answer(self._listener, self._rid, codec.encode(message))
        self._settle()

    def publish(self, one: Watermarks) -> None:
        self._publish(PublishWatermarks(one))

    def commit(self, one: Watermarks) -> None:
        self._publish(PublishWatermarks(one, of_commit=True))

    def write(self, one: Watermarks) -> None:
        self._publish(PublishWatermarks(one, of_write=True))

    def _publish(self, effect: PublishWatermarks) -> None:
        for rid in self._watermarks.readers(effect):
            self.net.answer(self._watermarks.listener, rid, codec.encode(effect.message))
        self._settle()

    def subscribed(self) -> None:
        self._settle()

    def heard(self) -> Iterator[Any]:
        yield from self.port.events({}, MANY)


class Places:
    """Paths, as far as they are asked."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def ipc(self, name: str) -> str:
        return f"ipc://{self._directory}/{name}"


class Real:
    def __init__(self, directory: str, *, every_write: bool = False) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.paths = Places(directory)
        self.poller = zmq.Poller()
        paths: Any = self.paths
        self.port = JournalPort(
            self.context, paths, self.poller, zmq.Poller(), every_write=every_write
        )
        self._rid = b""

    def start(self) -> None:
        self._router = sockets.inner_router(self.context)
        self._router.bind(self.paths.ipc("journal"))
        self._pub = sockets.watermarks_publisher(self.context)
        self._pub.bind(self.paths.ipc("marks"))
        self.subscribed()

    def got(self, count: int) -> list[InternalMessage]:
        """Of one connection: what was queued in a socket may still come, by a connection of its
        own, while libzmq closes it."""
        found: dict[bytes, list[InternalMessage]] = defaultdict(list)
        while len(found[self._rid]) < count:
            assert self._router.poll(int(WAIT_S * 1_000)), f"{found}, and then nothing"
            self._rid, *frames = self._router.recv_multipart()
            found[self._rid].append(codec.TO_JOURNAL.decode(frames[0]))
        return found[self._rid]

    def answer(self, message: InternalMessage) -> None:
        self._router.send_multipart([self._rid, codec.encode(message)])
        self._arrived(self.port._dealer)

    def publish(self, one: Watermarks) -> None:
        self._pub.send(sockets.EVERY_BEAT + codec.encode(one))
        self._arrived(self.port._watermarks)

    def commit(self, one: Watermarks) -> None:
        self._pub.send(sockets.EVERY_COMMIT + codec.encode(one))

    def write(self, one: Watermarks) -> None:
        self._pub.send(sockets.EVERY_WRITE + codec.encode(one))

    def subscribed(self) -> None:
        """A subscription has come."""
        asked = b"\0"  # a reader has left
        while not asked[0]:
            assert self._pub.poll(int(WAIT_S * 1_000)), "the port subscribes"
            asked = self._pub.recv()

    def _arrived(self, socket: Any) -> None:
        assert socket.poll(int(WAIT_S * 1_000)), "it does not arrive"

    def heard(self) -> Iterator[Any]:
        yield from self.port.events(dict(self.poller.poll(0)), MANY)

    def close(self) -> None:
        self.context.destroy(0)


@contextmanager
def rig_of(kind: str, *, every_write: bool = False) -> Iterator[Rig]:
    if kind == "simulated":
        yield Simulated(every_write=every_write)
        return
    with TemporaryDirectory(prefix="zb") as directory:  # paths of sockets are short
        made = Real(directory, every_write=every_write)
        yield made
        made.close()


@pytest.fixture(params=["simulated", "real"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with rig_of(request.param) as made:
        yield made


@pytest.fixture(params=["simulated", "real"])
def reader_of_writes(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with rig_of(request.param, every_write=True) as made:
        yield made


def eventually(done: Callable[[], bool], step: Callable[[], Any]) -> None:
    """Repeats the step until it is done: what was sent may take a while to arrive."""
    end = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < end
        step()


def say(number: int) -> Say:
    return Say(JOURNAL, Confirm(number, 0))


def test_what_was_said_before_a_reconnect_is_not_said_to_the_next_journal(rig: Rig) -> None:
    rig.port.say(say(1))
    rig.port.reconnect(Reconnect(JOURNAL))
    rig.port.say(say(2))
    rig.port.say(say(3))
    rig.start()
    assert rig.got(2) == [Confirm(2, 0), Confirm(3, 0)]


def test_answers_come_in_order_and_before_watermarks(rig: Rig) -> None:
    rig.start()
    rig.port.say(say(1))
    rig.got(1)
    rig.publish(watermarks(7))
    rig.answer(Located(1, 1))
    assert list(rig.heard()) == [Located(1, 1), watermarks(7)]
    found: list[Any] = []
    for cid in (2, 3):
        rig.answer(Located(cid, 1))
    eventually(lambda: len(found) == 2, lambda: found.extend(rig.heard()))
    assert found == [Located(2, 1), Located(3, 1)]


def test_nothing_of_the_old_socket_is_heard_after_a_reconnect(rig: Rig) -> None:
    rig.start()
    rig.port.say(say(1))
    rig.got(1)
    for cid in (1, 2):
        rig.answer(Located(cid, 1))
    events = rig.heard()
    assert next(events) == Located(1, 1)
    rig.port.reconnect(Reconnect(JOURNAL))
    assert list(events) == []
    assert list(rig.heard()) == []


def test_watermarks_of_a_journal_that_died_are_dropped_with_their_socket(rig: Rig) -> None:
    rig.start()
    rig.port.say(say(1))
    rig.got(1)
    rig.publish(watermarks(7))
    rig.answer(Located(1, 1))
    events = rig.heard()
    assert next(events) == Located(1, 1)
    rig.port.reconnect(Reconnect(WATERMARKS))
    assert list(events) == []


def test_the_open_segment_is_that_of_the_watermarks_of_the_same_journal() -> None:
    with TemporaryDirectory(prefix="zb") as directory:
        rig = Real(directory)
        rig.start()
        rig.port.say(say(1))
        rig.got(1)
        assert rig.port.open_segment() == (0, 0)
        for welcome, expected in [(welcome_of(7), (1, 5)), (welcome_of(8), (0, 0))]:
            rig.publish(watermarks(7, 5))
            assert list(rig.heard()) == [watermarks(7, 5)]
            assert rig.port.open_segment() == (1, 5)
            rig.answer(welcome)
            assert list(rig.heard()) == [welcome]
            assert rig.port.open_segment() == expected
        rig.publish(watermarks(7, 5))
        list(rig.heard())
        rig.port.reconnect(Reconnect(JOURNAL))
        assert rig.port.open_segment() == (0, 0)
        rig.close()


def test_watermarks_of_commits_come_while_they_are_followed(rig: Rig) -> None:
    rig.start()
    rig.commit(watermarks(7, 1))
    rig.publish(watermarks(7, 2))
    found = list(rig.heard())
    rig.port.follow(Follow(True))
    rig.subscribed()
    rig.port.reconnect(Reconnect(WATERMARKS))
    rig.subscribed()
    rig.commit(watermarks(7, 3))
    eventually(lambda: len(found) == 2, lambda: found.extend(rig.heard()))
    rig.write(watermarks(7, 4))
    assert list(rig.heard()) == [], "this one does not follow these"
    rig.commit(watermarks(7, 5))
    eventually(lambda: len(found) == 3, lambda: found.extend(rig.heard()))
    assert found == [watermarks(7, 2), watermarks(7, 3), watermarks(7, 5)]


def test_watermarks_of_what_is_not_durable_come_to_who_follows_them(reader_of_writes: Rig) -> None:
    rig = reader_of_writes
    rig.start()
    rig.write(watermarks(7, 1))
    rig.publish(watermarks(7, 2))
    found = list(rig.heard())
    rig.port.follow(Follow(True))
    rig.subscribed()
    for send, one in [(rig.write, 3), (rig.commit, 4), (rig.publish, 5)]:
        send(watermarks(7, one))
        eventually(lambda: len(found) == one - 1, lambda: found.extend(rig.heard()))  # noqa: B023
    assert [each.persisted for each in found] == [2, 3, 4, 5]


def test_of_watermarks_only_the_newest_is_there(rig: Rig) -> None:
    rig.start()
    for persisted in (1, 2, 3):
        rig.publish(watermarks(7, persisted))
    found: list[Any] = []
    eventually(lambda: found[-1:] == [watermarks(7, 3)], lambda: found.extend(rig.heard()))
    assert list(rig.heard()) == []


# -- commands -----------------------------------------------------------------------------------


class FakeListener:
    """A listener at which these commands wait; it is its own socket."""

    def __init__(self, count: int, *left: bytes) -> None:
        self.router, self.waiting = self, count
        self._left = [*left]

    @property
    def left(self) -> int:
        return len(self._left)

    def take_left(self, count: int) -> list[bytes]:
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def getsockopt(self, option: int) -> int:
        assert option == zmq.EVENTS
        return int(zmq.POLLIN) if self.waiting else 0

    def receive(self) -> Any:
        if not self.waiting:
            return None
        self.waiting -= 1
        return b"\0ann1", [zmq.Frame(b"%d" % self.waiting)], False, "", 1


def test_a_burst_of_commands_is_one_event_up_to_its_limit() -> None:
    listener = FakeListener(5)
    port = CommandsPort(listener, mock.Mock())  # type: ignore[arg-type]
    assert list(port.events({}, Limit(3))) == [], "the poller has found nothing"
    bursts = []
    for drained in (False, True):
        [burst] = port.events({listener: 1}, Limit(3))
        bursts.append([bytes(received.frames[0]) for received in burst.received])
        assert port.drained == drained
    assert bursts == [[b"4", b"3", b"2"], [b"1", b"0"]]
    assert list(port.events({listener: 1}, Limit(3))) == []
    assert port.drained


def test_a_single_command_is_read_without_a_read_that_finds_nothing() -> None:
    listener = FakeListener(1)
    port = CommandsPort(listener, mock.Mock())  # type: ignore[arg-type]
    with mock.patch.object(listener, "receive", wraps=listener.receive) as receive:
        [burst] = port.events({listener: 1}, Limit(3))
    assert (len(burst.received), receive.call_count, port.drained) == (1, 1, True)


def test_a_burst_ends_as_soon_as_it_has_so_many_bytes() -> None:
    listener = FakeListener(5)
    port = CommandsPort(listener, mock.Mock())  # type: ignore[arg-type]
    [burst] = port.events({listener: 1}, Limit(100, bytes=2))
    assert (len(burst.received), port.drained) == (2, False)


def test_after_a_closed_gate_commands_wait_unread() -> None:
    """No one is silent meanwhile: not all that arrived was read."""
    listener, pollers = FakeListener(1), [mock.Mock(), mock.Mock()]
    port = CommandsPort(listener, *pollers)  # type: ignore[arg-type]
    port.gate(Gate("clients", open=False))
    assert list(port.events({listener: 1}, Limit(3))) == []
    assert (listener.waiting, port.drained) == (1, False)
    port.gate(Gate("clients", open=True))
    assert len(list(port.events({listener: 1}, Limit(3)))) == 1
    assert port.drained
    for poller in pollers:
        told = [(call[0], *call.args[:1]) for call in poller.method_calls]
        assert told == [(name, listener) for name in ("register", "unregister", "register")]


def test_a_client_that_left_is_gone_once_all_that_it_sent_was_read() -> None:
    """Where the poller has found nothing, something may have come since."""
    listener = FakeListener(5, b"\0ann1")
    port = CommandsPort(listener, mock.Mock())  # type: ignore[arg-type]
    assert port.next_wake_ms() == 0
    assert [len(burst.received) for burst in port.events({}, Limit(3))] == [3]
    assert port.next_wake_ms() == 0
    burst, gone = port.events({}, Limit(3))
    assert (len(burst.received), gone) == (2, Gone(b"\0ann1"))
    assert port.next_wake_ms() is None


def test_of_clients_that_left_so_many_are_gone_in_one_turn() -> None:
    port = CommandsPort(FakeListener(0, *b"abcde"), mock.Mock())  # type: ignore[arg-type]
    assert [len(port.events({}, Limit(3))) for _ in range(3)] == [3, 2, 0]


def test_behind_a_closed_gate_a_client_that_left_is_still_there() -> None:
    """What it sent may wait there."""
    port = CommandsPort(FakeListener(0, b"\0ann1"), mock.Mock())  # type: ignore[arg-type]
    port.gate(Gate("clients", open=False))
    assert (list(port.events({}, Limit(3))), port.next_wake_ms()) == ([], None)
    port.gate(Gate("clients", open=True))
    assert list(port.events({}, Limit(3))) == [Gone(b"\0ann1")]


# -- the supervisor -----------------------------------------------------------------------------


class Clock:
    now_ms = 0

    def mono_ms(self) -> int:
        return self.now_ms

    def wall_ns(self) -> int:
        return 0


class Process:
    """As far as the port asks. `beats`: with which statistics it did."""

    def __init__(self) -> None:
        self.clock, self.link = Clock(), "link"
        self.next_beat_ms, self.stopping = 0, False
        self.stats: dict[str, Any] = {}
        self.beats: list[dict[str, Any]] = []
        self.heap = mock.Mock()

    def turn(self) -> None:
        if self.clock.now_ms >= self.next_beat_ms:
            self.beats.append(self.stats)
            self.next_beat_ms = self.clock.now_ms + BEAT_MS


class Beating:
    """A port at several times; `beats`: when it did, with which statistics."""

    def __init__(self) -> None:
        self.process, self.stats = Process(), {"n": 0}
        self.port = SupervisorPort(self.process, mock.Mock(), self.stats.copy)  # type: ignore[arg-type]

    def at(self, now_ms: int, ready: Mapping[Any, int] = MappingProxyType({})) -> int:
        """A turn; how often it has beaten since the start."""
        self.process.clock.now_ms = now_ms
        assert list(self.port.events(ready, Limit(1))) == []
        return len(self.process.beats)


def test_the_supervisor_hears_new_statistics_twice_a_second() -> None:
    beating = Beating()
    assert beating.at(0) == 1
    beating.stats["n"] = 1
    assert [beating.at(now_ms) for now_ms in (499, 500)] == [1, 2]
    assert beating.process.beats == [{"n": 0}, {"n": 1}]


def test_a_process_with_the_same_statistics_beats_less_often() -> None:
    beating = Beating()
    assert [beating.at(now_ms) for now_ms in (0, 500, 1_000, IDLE_BEAT_MS)] == [1, 1, 1, 2]
    assert beating.port.next_wake_ms() == 2 * IDLE_BEAT_MS


def test_the_heap_hears_whether_anything_happened() -> None:
    beating = Beating()
    beating.at(0)
    beating.stats["n"] = 1
    for now_ms in (500, 1_000, 500 + IDLE_BEAT_MS):
        beating.at(now_ms)
    heard = [(one.args[0], one.kwargs["busy"]) for one in beating.process.heap.beat.mock_calls]
    assert heard == [(0, True), (500, True), (1_000, False), (500 + IDLE_BEAT_MS, False)]


def test_a_process_that_was_woken_looks_for_new_statistics_soon() -> None:
    beating = Beating()
    beating.at(0)
    assert beating.port.next_wake_ms() == IDLE_BEAT_MS
    beating.at(700, {"socket": 1})
    assert beating.port.next_wake_ms() <= 700 + 2 * BEAT_MS
    beating.stats["n"] = 1  # by the event of that turn
    assert beating.at(beating.port.next_wake_ms()) == 2


def test_a_process_that_is_awake_beats_a_little_early() -> None:
    beating = Beating()
    beating.at(0)
    beating.stats["n"] = 1
    assert beating.at(450) == 1
    assert beating.at(450, {"socket": 1}) == 2


def test_the_core_is_asked_to_stop_once() -> None:
    process = Process()
    port = SupervisorPort(process, mock.Mock(), dict)  # type: ignore[arg-type]
    process.stopping = True
    assert list(port.events({"link": 1}, Limit(1))) == [StopAsked()]
    assert list(port.events({"link": 1}, Limit(1))) == []
