"""zbroker/queues/changes.py: which queues changed since somebody looked."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.queues.bench import AFTER_LEASE_MS, BOB, Bench, bench, replayable, work
from zbroker.queues.changes import Changes
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s


def test_what_changed_after_a_look_is_found() -> None:
    changes = Changes()
    changes.note("a")
    changes.note("b")
    first = changes.look()
    assert changes.since(first) == []
    changes.note("a")
    second = changes.look()
    changes.note("c")
    assert (changes.since(first), changes.since(second)) == (["c", "a"], ["c"])
    assert sorted(changes.since(0)) == ["a", "b", "c"]


class Watching:
    """An admin that asks only for what changed. `rows`: what it knows by that."""

    def __init__(self, at: Bench) -> None:
        self.at = at
        self.rows: dict[str, s.QueueRow] = {}
        self.look = self.incarnation = 0
        self.told: list[str] = []

    def ask(self) -> None:
        answer = self.at.ask(s.AskQueues(1, since=self.look, of=self.incarnation))
        self.look, self.incarnation = answer.look, answer.incarnation
        if answer.whole:
            self.rows = {}
        for name in answer.gone:
            self.rows.pop(name, None)
        self.rows |= {row.name: replace(row) for row in answer.rows}
        self.told = sorted(row.name for row in answer.rows)


def _lasting(row: s.QueueRow) -> s.QueueRow:
    """Without what follows from the time or from the end of the log alone."""
    return replace(row, behind=0, idle_ms=None, holding=row.holding if row.depth else 0)


def test_a_queue_that_stands_still_is_not_told_again() -> None:
    at = bench(work("busy"), *(work(f"idle{i}", topic=f"x{i}") for i in range(20)))
    admin = Watching(at)
    admin.ask()
    assert len(admin.told) == 21
    admin.ask()
    assert admin.told == [], "nothing happened"
    at.many(3)
    at.pass_ms(1_000)
    admin.ask()
    assert admin.told == ["busy"]
    admin.ask()
    assert admin.told == []


def test_a_queue_that_is_gone_is_told_once() -> None:
    at = Bench()
    at.ask(s.Define(1, "create", "q", {"topic": "t"}))
    admin = Watching(at)
    admin.ask()
    at.ask(s.Define(1, "delete", "q"))
    answer = at.ask(s.AskQueues(1, since=admin.look, of=admin.incarnation))
    assert (answer.gone, answer.rows) == (["q"], [])
    at.ask(s.Define(1, "create", "q", {"topic": "t"}))
    admin.ask()
    assert admin.rows["q"].life == 2


def test_a_queue_that_is_altered_is_told() -> None:
    at = Bench()
    at.ask(s.Define(1, "create", "q", {"topic": "t"}))
    admin = Watching(at)
    admin.ask()
    at.ask(s.Define(1, "alter", "q", {"lease": "5s"}))
    admin.ask()
    assert admin.rows["q"].definition["lease"] == 5_000


def test_after_a_restart_everything_is_told() -> None:
    at = bench(work("a"), work("b", topic="x"))
    admin = Watching(at)
    admin.ask()
    at.restart()
    admin.ask()
    assert admin.told == ["a", "b"]
    admin.look = 0
    admin.ask()
    assert admin.told == ["a", "b"]


def test_whoever_asks_for_one_queue_gets_it() -> None:
    at = bench(work("a"), work("b", topic="x"))
    look = at.ask(s.AskQueues(1)).look
    answer = at.ask(s.AskQueues(1, "a", since=look, of=at.incarnation))
    assert [row.name for row in answer.rows] == ["a"]


STEPS: dict[str, Any] = {
    "publish": lambda at: at.many(3),
    "publish to the other": lambda at: at.publish(b"{}", topic="x"),
    "consume": lambda at: at.consume("a", sid="a"),
    "consume the other": lambda at: at.consume("b", sid="b", since="0"),
    "of another client": lambda at: at.consume("a", sid="z", rid=BOB),
    "ack": lambda at: [at.ack(one, sid="a") for one in at.got("a")[:1]],
    "release": lambda at: [at.release(one, sid="a") for one in at.got("a")[-1:]],
    "release later": lambda at: [
        at.send(q.Release("c", "a", ends=[one, one + 1], delay_ms=500)) for one in at.got("a")[-1:]
    ],
    "reject": lambda at: [at.reject(one, sid="a") for one in at.got("a")[-1:]],
    "lose": lambda at: at.lose(BOB),
    "cancel": lambda at: at.send(q.Cancel("a")),
    "time": lambda at: at.pass_ms(700),
    "leases end": lambda at: at.pass_ms(AFTER_LEASE_MS),
    "units wait": lambda at: setattr(at, "holding", True),
    "units land": lambda at: (setattr(at, "holding", False), at.land()),
    "units are refused": lambda at: at.refuse() if at.under_way else None,
    "purge": lambda at: at.ask(s.Purge(1, "a")) if not at.holding else None,
    "requeue": lambda at: at.ask(s.Requeue(1, "a")) if not at.holding else None,
    "cannot be read": lambda at: at.unreadable.update(at.here("a")[:1]),
    "restart": lambda at: at.restart(),
}


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=25))
def test_what_changed_adds_up_to_what_is(steps: list[str]) -> None:
    """Whatever happens: nothing that changes a row goes unnoticed."""
    at = bench(work("a", dead_letter="dead", max_deliveries=2), replayable("b", topic="x"))
    admin = Watching(at)
    for step in steps:
        if step in ("consume", "of another client") and len(at.core.shared.of.get("a", ())) > 1:
            continue
        STEPS[step](at)
        at.run()
        admin.ask()
        all_rows = {row.name: _lasting(row) for row in at.ask(s.AskQueues(1)).rows}
        assert {name: _lasting(row) for name, row in admin.rows.items()} == all_rows, step
