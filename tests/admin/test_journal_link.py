"""zbroker/admin/journal_link.py: every question gets an answer or an error, whatever dies."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.admin.rig import Clock, Journal
from zbroker import sockets
from zbroker.admin.journal_link import AdminJournalLink, Answer, HoldLeases
from zbroker.clock import SystemClock
from zbroker.errors import ClientError
from zbroker.server.process_loop import ONE
from zbroker.wire import codec
from zbroker.wire import internal as m

LIMIT_S = 10.0


class Bench:
    """A link with its loop on the test's thread, and a journal that says what the test tells it."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.clock = SystemClock()
        self.poller = zmq.Poller()
        self.link = AdminJournalLink(self.context, endpoint, 77, self.poller, self.clock)
        self.incarnation = 0
        self.hellos = 0
        self.heard: list[Any] = []
        self.router: zmq.Socket[bytes] | None = None

    def journal(self, incarnation: int) -> None:
        """A journal process begins."""
        self.router = sockets.inner_router(self.context)
        self.router.bind(self.endpoint)
        self.incarnation = incarnation

    def kill(self) -> None:
        assert self.router is not None
        self.router.close(linger=0)
        self.router = None

    def turn(self) -> None:
        """Both sides, once."""
        ready = self.poller.poll(5)
        self.link.events(dict(ready), ONE)
        while self.router is not None and (got := sockets.receive_from(self.router)) is not None:
            self._answer(got[0], codec.TO_JOURNAL.decode(got[1][0].buffer))

    def _answer(self, rid: bytes, message: Any) -> None:
        assert self.router is not None
        if isinstance(message, m.Hello):
            self.hellos += 1
            welcome = m.Welcome(self.incarnation, message.incarnation, 1, 0, 0, "disk", 1, 1, 1)
            sockets.send_to(self.router, rid, codec.encode(welcome))
        elif message.incarnation == self.incarnation:
            self.heard.append((rid, message))

    def reply(self, answer: m.InternalMessage) -> None:
        rid, _ = self.heard.pop(0)
        assert self.router is not None
        sockets.send_to(self.router, rid, codec.encode(answer))

    def until(self, done: Any) -> None:
        deadline = self.clock.mono_ms() + LIMIT_S * 1_000
        while not done():
            assert self.clock.mono_ms() < deadline, "not in time"
            self.turn()

    def answer_of(self, future: Future[Answer]) -> Answer:
        self.until(future.done)
        return future.result(0)

    def close(self) -> None:
        self.link.close()
        self.context.destroy(linger=0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(f"ipc://{tmp_path}/j")
    try:
        yield made
    finally:
        made.close()


def test_a_question_is_answered(bench: Bench) -> None:
    bench.journal(5)
    future = bench.link.send(m.Retire, serial=3, archived=False, packed=True)
    bench.until(lambda: bench.heard)
    _, asked = bench.heard[0]
    assert (asked.incarnation, asked.serial, asked.packed) == (5, 3, True)
    bench.reply(m.Done(asked.cid))
    assert isinstance(bench.answer_of(future), m.Done)


def test_what_is_asked_before_the_journal_runs_waits_for_it(bench: Bench) -> None:
    future = bench.link.send(m.Reindex)
    for _ in range(5):
        bench.turn()
    bench.journal(5)
    bench.until(lambda: bench.heard)
    bench.reply(m.Done(bench.heard[0][1].cid))
    assert isinstance(bench.answer_of(future), m.Done)


def test_answers_find_their_questions_in_any_order(bench: Bench) -> None:
    bench.journal(5)
    first, second = bench.link.send(m.Reindex), bench.link.send(m.Reindex)
    bench.until(lambda: len(bench.heard) == 2)
    bench.heard.reverse()
    for text in ("second", "first"):
        bench.reply(m.Done(bench.heard[0][1].cid, code="x", reason=text))
    for future, text in ((first, "first"), (second, "second")):
        answer = bench.answer_of(future)
        assert isinstance(answer, m.Done)
        assert answer.reason == text


def test_a_journal_that_knows_it_no_more_is_greeted_again(bench: Bench) -> None:
    bench.journal(5)
    future = bench.link.send(m.Reindex)
    bench.until(lambda: bench.heard)
    bench.reply(m.UnknownRequester())
    with pytest.raises(ClientError, match="not_ready: the journal did not take it"):
        bench.answer_of(future)
    bench.until(lambda: bench.link.welcome)
    assert bench.hellos == 2
    future = bench.link.send(m.Reindex)
    bench.until(lambda: bench.heard)
    bench.reply(m.Done(bench.heard[0][1].cid))
    assert isinstance(bench.answer_of(future), m.Done)


def test_a_dead_journal_fails_what_it_did_not_answer_and_gets_nothing_twice(bench: Bench) -> None:
    bench.journal(5)
    future = bench.link.send(m.Reindex)
    bench.until(lambda: bench.heard)
    bench.kill()
    with pytest.raises(ClientError, match="not_ready"):
        bench.answer_of(future)
    assert bench.link.welcome is None
    bench.heard.clear()
    bench.journal(6)
    bench.until(lambda: bench.link.welcome)
    again = bench.link.send(m.Reindex)
    bench.until(lambda: bench.heard)
    assert [asked.incarnation for _, asked in bench.heard] == [6]
    bench.reply(m.Done(bench.heard[0][1].cid))
    assert isinstance(bench.answer_of(again), m.Done)


def test_who_asks_waits_only_so_long(bench: Bench) -> None:
    with pytest.raises(ClientError, match="did not answer"):
        bench.link.ask(m.Done, m.Reindex, wait_s=0.01)
    bench.journal(5)
    bench.until(lambda: bench.link.welcome)
    bench.turn()
    assert bench.heard == [], "no one waits for it any more"


def test_who_asks_from_another_thread_wakes_the_loop(bench: Bench) -> None:
    bench.journal(5)
    bench.until(lambda: bench.link.welcome)
    answers: list[m.Done] = []
    thread = threading.Thread(
        target=lambda: answers.append(bench.link.ask(m.Done, m.Reindex, wait_s=LIMIT_S)),
        daemon=True,
    )
    thread.start()
    bench.until(lambda: bench.heard)
    bench.reply(m.Done(bench.heard[0][1].cid))
    bench.until(lambda: answers)
    thread.join(LIMIT_S)


def test_a_closed_link_answers_everybody_at_once(bench: Bench) -> None:
    future = bench.link.send(m.Reindex)
    bench.link.close()
    with pytest.raises(ClientError, match="stopping"):
        future.result(0)
    with pytest.raises(ClientError, match="stopping"):
        bench.link.send(m.Reindex).result(0)
    bench.link = AdminJournalLink(bench.context, bench.endpoint, 77, bench.poller, bench.clock)


def test_a_journal_that_says_nothing_hears_hello_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zbroker.admin.journal_link.WELCOME_WAIT_MS", 20)
    monkeypatch.setattr(bench, "_answer", lambda *_: setattr(bench, "hellos", bench.hellos + 1))
    bench.journal(5)
    bench.until(lambda: bench.hellos >= 3)
    assert bench.link.welcome is None


LOG = logging.getLogger("test")
HOLDING = m.Holding("backup", "copies", 7, 0)


class LeasesBench:
    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        journal: Any = Journal(lambda: pytest.fail("no one asks for files"))
        self.journal = journal
        self.path = path
        self.leases = self.reopened()

    def reopened(self) -> HoldLeases:
        return HoldLeases(self.path, self.clock, LOG)

    def reported(self) -> list[tuple[str, int]]:
        asked = [ask for ask in self.journal.asked if isinstance(ask, m.Lease)]
        self.journal.asked.clear()
        return [(ask.holding.who, ask.ttl_ms) for ask in asked]


@pytest.fixture
def leases_bench(tmp_path: Path) -> LeasesBench:
    return LeasesBench(tmp_path / "leases.json")


def test_a_lease_outlives_the_admin(leases_bench: LeasesBench) -> None:
    leases_bench.leases.hold(leases_bench.journal, HOLDING, 60)
    leases_bench.reported()
    leases_bench.clock.seconds += 20
    leases_bench.reopened().secure(leases_bench.journal)
    assert leases_bench.reported() == [("backup", 40_000)]


def test_a_journal_is_informed_once(leases_bench: LeasesBench) -> None:
    leases_bench.leases.hold(leases_bench.journal, HOLDING, 60)
    leases_bench.leases.secure(leases_bench.journal)
    leases_bench.reported()
    leases_bench.leases.secure(leases_bench.journal)
    assert leases_bench.reported() == []


def test_a_lease_ends_with_its_time(leases_bench: LeasesBench) -> None:
    leases_bench.leases.hold(leases_bench.journal, HOLDING, 60)
    leases_bench.reported()
    leases_bench.clock.seconds += 60
    leases_bench.leases.secure(leases_bench.journal)
    assert leases_bench.reported() == []


def test_a_lease_can_be_ended(leases_bench: LeasesBench) -> None:
    leases_bench.leases.hold(leases_bench.journal, HOLDING, 60)
    leases_bench.leases.hold(leases_bench.journal, HOLDING, 0)
    assert leases_bench.reported() == [("backup", 60_000), ("backup", 0)]
    leases_bench.reopened().secure(leases_bench.journal)
    assert leases_bench.reported() == []


def test_a_lease_that_is_refused_is_not_kept(leases_bench: LeasesBench) -> None:
    leases_bench.journal.refuse[m.Lease] = ("bookmark_expired", "gone")
    with pytest.raises(ClientError, match="gone"):
        leases_bench.leases.hold(leases_bench.journal, HOLDING, 60)
    leases_bench.journal.refuse.clear()
    leases_bench.reported()
    leases_bench.leases.secure(leases_bench.journal)
    assert leases_bench.reported() == []


def test_a_lease_that_is_void_is_reported(
    leases_bench: LeasesBench, caplog: pytest.LogCaptureFixture
) -> None:
    leases_bench.leases.hold(leases_bench.journal, HOLDING, 60)
    leases_bench.journal.refuse[m.Lease] = ("bookmark_expired", "gone")
    leases_bench.reopened().secure(leases_bench.journal)
    assert "the lease of backup is void: gone" in caplog.text


def test_without_a_journal_nothing_is_secured(leases_bench: LeasesBench) -> None:
    leases_bench.journal.welcome = None
    with pytest.raises(ClientError, match="not_ready"):
        leases_bench.leases.secure(leases_bench.journal)


def test_a_damaged_file_is_reported_and_begun_again(
    leases_bench: LeasesBench, caplog: pytest.LogCaptureFixture
) -> None:
    leases_bench.path.write_bytes(b"{")
    again = leases_bench.reopened()
    assert "leases of an earlier run are lost" in caplog.text
    again.hold(leases_bench.journal, HOLDING, 60)
    leases_bench.reported()
    leases_bench.reopened().secure(leases_bench.journal)
    assert leases_bench.reported() == [("backup", 60_000)]
