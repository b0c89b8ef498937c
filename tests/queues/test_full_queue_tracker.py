"""zbroker/queues/full_queue_tracker.py, through the core: which queues ingest hears to be full."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import AFTER_LEASE_MS, BOB, bench, work
from tests.queues.linked import join, linked
from zbroker.exchanges import BoundQueue
from zbroker.limits import BEAT_MS
from zbroker.log.records import MessagesGone
from zbroker.queues.effects import FullSubscribed
from zbroker.queues.full_queue_tracker import ROWS_PER_MS
from zbroker.queues.snapshots import Snapshots
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.full_queues import FullQueue

REJECT = {"overflow": "reject-publish"}
Q3 = FullQueue("q", "t", False, [], 3, 0)


def reject(name: str = "q", topic: str = "t", **more: Any) -> Any:
    return work(name, topic, **REJECT, **more)


def names(at: Any) -> list[str]:
    """Those of the newest report."""
    return [row.name for row in at.full[-1].rows]


def test_a_queue_is_full_when_as_much_waits_as_may() -> None:
    at = bench(reject(max_length=3))
    at.many(2)
    assert names(at) == []
    at.many(1)
    assert at.full[-1].rows == [Q3]
    assert at.full[-1].known


def test_nothing_of_it_is_given_up() -> None:
    at = bench(reject(max_length=3))
    positions = at.many(5)
    assert (at.here(), at.facts(MessagesGone)) == (positions, [])
    assert at.one().counts.dropped == 0


def test_bytes_fill_it_too() -> None:
    at = bench(reject(max_bytes=100))
    at.publish(b"x" * 60)
    assert names(at) == []
    at.publish(b"x" * 40)
    assert at.full[-1].rows == [FullQueue("q", "t", False, [], 0, 100)]
    at.consume(backlog=1)
    assert names(at) == [], "what a consumer has does not count"


def test_it_is_free_again_when_a_consumer_takes_one() -> None:
    at = bench(reject(max_length=3))
    [first, *_] = at.many(3)
    at.consume(backlog=1)
    assert names(at) == []
    at.many(1)
    assert names(at) == ["q"]
    at.ack(first)
    assert names(at) == [], "the consumer has the next one"


def test_what_comes_back_fills_it() -> None:
    at = bench(reject(max_length=2))
    at.consume(backlog=2)
    at.many(3)
    assert names(at) == []
    at.lose()
    at.pass_ms(AFTER_LEASE_MS)
    assert names(at) == ["q"]


def test_a_pattern_and_a_bound_queue_are_named_by_what_enters_them() -> None:
    at = bench(reject("all", "t.*", regex=True, max_length=1))
    at.logon()
    at.ask(s.Define(0, "create", "b", {"bound": True, "max_length": 1, **REJECT}))
    [life] = at.one("b").definition.names
    at.publish(b"x", topic="u", routes=[[BoundQueue(*life)]])
    at.publish(b"x", topic="t1")
    rows = {row.name: row for row in at.full[-1].rows}
    assert rows["all"] == FullQueue("all", "t.*", True, [], 1, 0)
    assert rows["b"] == FullQueue("b", "", False, [tuple(life[1])], 1, 0)


def test_other_queues_are_not_reported() -> None:
    at = bench(work(max_length=2), work("free"))
    count = len(at.full)
    at.many(5)
    assert len(at.full) == count


# -- changes --------------------------------------------------------------------------------------


def test_a_queue_that_is_deleted_is_not_full() -> None:
    at = bench(work("other"))
    at.ask(s.Define(0, "create", "q", {"topic": "t", "max_length": 1, **REJECT}))
    at.many(1)
    assert names(at) == ["q"]
    at.ask(s.Define(0, "delete", "q"))
    assert names(at) == []
    at.ask(
        s.Define(
            0, "create", "q", {"topic": "t", "max_length": 1, "recovery_point": "now", **REJECT}
        )
    )
    assert names(at) == []


def test_an_alteration_counts_at_once() -> None:
    at = bench(work("other"))
    at.ask(s.Define(0, "create", "q", {"topic": "t", "max_length": 3, **REJECT}))
    positions = at.many(3)
    at.ask(s.Define(0, "alter", "q", {"max_length": 2}))
    assert at.full[-1].rows == [FullQueue("q", "t", False, [], 2, 0)]
    at.ask(s.Define(0, "alter", "q", {"max_length": 4}))
    assert names(at) == []
    at.ask(s.Define(0, "alter", "q", {"max_length": 1}))
    assert names(at) == ["q"]
    at.ask(s.Define(0, "alter", "q", {"overflow": "drop-head"}))
    assert names(at) == []
    assert at.here() == positions[2:]


def test_a_purge_frees_it() -> None:
    at = bench(reject(max_length=2))
    at.many(2)
    at.ask(s.Purge(0, "q"))
    assert names(at) == []


# -- when ingest hears of it ----------------------------------------------------------------------


def test_a_new_reader_hears_all_of_it() -> None:
    at = bench(reject(max_length=1))
    at.many(1)
    count = len(at.full)
    at.turn.hear(FullSubscribed())
    at.run()
    assert len(at.full) == count + 1
    assert names(at) == ["q"]


def test_beats_come_while_a_queue_is_full() -> None:
    at = bench(reject(max_length=1))
    at.many(1)
    count = len(at.full)
    at.pass_ms(BEAT_MS)
    assert len(at.full) == count + 1
    at.consume()
    count = len(at.full)
    at.pass_ms(10 * BEAT_MS)
    assert len(at.full) == count, "a beat without a full queue costs nothing"


def test_a_process_that_starts_does_not_know_before_it_has_read() -> None:
    at = bench(reject(max_length=1))
    at.many(1)
    at.reading = False
    at.full.clear()
    at.restart()
    at.pass_ms(BEAT_MS)
    assert [(said.rows, said.known) for said in at.full] == [([], False)] * len(at.full)
    assert at.full
    at.reading = True
    at.run()
    assert (names(at), at.full[-1].known) == (["q"], True)


def test_a_restart_with_tables_comes_to_the_same() -> None:
    at = bench(reject(max_bytes=100))
    at.publish(b"x" * 100)
    at.full.clear()
    at.restart(Snapshots().take(at.manager).many)
    assert names(at) == ["q"]


def test_a_journal_that_restarts_changes_nothing() -> None:
    at = bench(reject(max_length=1))
    at.many(1)
    at.journal += 1
    at.watermarks()
    at.welcome()
    assert names(at) == ["q"]


def test_a_report_about_many_queues_comes_less_often() -> None:
    at = bench(*[reject(f"q{number}", max_length=1) for number in range(2 * ROWS_PER_MS)])
    at.many(1)
    assert len(names(at)) == 2 * ROWS_PER_MS
    at.logon()
    count = len(at.full)
    at.ask(s.Purge(0, "q0"))
    assert len(at.full) == count
    at.pass_ms(2)
    assert len(names(at)) == 2 * ROWS_PER_MS - 1


def test_each_instance_counts_what_it_owns() -> None:
    one, other = linked(2, work(scope="distributed", max_length=2, **REJECT))
    for each in (one, other):
        each.peers_read()
    one.accept(1)
    one.accept(2)
    other.accept(3)
    join([one, other])
    assert (names(one), names(other)) == (["q"], [])


# -- what operators see ---------------------------------------------------------------------------


def test_operators_see_that_it_is_full() -> None:
    at = bench(reject(max_length=1))
    assert not at.ask(s.AskQueues(0)).rows[0].full
    at.many(1)
    assert at.ask(s.AskQueues(0)).rows[0].full
    lines = at.ask(s.Explain(0, "q")).lines
    assert lines[-1] == "it is full: this instance refuses messages that go to it, with queue_full"


@pytest.mark.parametrize("more", [{}, {"max_length": 1, "filter": "/a = 1"}])
def test_programs_are_told_what_does_not_go(more: dict[str, Any]) -> None:
    at = bench()
    at.logon(BOB)
    answer = at.say(q.DeclareQueue("new", "d", {"topic": "t", **more, **REJECT}), BOB)
    assert (answer.code, "reject-publish" in answer.reason) == ("bad_queue", True)
