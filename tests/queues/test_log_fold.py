"""zbroker/queues/log_fold.py: blocks go into the queues that they are about, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import Bench, bench, replayable, work
from zbroker.definitions.intake import QueueIntake
from zbroker.queues import commits
from zbroker.queues.queue_state import QueueState
from zbroker.queues.work.queue import Queue
from zbroker.wire import messages as m
from zbroker.wire import queue_surveys as s

IDLE = 200


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of queues, by name of what."""
    found: list[str] = []
    for of, name in ((QueueIntake, "__call__"), (Queue, "next_wake"), (QueueState, "waited")):
        real = getattr(of, name)

        def counted(self: Any, *given: Any, real: Any = real, name: str = name) -> Any:
            found.append(name)
            return real(self, *given)

        monkeypatch.setattr(of, name, counted)
    return found


def test_idle_queues_are_asked_nothing_when_others_get_messages(asked: list[str]) -> None:
    """However many there are: a batch, a turn and a tick cost what is in them."""
    counts = []
    for idle in (0, IDLE):
        at = bench(work("busy"), *(work(f"idle{i}", topic=f"x{i}") for i in range(idle)))
        at.consume("busy")
        asked.clear()
        positions = at.many(3)
        at.pass_ms(1_000)
        at.ack(*positions)
        at.holds(0)
        counts.append(len(asked))
    assert counts[0] == counts[1] > 0


def test_the_admin_is_told_of_idle_queues_what_is_so() -> None:
    at = bench(work("a"), work("idle", topic="x"))
    rows = [at.ask(s.AskQueues(1, "idle")).rows[0] for _ in range(2)]
    assert rows[0] is rows[1]
    at.many(3)
    [row] = at.ask(s.AskQueues(1, "idle")).rows
    assert (row.depth, row.behind, row.holding) == (0, 0, at.position)
    at.consume("idle")
    assert at.ask(s.AskQueues(1, "idle")).rows[0].consumers == 1
    at.publish(b"1", topic="x")
    assert at.ask(s.AskQueues(1, "idle")).rows[0].depth == 1


def test_the_admin_is_told_how_an_idle_queue_was_altered() -> None:
    at = Bench()
    at.ask(s.Define(1, "create", "q", {"topic": "t"}))
    at.ask(s.AskQueues(1, "q"))
    at.ask(s.Define(1, "alter", "q", {"lease": "5s"}))
    assert at.ask(s.AskQueues(1, "q")).rows[0].definition["lease"] == 5_000


def test_a_queue_that_waited_for_units_goes_on_when_they_landed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else touches it: its messages came long before."""
    monkeypatch.setattr(commits, "UNDER_WAY_MAX", 1)
    at = bench(work("a"), work("b", topic="x"))
    at.holding = True
    for number in range(4):
        at.ask(s.SetPoint(number, f"p{number}"))
    assert at.manager.commits.full
    expected = at.publish(b"1", topic="x")
    at.consume("b")
    assert at.got() == []
    at.holding = False
    at.land()
    assert at.got() == expected


def test_a_replay_does_not_end_before_the_log_was_read_up_to_its_end() -> None:
    at = bench(replayable())
    first = at.many(2)
    at.reading = False
    more = at.many(2)
    at.consume(since="epoch", until="now")
    assert [ack for ack in at.of(m.Ack) if ack.type == "completed"] == []
    at.reading = True
    at.fold()
    at.run()
    assert at.got() == first + more
    assert at.of(m.Ack)[-1].type == "completed"
