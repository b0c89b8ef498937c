"""zbroker/queues/acquire_commands.py: a consumer picks messages by their positions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import (
    AFTER_LEASE_MS,
    BOB,
    HERE,
    KEY_A,
    Bench,
    Got,
    bench,
    replayable,
    rules,
    work,
)
from tests.queues.test_replicated import Shared
from zbroker.engine.events import RulesChanged
from zbroker.log.records import ends_of, of_ends
from zbroker.queues import acquire_commands
from zbroker.wire import consumer_credit as v
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q


def _picking(at: Bench, **more: Any) -> Bench:
    """With a consumer that is sent only what it acquires."""
    at.consume(flow_mode="credit", **more)
    return at


def _acquired(at: Bench, *positions: int, sid: str = "s", **more: Any) -> list[int]:
    """What the answer names."""
    ends = [end for position in positions for end in (position, position + 1)]
    answer = at.say(v.AcquireMessages(sid, ends, **more))
    assert isinstance(answer, v.Acquired)
    return list(of_ends(answer.ends))


@pytest.mark.seed("001-54")
def test_messages_that_were_browsed_are_acquired_out_of_order() -> None:
    at = bench()
    positions = at.many(5)
    _picking(at)
    rows = at.say(q.Browse("q", limit=4)).rows
    picked = [rows[3].position, rows[1].position]
    assert _acquired(at, *picked) == sorted(picked)
    assert at.seen() == [Got(positions[1]), Got(positions[3])]
    at.ack(*picked)
    assert at.here() == [positions[0], positions[2], positions[4]]


@pytest.mark.seed("001-54")
def test_of_two_that_acquire_a_message_one_gets_it() -> None:
    at = bench()
    positions = at.many(2)
    at.logon(BOB)
    _picking(at, sid="a")
    _picking(at, sid="b", rid=BOB)
    assert _acquired(at, positions[0], sid="a") == [positions[0]]
    answer = at.say(v.AcquireMessages("b", ends_of(of_ends([1, 9])), "7"), BOB)
    assert answer == v.Acquired("b", [positions[1], positions[1] + 1], "7")
    assert (at.got("a"), at.got("b")) == (positions[:1], positions[1:])
    assert _acquired(at, positions[0], sid="a") == [], "it has that already"


def test_the_answer_goes_ahead_of_the_messages() -> None:
    at = bench()
    positions = at.many(1)
    _picking(at)
    at.holding = True
    assert _acquired(at, *positions) == positions
    assert at.got() == []
    at.land()
    assert at.got() == positions


def test_what_was_acquired_is_counted_as_any_delivery() -> None:
    at = bench(work(lease=1_000))
    [position] = at.many(1)
    _picking(at)
    for _ in range(2):
        _acquired(at, position)
        at.pass_ms(1_010)
    assert [got.deliveries for got in at.seen()] == [1, 2]
    assert at.one().counts.delivered == 2
    at.pass_ms(AFTER_LEASE_MS)
    assert at.state(position) == "ready"


def test_it_takes_no_credit_in_messages() -> None:
    at = bench()
    positions = at.many(4)
    _picking(at)
    assert _acquired(at, positions[2]) == [positions[2]]
    at.send(v.ConsumerFlow("s", messages=1))
    assert at.got() == [positions[2], positions[0]]


def test_what_was_acquired_and_could_not_be_sent_gives_no_credit_back() -> None:
    at = bench()
    positions = at.many(3)
    _picking(at)
    at.unreadable.add(positions[0])
    assert _acquired(at, positions[0]) == [positions[0]]
    at.run()
    assert at.got() == []


def test_the_backlog_bounds_what_is_acquired() -> None:
    at = bench()
    positions = at.many(5)
    _picking(at, backlog=2)
    assert _acquired(at, *positions[1:]) == positions[1:3]
    assert _acquired(at, positions[0]) == []
    at.ack(positions[1])
    assert _acquired(at, positions[0]) == positions[:1]


def test_max_backlog_bounds_what_all_consumers_acquire() -> None:
    at = bench(work(max_backlog=3))
    positions = at.many(5)
    at.consume(sid="other", backlog=2)
    _picking(at)
    assert _acquired(at, *positions) == positions[2:3]


def test_a_command_acquires_so_many_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acquire_commands, "ACQUIRED_MAX", 3)
    at = bench()
    positions = at.many(5)
    _picking(at)
    assert _acquired(at, *positions) == positions[:3]


def test_a_consumer_without_bytes_acquires_nothing() -> None:
    at = bench()
    positions = at.many(1)
    _picking(at)
    at.send(v.StopConsumer("s"))
    assert _acquired(at, *positions) == []
    at.send(v.ConsumerFlow("s", 100))
    assert _acquired(at, *positions) == positions


def test_its_filter_does_not_count() -> None:
    at = bench()
    [position] = at.publish(b'{"n": 1}')
    _picking(at, filter="/n = 2")
    assert _acquired(at, position) == [position]


def test_what_waits_for_a_barrier_is_missing() -> None:
    at = bench(work(barrier="/end = 1"))
    first, barrier, after = at.publish(b"{}", b'{"end": 1}', b"{}")
    _picking(at)
    assert _acquired(at, first, barrier, after) == [first]


def test_what_waits_for_its_group_is_missing() -> None:
    at = bench(work(group_key="/k"))
    first, second, other = at.publish(b'{"k": 1}', b'{"k": 1}', b'{"k": 2}')
    _picking(at)
    assert _acquired(at, first, second, other) == [first, other]
    at.ack(first)
    assert _acquired(at, second) == [second]


def test_what_has_a_priority_comes_in_the_order_of_positions() -> None:
    at = bench(work(priority="/n"))
    positions = at.publish(b'{"n": 1}', b'{"n": 9}', b'{"n": 5}')
    _picking(at)
    assert _acquired(at, positions[0], positions[1]) == positions[:2]
    assert at.got() == positions[:2]


def test_what_is_delayed_or_gone_is_missing() -> None:
    at = bench()
    positions = at.many(3)
    _picking(at)
    _acquired(at, *positions[:2])
    at.release(positions[0], delay_ms=5_000)
    at.ack(positions[1])
    assert _acquired(at, *positions, 999) == positions[2:]


def test_positions_of_another_generation_are_missing() -> None:
    at = bench()
    positions = at.many(1)
    _picking(at)
    assert _acquired(at, *positions, generation=9) == []
    assert _acquired(at, *positions, generation=HERE.generation) == positions


def test_what_belongs_to_another_instance_is_missing() -> None:
    at = Shared()
    [theirs] = at.from_peer()
    [ours] = at.publish(b"{}")
    _picking(at)
    assert _acquired(at, theirs, ours) == [ours]


def test_nothing_is_acquired_while_the_queue_offers_nothing() -> None:
    at = bench()
    positions = at.many(1)
    _picking(at)
    at.one().paused_until_ms = at.now.mono_ms + 10
    assert _acquired(at, *positions) == []


@pytest.mark.parametrize(
    "queue", [replayable(), work(semantics="at-most-once")], ids=["replayable", "once"]
)
def test_a_queue_without_leases_has_nothing_to_acquire(queue: Any) -> None:
    at = bench(queue)
    at.consume(since="0" if queue.kind == "replayable" else None)
    assert at.say(v.AcquireMessages("s", [1, 2], "7")).code == "bad_field"


@pytest.mark.parametrize("ends", [[1], [5, 3], [0, 2**62]])
def test_ends_that_are_no_runs_are_refused(ends: list[int]) -> None:
    at = bench()
    _picking(at)
    at.send(v.AcquireMessages("s", ends, "7"))
    assert at.errors() == [("bad_field", "7", None)]


def test_a_consumer_without_the_right_acquires_nothing() -> None:
    at = Bench(work("yes"), access=rules("yes"))
    at.logon(key=KEY_A)
    positions = at.many(1)
    _picking(at, queue="yes")
    assert _acquired(at, *positions) == positions
    at.turn.hear(RulesChanged(rules("no")))
    at.run()
    assert at.say(v.AcquireMessages("s", [1, 2], "7")).code == "unknown_sid"
    assert "not_entitled" in [one.code for one in at.of(m.Error)]
