"""Queues of which one consumer at a time gets messages: the oldest, then the next one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import AFTER_LEASE_MS, ANN, BOB, Bench, bench, work
from tests.queues.linked import join, linked
from zbroker.engine.events import ReadFailed
from zbroker.errors import StorageError
from zbroker.queues.core import AGAIN_MS
from zbroker.queues.effects import Give, Unsent
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.reasons import why_nothing
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.consumer_credit import Acquired, AcquireMessages


def two(**more: Any) -> Bench:
    """ann's consumer s came first, then bob's b."""
    at = bench(work(single_active_consumer=True, **more))
    at.logon(BOB)
    at.consume()
    at.consume(sid="b", rid=BOB)
    return at


def active(at: Bench) -> dict[str, bool | None]:
    rows = at.ask(s.AskConsumers(0, "q")).rows
    assert not any(row.active for row in rows if row.gone)
    [row] = at.ask(s.AskQueues(0, "q")).rows
    assert row.active == "".join(f"{each.client}/{each.sid}" for each in rows if each.active)
    return {each.sid: each.active for each in rows}


def test_the_oldest_consumer_gets_all_messages() -> None:
    at = two()
    positions = at.many(5)
    assert (at.got(), at.got("b")) == (positions, [])
    assert active(at) == {"s": True, "b": False}


def test_it_holds_as_many_as_its_backlog_and_no_other_helps() -> None:
    at = two(max_per_subscription=2)
    positions = at.many(5)
    assert (at.got(), at.got("b")) == (positions[:2], [])
    [text] = at.ask(s.Explain(0, "q")).lines
    assert text == "every consumer with credit has its backlog full"


def test_the_next_one_takes_over_when_it_ends() -> None:
    at = two(max_per_subscription=2)
    positions = at.many(3)
    at.ack(positions[0])
    at.send(q.Cancel("s"))
    assert at.got("b") == positions[1:]
    assert active(at) == {"b": True}
    at.consume(sid="again")
    at.many(1)
    assert at.got("again") == [], "it is the last one now"


def test_a_lost_one_that_holds_nothing_has_ended() -> None:
    at = two()
    at.lose()
    positions = at.many(2)
    assert at.got("b") == positions


def test_what_a_lost_one_holds_is_waited_for() -> None:
    at = two(max_per_subscription=2)
    positions = at.many(4)
    at.lose()
    assert at.got("b") == []
    assert active(at) == {"s": False, "b": False}
    [text] = at.ask(s.Explain(0, "q")).lines
    assert "may come back" in text
    at.pass_ms(AFTER_LEASE_MS)
    assert at.got("b") == positions[:2], "in order"
    assert active(at) == {"b": True}


def test_one_that_is_back_is_the_active_one_again() -> None:
    at = two(max_per_subscription=2)
    first, second, third = at.many(3)
    at.lose()
    at.logon()
    at.consume(holding=[first, third])
    at.ack(first)
    assert at.got() == [first, second, third]
    assert at.got("b") == []
    assert active(at) == {"s": True, "b": False}


@pytest.mark.parametrize("verb", ["ack", "purge"])
def test_a_lost_one_has_ended_when_what_it_held_was_done_by_others(verb: str) -> None:
    at = two(max_per_subscription=2, lease=0)
    positions = at.many(4)
    at.lose()
    if verb == "ack":
        at.ack(*positions[:2], sid=None, rid=BOB, queue="q")
    else:
        at.ask(s.Purge(0, "q", positions[2], "", True))
    assert at.got("b") == positions[2:], "no lease will end, and no one need come"
    assert active(at) == {"b": True}


def test_a_lost_one_has_ended_when_what_it_held_was_not_sent_to_it() -> None:
    at = two()
    positions = at.many(2)
    give = at.gives[-1][1]
    at.turn.hear(Unsent(ANN, give, give.positions))
    at.run()
    assert at.got("b") == positions[give.positions.min() - positions[0] :]


def test_at_most_once_one_that_is_back_comes_last() -> None:
    at = two(semantics="at-most-once", lease=0)
    at.many(1)
    at.lose()
    first = at.many(1)
    at.logon()
    at.consume()
    second = at.many(1)
    assert at.got("b") == first + second
    assert active(at) == {"s": False, "b": True}


def test_at_most_once_the_next_one_takes_over_at_once() -> None:
    at = two(semantics="at-most-once", lease=0)
    at.many(1)
    at.lose()
    positions = at.many(1)
    assert at.got("b") == positions


def test_only_the_active_one_acquires() -> None:
    at = two(max_per_subscription=1)
    first, position = at.many(2)
    ends = [position, position + 1]
    at.send(AcquireMessages("b", ends=ends, cid="a"), rid=BOB)
    assert at.of(Acquired, BOB)[-1].ends == []
    at.ack(first)
    assert at.got() == [first, position]


def test_what_is_given_back_comes_before_what_is_after_it() -> None:
    at = two(max_per_subscription=1)
    first, second = at.many(2)
    at.holding = True
    at.release(first)
    assert at.got() == [first]
    at.holding = False
    at.land()
    at.ack(first)
    assert at.got() == [first, first, second]


def test_nothing_passes_what_cannot_be_read_for_now() -> None:
    at = two()
    at.later = (Give,)
    first, second = at.many(1), at.many(1)
    [give] = at.waiting
    at.waiting.clear()
    at.turn.hear(ReadFailed(give, StorageError("damaged", "the disk fails")))
    at.later = ()
    third = at.many(1)
    assert at.got() == []
    at.pass_ms(AGAIN_MS)
    assert at.got() == first + second + third


def test_what_waits_for_it_goes_to_the_next_one_if_it_is_gone() -> None:
    at = two()
    at.later = (Give,)
    positions = at.many(1) + at.many(1)
    [give] = at.waiting
    at.waiting.clear()
    at.later = ()
    at.turn.hear(Unsent(ANN, give, give.positions))
    at.run()
    assert at.got("b") == positions
    assert [got.deliveries for got in at.seen("b")] == [1, 1], "it was no delivery"


def test_what_waits_for_it_is_not_sent_if_its_lease_ends() -> None:
    at = two()
    at.later = (Give,)
    first, second = at.many(1), at.many(1)
    at.pass_ms(AFTER_LEASE_MS)
    at.later = ()
    at.go_on()
    assert [at.got().count(one) for one in first + second] == [2, 1], "the first was under way"
    assert at.got()[-2:] == first + second


def test_an_active_one_without_credit_is_waited_for() -> None:
    at = bench(work(single_active_consumer=True))
    at.consume(flow_mode="credit", messages=1)
    at.consume(sid="b")
    first, _ = at.many(2)
    assert (at.got(), at.got("b")) == ([first], [])


def test_it_may_be_altered() -> None:
    at = bench(work("other"))
    at.ask(s.Define(0, "create", "q", {"topic": "t", "max_per_subscription": 1}))
    at.ask(s.Define(0, "alter", "q", {"single_active_consumer": True}))
    at.consume()
    at.consume(sid="b")
    positions = at.many(2)
    assert (at.got(), at.got("b")) == (positions[:1], [])
    at.ask(s.Define(0, "alter", "q", {"single_active_consumer": False}))
    assert at.got("b") == positions[1:]
    assert active(at) == {"s": None, "b": None}


@pytest.mark.parametrize("filtered", [None, "/a = 1"])
def test_filters_are_those_of_the_active_one(filtered: str | None) -> None:
    at = bench(work(single_active_consumer=True))
    at.consume(filter=filtered)
    at.consume(sid="b")
    positions = at.publish(b'{"a":0}', b'{"a":1}')
    assert at.got() == (positions if filtered is None else positions[1:])
    assert at.got("b") == []


def test_no_message_goes_to_another_instance_that_asks() -> None:
    config = work(scope="group-local", initial_owner="me", single_active_consumer=True)
    one, other = linked(2, config)
    for each in (one, other):
        each.peers_read()
    one.accept(1)
    join([one, other])
    queue = one.one().queue
    assert isinstance(queue, Queue)
    assert queue.grant(10) == queue.grant(10, leaving=True) == []
    assert why_nothing(queue, one.now) == ["it has no consumer"]
    assert ANN in other.core.shared.connections
