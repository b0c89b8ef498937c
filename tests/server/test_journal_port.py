"""zbroker/server/ports.py: the sockets to the journal with a session on them, whatever dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import zmq

from zbroker import sockets
from zbroker.clock import SystemClock
from zbroker.engine.contract import Limit, Now, TurnPlan
from zbroker.engine.effects import JOURNAL, Follow, Reconnect, Say
from zbroker.engine.journal_session import WELCOME_WAIT_MS, JournalSession
from zbroker.engine.turn import Turn
from zbroker.paths import Paths
from zbroker.server.ports import JournalPort
from zbroker.wire import codec
from zbroker.wire import internal as i

MINE = 70
LIMIT_MS = 10_000


class SessionCore:
    """A core that only keeps its session with the journal."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.session = JournalSession(MINE, lambda number: i.Hello("queues", MINE, number=number))

    def handle(self, event: Any, now: Now) -> Sequence[Reconnect | Say]:
        if isinstance(event, i.Watermarks):
            effects = self.session.watermarks(event.incarnation, now.mono_ms)
            self._bench.watermarks.append(event)
        else:
            found = self.session.welcome(event) if isinstance(event, i.Welcome) else []
            if found is None:
                return []
            effects = found
            self._bench.answers.append(event)
        self._bench.order.append(event)
        return effects

    def tick(self, now: Now, *, drained: bool) -> Sequence[Reconnect | Say]:
        return self.session.tick(now.mono_ms)

    def next_read(self) -> None:
        return None

    def next_wake_ms(self) -> int | None:
        return self.session.next_wake_ms()


class Bench:
    """A port, and a journal that says what the test tells it."""

    def __init__(self, directory: Path) -> None:
        self.paths = Paths(directory, directory, directory, 1)
        self.paths.run.mkdir()
        self.paths.sockets_note.write_text(str(directory))
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.poller = zmq.Poller()
        self.clock = SystemClock()
        self.now_ms = 1
        self.heard: list[Any] = []
        self.hellos: list[i.Hello] = []
        self.answered = 0  # of the hellos, by `met`
        self.said: list[list[bytes]] = []
        self.rid = b""
        self.answers: list[Any] = []
        self.order: list[Any] = []  # answers and marks
        self.watermarks: list[i.Watermarks] = []
        self.router: zmq.Socket[bytes] | None = None
        self.publisher: zmq.Socket[bytes] | None = None
        self.port = JournalPort(self.context, self.paths, self.poller, zmq.Poller())
        self.core = SessionCore(self)
        plan = TurnPlan([(self.port, Limit(1))], (Say, Reconnect))
        performers = {Say: self.port.say, Reconnect: self.port.reconnect}
        self._turn: Turn[Any, Any] = Turn(
            self.core, plan, performers, lambda: Now(self.now_ms, 0)
        )  # fmt: skip

    @property
    def welcomed_by(self) -> int:
        return self.core.session.welcomed_by

    def journal(self) -> None:
        """One begins."""
        self.router = sockets.inner_router(self.context)
        self.router.bind(self.paths.ipc("journal"))
        self.publisher = sockets.watermarks_publisher(self.context)
        self.publisher.bind(self.paths.ipc("marks"))

    def kill(self) -> None:
        for socket in (self.router, self.publisher):
            assert socket is not None
            socket.close(linger=0)
        self.router = self.publisher = None

    def say(self, message: i.InternalMessage) -> None:
        assert self.router is not None
        sockets.send_to(self.router, self.rid, codec.encode(message))

    def welcome(self, incarnation: int, echo: int = MINE) -> None:
        self.say(i.Welcome(incarnation, echo, 1, 1, 0, "disk", 1, 1, 1))

    def mark(self, incarnation: int, persisted: int = 1) -> None:
        assert self.publisher is not None
        watermarks = i.Watermarks(incarnation, 1, 1, 1, 1, persisted, 1, 0)
        self.publisher.send(sockets.EVERY_BEAT + codec.encode(watermarks))

    def turn(self) -> None:
        """Both sides, once."""
        events = dict(self.poller.poll(5))
        self._turn.run(events)
        while self.router is not None and (got := sockets.receive_from(self.router)) is not None:
            message = codec.TO_JOURNAL.decode(got[1][0].buffer)
            if isinstance(message, i.Hello):
                self.rid = got[0]
                self.hellos.append(message)
            else:
                self.heard.append(message)
                self.said.append([bytes(frame.buffer) for frame in got[1][1:]])

    def until(self, done: Callable[[], object], each: Callable[[], None] = lambda: None) -> None:
        deadline = self.clock.mono_ms() + LIMIT_MS
        while not done():
            assert self.clock.mono_ms() < deadline, "not in time"
            each()
            self.turn()

    def wait(self, sockets: int, each: Callable[[], None] = lambda: None) -> None:
        """Until something waits in so many of the port's sockets; it is not read."""
        deadline = self.clock.mono_ms() + LIMIT_MS
        while len(self.poller.poll(5)) < sockets:
            assert self.clock.mono_ms() < deadline, "not in time"
            each()

    def met(self, incarnation: int) -> None:
        """Is welcomed by a journal."""
        self.until(lambda: len(self.hellos) > self.answered)
        self.answered = len(self.hellos)
        self.welcome(incarnation)
        self.until(lambda: self.welcomed_by == incarnation)


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.context.destroy(linger=0)


def test_a_journal_learns_who_is_there(at: Bench) -> None:
    at.journal()
    at.met(5)
    assert at.hellos == [i.Hello("queues", MINE, number=1)]
    assert [type(answer) for answer in at.answers] == [i.Welcome]


def test_the_run_directory_is_not_needed_any_more(at: Bench) -> None:
    at.journal()
    at.met(5)
    at.paths.sockets_note.unlink()
    at.port.follow(Follow(on=True))
    at.until(lambda: at.watermarks, lambda: at.mark(5))


def test_what_is_said_comes_with_its_bodies(at: Bench) -> None:
    at.journal()
    at.met(5)
    at.port.say(Say(JOURNAL, i.Locate(1, "0"), [b"one", memoryview(b"two")]))
    at.until(lambda: at.heard)
    assert at.heard == [i.Locate(1, "0")]
    assert at.said == [[b"one", b"two"]]


def test_answers_come_in_order(at: Bench) -> None:
    at.journal()
    at.met(5)
    for cid in range(5):
        at.say(i.Located(cid))
    at.until(lambda: len(at.answers) == 6)
    assert [answer.cid for answer in at.answers[1:]] == list(range(5))


def test_a_welcome_to_another_process_is_not_listened_to(at: Bench) -> None:
    at.journal()
    at.until(lambda: at.hellos)
    at.welcome(5, echo=MINE + 1)
    at.say(i.Located(1))
    at.until(lambda: at.answers)
    assert at.answers == [i.Located(1)]
    assert at.welcomed_by == 0


def test_a_hello_that_is_not_answered_is_said_again(at: Bench) -> None:
    at.journal()
    at.until(lambda: at.hellos)
    first = at.rid
    at.now_ms += WELCOME_WAIT_MS - 1
    at.turn()
    assert len(at.hellos) == 1
    at.now_ms += 1
    at.until(lambda: len(at.hellos) == 2)
    assert at.rid != first, "on a new socket"
    at.welcome(5)
    at.until(lambda: at.welcomed_by == 5)
    at.now_ms += 10 * WELCOME_WAIT_MS
    at.turn()
    assert len(at.hellos) == 2


def test_the_newest_marks_are_given(at: Bench) -> None:
    at.journal()
    at.met(5)
    at.until(lambda: at.watermarks, lambda: at.mark(5, 9))
    assert at.watermarks[-1].persisted == 9


def test_for_marks_of_the_same_journal_nothing_else_is_read(
    at: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come with each commit."""
    at.journal()
    at.met(5)
    at.until(lambda: at.watermarks, lambda: at.mark(5))
    reads: list[object] = []
    receive = sockets.receive

    def counted(socket: zmq.Socket[bytes]) -> sockets.Frames | None:
        reads.append(socket)
        return receive(socket)

    monkeypatch.setattr(sockets, "receive", counted)
    at.until(lambda: at.watermarks[-1].persisted == 2, lambda: at.mark(5, 2))
    assert reads
    assert set(reads) == {at.port._watermarks}


def test_marks_of_another_journal_lead_to_a_new_hello(at: Bench) -> None:
    at.journal()
    at.met(5)
    at.until(lambda: at.watermarks, lambda: at.mark(5))
    at.kill()
    at.journal()
    at.until(lambda: at.watermarks[-1].incarnation == 6, lambda: at.mark(6))
    assert at.welcomed_by == 0
    at.met(6)
    at.until(
        lambda: len(at.watermarks) > 1 and at.watermarks[-1].incarnation == 6, lambda: at.mark(6)
    )


def test_what_a_journal_answered_before_it_died_comes_before_the_marks_of_the_next(
    at: Bench,
) -> None:
    """A reader that took them the other way round went back to how the dead one's log ended."""
    at.journal()
    at.until(lambda: at.hellos)
    at.answered = 1
    at.welcome(5)
    at.say(i.Located(1))
    at.wait(1)
    at.kill()
    at.journal()
    at.wait(2, lambda: at.mark(6))
    at.turn()
    assert [type(message) for message in at.order] == [i.Welcome, i.Located]
    at.until(lambda: at.watermarks, lambda: at.mark(6))
    assert at.welcomed_by == 0
    at.met(6)


def test_marks_of_a_journal_that_died_do_not_come_after_the_welcome_of_the_next(
    at: Bench,
) -> None:
    at.journal()
    at.until(lambda: at.hellos)
    at.wait(1, lambda: at.mark(5))
    at.welcome(6)
    at.wait(2)
    at.turn()
    at.turn()
    assert at.order == at.answers
    assert at.welcomed_by == 6


def test_a_second_welcome_of_the_same_journal_keeps_the_sockets(at: Bench) -> None:
    at.journal()
    at.met(5)
    sockets_before = {socket for socket, _ in at.poller.sockets}
    at.welcome(5)
    at.until(lambda: len(at.answers) == 2)
    assert {socket for socket, _ in at.poller.sockets} == sockets_before


def test_both_sockets_and_no_more_are_waited_for(at: Bench) -> None:
    at.journal()
    for incarnation in (5, 6, 7):
        at.until(lambda: at.hellos)
        at.welcome(incarnation)
        at.until(lambda wanted=incarnation: at.welcomed_by == wanted)
    assert len(at.poller.sockets) == 2
