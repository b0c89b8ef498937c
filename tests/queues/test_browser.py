"""zbroker/queues/browser.py: looking into a queue without taking anything."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import KEY_A, STEP_NS, WALL_NS, Bench, bench, replayable, rules, work
from zbroker.queues import browser
from zbroker.wire import bodies
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s


def _filled(*configs: Any, count: int = 6) -> tuple[Bench, list[int]]:
    at = bench(*configs)
    return at, at.publish(*[b'{"n": %d}' % number for number in range(count)])


def _rows(at: Bench, **more: Any) -> q.Rows:
    at.send(q.Browse("q", "b", **more))
    assert at.codes() == []
    return at.of(q.Rows)[-1]


def _positions(at: Bench, **more: Any) -> tuple[list[int], int | None]:
    rows = _rows(at, **more)
    return [row.position for row in rows.rows], rows.next


def test_a_row_says_what_a_message_is_and_where_it_stands() -> None:
    at, positions = _filled()
    at.consume(backlog=1)
    at.pass_ms(1_000)
    rows = _rows(at).rows
    first, second = positions[:2]
    due_ms = rows[0].due_ms
    assert due_ms is not None
    assert 28_000 < due_ms < 30_000
    time_ns = WALL_NS + first * STEP_NS
    assert rows[0] == q.BrowsedRow(
        first, at.bookmark(first), "t", time_ns, 8, "leased", 1, 0, "ann", due_ms
    )
    assert rows[1] == q.BrowsedRow(second, at.bookmark(second), "t", time_ns, 8, "ready", 0, 0)
    assert at.bodies[-1] is None
    assert at.got() == [first], "nothing was taken"


def test_payloads_are_in_the_body_if_they_are_asked_for() -> None:
    at, _ = _filled(count=2)
    at.send(q.Browse("q", data=True))
    assert at.bodies[-1] == bodies.pack([b'{"n": 0}', b'{"n": 1}'])


def test_rows_go_on_behind_the_last_one() -> None:
    at, positions = _filled()
    assert _positions(at, limit=4) == (positions[:4], positions[3])
    assert _positions(at, limit=4, after=positions[3]) == (positions[4:], None)
    assert _positions(at, limit=6) == (positions, None)
    assert _positions(at, after=positions[-1]) == ([], None)


@pytest.mark.seed("003-33")
def test_an_answer_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows are asked for; what is left comes with the next question."""
    monkeypatch.setattr(browser, "SHOWN_BYTES", 250)
    at = bench()
    positions = [at.publish(b'{"n": %d}'.ljust(100) % number)[0] for number in range(7)]
    assert _positions(at, data=True) == (positions[:3], positions[2])
    assert _positions(at, data=True, after=positions[2]) == (positions[3:6], positions[5])
    assert _positions(at, data=True, after=positions[5]) == (positions[6:], None)
    at.unreadable.update(positions[:2])
    assert _positions(at, filter="/n != 3") == ([positions[n] for n in (2, 4, 5)], positions[5])


def test_an_empty_queue_has_no_rows() -> None:
    at = bench()
    assert _positions(at) == ([], None)


def test_rows_of_one_state() -> None:
    at, positions = _filled()
    at.consume(backlog=2)
    at.holding = True
    assert _positions(at, state="leased") == (positions[:2], None)
    assert _positions(at, state="ready", limit=2) == (positions[2:4], positions[3])
    assert _positions(at, state="ready", limit=2, after=positions[3]) == (positions[4:], None)
    assert _positions(at, state="nonsense") == ([], None)


def test_states_are_looked_at_for_so_many_messages_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(browser, "SCANNED_MAX", 4)
    at, positions = _filled()
    assert _positions(at, state="leased") == ([], positions[3])
    assert _positions(at, state="leased", after=positions[3]) == ([], None)


def test_rows_that_a_filter_is_true_for() -> None:
    at, positions = _filled()
    assert _positions(at, filter="/n > 3") == (positions[4:], None)
    assert _positions(at, filter="/n > 1", limit=2) == (positions[2:4], positions[3])
    assert _positions(at, filter="/n > 1", limit=2, after=positions[3]) == (positions[4:], None)
    assert _positions(at, filter="/n > 1", state="leased") == ([], None)


def test_a_filter_is_compared_with_so_many_messages_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(browser, "EXAMINED_MAX", 4)
    at, positions = _filled()
    assert _positions(at, filter="/n > 4") == ([], positions[3])
    assert _positions(at, filter="/n > 4", after=positions[3]) == (positions[5:], None)


def test_what_cannot_be_read_has_no_row() -> None:
    at, positions = _filled()
    at.unreadable.add(positions[0])
    assert _positions(at) == (positions[1:], None)


def test_the_rows_of_a_replayable_queue_say_what_was_acknowledged() -> None:
    at, positions = _filled(replayable(), count=2)
    at.ack(positions[0], sid=None, queue="q")
    assert [row.state for row in _rows(at).rows] == ["acked", "kept"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (q.Browse("nope", "b"), "unknown_queue"),
        (q.Browse("q", "b", filter="/n ="), "bad_filter"),
        (q.Browse("no", "b"), "not_entitled"),
    ],
)
def test_what_cannot_be_is_refused(command: q.Browse, code: str) -> None:
    at = Bench(work(), work("no"), access=rules("q", "nope"))
    at.logon(key=KEY_A)
    at.send(command)
    assert at.errors() == [(code, "b", None)]


# -- the admin --------------------------------------------------------------------------------


def test_the_admin_browses_too() -> None:
    at, positions = _filled()
    told = at.ask(s.BrowseQueue(7, "q", limit=2, filter="/n > 0", data=True))
    assert told.cid == 7
    assert [row.position for row in told.rows] == positions[1:3]
    assert told.payloads == [b'{"n": 1}', b'{"n": 2}']
    assert told.next == positions[2]


def test_the_admin_gets_no_payloads_unless_he_asks() -> None:
    at, _ = _filled()
    assert at.ask(s.BrowseQueue(7, "q", limit=2)).payloads == []


def test_the_admin_gets_so_many_rows_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(q, "BROWSED_MAX", 2)
    at, positions = _filled()
    assert len(at.ask(s.BrowseQueue(7, "q", limit=1_000_000)).rows) == 2
    assert at.ask(s.BrowseQueue(7, "q", limit=1_000_000)).next == positions[1]


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (s.BrowseQueue(7, "nope"), "unknown_queue"),
        (s.BrowseQueue(7, "q", filter="/n ="), "bad_filter"),
    ],
)
def test_the_admin_is_refused_what_cannot_be(question: s.BrowseQueue, code: str) -> None:
    at, _ = _filled()
    told = at.ask(question)
    assert (told.cid, told.code, told.rows) == (7, code, [])
