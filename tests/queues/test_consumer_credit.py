"""zbroker/queues/consumer_credit.py: credit, flow modes, stop and flush."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import ANN, Bench, Got, bench, replayable, work
from zbroker.limits import CREDIT_MAX_BYTES
from zbroker.queues.consumer_credit import LATER_MAX
from zbroker.queues.context import CREDIT_MIN_BYTES
from zbroker.queues.effects import Examine, Give
from zbroker.wire import consumer_credit as v
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q

# -- bytes ---------------------------------------------------------------------------------------


@pytest.mark.seed("001-50")
def test_nothing_is_given_without_credit() -> None:
    at = bench()
    positions = at.publish(b"x" * 100, b"y" * 100, b"z" * 100)
    at.consume(backlog=1, credit=150)
    at.ack(positions[0])
    at.ack(positions[1])
    assert at.got() == positions[:2], "the second one took more than there was"
    at.send(m.Flow("s", 100))
    assert at.got() == positions


def test_credit_for_a_consumer_that_has_ended_is_ignored() -> None:
    at = bench()
    at.consume()
    at.send(q.Cancel("s"), m.Flow("s", 100))
    assert at.codes() == []


def test_credit_for_a_consumer_that_never_was_is_refused() -> None:
    at = bench()
    at.send(m.Flow("s", 100))
    assert at.errors() == [("unknown_sid", None, "s")]


def test_credit_is_bounded_for_each_connection() -> None:
    at = bench()
    at.consume(sid="a", credit=1 << 60)
    at.consume(sid="b", credit=1 << 60)
    first, second = (one.credit for one in at.of(q.Consuming))
    assert first == CREDIT_MAX_BYTES
    assert second == CREDIT_MIN_BYTES
    at.send(m.Flow("b", 1 << 60))
    [one] = [one for one in at.core.shared.consumers.values() if one.sid == "b"]
    assert one.credit == CREDIT_MIN_BYTES


def test_the_window_of_a_consumer_that_ended_is_free() -> None:
    at = bench()
    at.consume(sid="a", credit=1 << 60)
    at.send(q.Cancel("a"))
    at.consume(sid="b", credit=1 << 60)
    assert at.last().credit == CREDIT_MAX_BYTES


def test_credit_for_a_queue_that_was_just_deleted_changes_nothing() -> None:
    at = bench()
    at.consume()
    connection = at.core.shared.connections[ANN]
    del at.manager.running["q"]
    at.core.consumers.credit.command(connection, v.ConsumerFlow("s", 10))
    assert at.core.shared.dirty == {}


# -- flow modes -------------------------------------------------------------------------------


def _credited(messages: int | None = None, at: Bench | None = None, **more: Any) -> Bench:
    at = at or bench()
    at.consume(flow_mode="credit", messages=messages, **more)
    return at


@pytest.mark.seed("001-49")
def test_in_credit_mode_each_message_takes_one_of_the_credit() -> None:
    at = bench()
    positions = at.many(9)
    _credited(2, at)
    assert at.got() == positions[:2]
    at.ack(*positions[:2])
    assert at.got() == positions[:2], "an acknowledgement gives none"
    at.send(v.ConsumerFlow("s", messages=3))
    assert at.got() == positions[:5]
    at.send(v.ConsumerFlow("s", bytes=100))
    assert at.got() == positions[:5], "bytes are not messages"


def test_a_consumer_in_credit_mode_begins_without_credit() -> None:
    at = _credited()
    [position] = at.many(1)
    assert at.got() == []
    assert at.one().queue.why_nothing(at.now) == [
        "no consumer has credit: it waits for 1 consumers that were stopped, or have used up their "
        "credit in messages"
    ]
    at.send(v.ConsumerFlow("s", messages=1))
    assert at.got() == [position]


def test_the_backlog_bounds_what_is_held_in_credit_mode_too() -> None:
    at = bench()
    positions = at.many(5)
    _credited(4, at, backlog=2)
    assert at.got() == positions[:2]
    at.ack(*positions[:2])
    assert at.got() == positions[:4], "the rest of the credit"
    at.ack(*positions[2:4])
    assert at.got() == positions[:4]


def test_credit_in_messages_needs_bytes_too() -> None:
    at = bench()
    positions = at.publish(b"x" * 100, b"y" * 100)
    _credited(5, at, backlog=1, credit=50)
    at.ack(positions[0])
    assert at.got() == positions[:1]
    at.send(v.ConsumerFlow("s", bytes=100))
    assert at.got() == positions


def test_credit_is_shared_with_consumers_in_window_mode() -> None:
    at = bench()
    at.consume(sid="w", backlog=4)
    _credited(3, at)
    at.many(20)
    assert (len(at.got()), len(at.got("w"))) == (3, 4)


@pytest.mark.parametrize("fairness", ["proportional", "round-robin", "fast"])
def test_no_share_is_above_the_credit(fairness: Any) -> None:
    at = bench(work(fairness=fairness))
    for sid, messages in (("a", 2), ("b", 30), ("c", 0)):
        at.consume(sid=sid, flow_mode="credit", messages=messages)
    at.many(50)
    assert [len(at.got(sid)) for sid in "abc"] == [2, 30, 0]


def test_a_consumer_that_gets_credit_is_in_turn_after_those_with_room() -> None:
    at = bench(work(fairness="fast"))
    _credited(None, at, sid="first")
    _credited(None, at, sid="second")
    at.send(v.ConsumerFlow("second", messages=1), v.ConsumerFlow("first", messages=1))
    at.many(1)
    assert (len(at.got("first")), len(at.got("second"))) == (0, 1)


@pytest.mark.parametrize(
    ("queue", "fields"),
    [
        ("q", {"messages": 5}),
        ("q", {"flow_mode": "none"}),
        ("log", {"since": "0", "flow_mode": "credit"}),
        ("log", {"since": "0", "messages": 0}),
    ],
)
def test_what_a_consumer_cannot_begin_with_is_refused(queue: str, fields: dict[str, Any]) -> None:
    at = bench(work(), replayable("log"))
    at.consume(queue, **fields)
    assert at.codes() == ["bad_field"]
    assert at.core.shared.consumers == {}


def test_more_credit_than_there_are_numbers_is_bounded() -> None:
    at = _credited(2**63 - 1)
    at.send(v.ConsumerFlow("s", messages=2**63 - 1))
    assert len(at.many(3)) == len(at.got())


@pytest.mark.seed("001-49")
def test_the_mode_is_changed_without_credit() -> None:
    at = bench()
    at.consume(backlog=2)
    positions = at.many(6)
    assert at.say(v.SetFlowMode("s", "credit", "1")).code == "credit_left"
    at.send(v.StopConsumer("s"))
    assert at.say(v.SetFlowMode("s", "credit", "2")) == m.Ack("processed", "2", sid="s")
    at.ack(*positions[:2])
    assert at.got() == positions[:2]
    at.send(v.ConsumerFlow("s", 1_000, 1))
    assert at.got() == positions[:3]
    assert at.say(v.SetFlowMode("s", "window")) == m.Ack("processed", sid="s"), "it is used up"
    at.send(v.ConsumerFlow("s", 1_000))
    assert at.got() == positions[:4], "its backlog is the limit again"
    assert at.errors() == [("credit_left", "1", None)], "that did not end it"


def test_a_replayable_queue_has_no_mode() -> None:
    at = bench(replayable())
    at.consume(since="0")
    assert at.say(v.SetFlowMode("s", "credit", "1")).code == "bad_field"


# -- what was not delivered -------------------------------------------------------------------


def test_what_could_not_be_written_takes_no_credit() -> None:
    at = bench(work(semantics="at-most-once"))
    positions = at.many(3)
    at.holding = True
    _credited(2, at)
    at.refuse()
    at.land()
    assert at.got() == positions[:2]


def test_what_cannot_be_read_takes_no_credit() -> None:
    at = bench()
    positions = at.many(4)
    at.unreadable.update([positions[1]])
    _credited(2, at)
    assert at.got() == [positions[0], positions[2]]


def test_what_comes_back_while_the_disk_fails_takes_no_credit() -> None:
    at = bench(work(lease=1_000))
    positions = at.many(2)
    at.later = (Give,)
    _credited(1, at)
    [give], at.waiting, at.later = at.waiting, [], ()
    assert isinstance(give, Give)
    at.pass_ms(1_010)  # its lease ends
    at.fail(give)
    assert at.got() == positions[:1]
    at.ack(positions[0])
    assert at.got() == positions[:1]


# -- stop -------------------------------------------------------------------------------------


@pytest.mark.seed("001-52")
def test_nothing_is_delivered_after_the_answer_to_a_stop() -> None:
    at = bench()
    positions = at.many(3)
    at.consume(backlog=2)
    assert at.say(v.StopConsumer("s", "1")) == m.Ack("processed", "1", sid="s")
    at.ack(positions[0])
    assert at.got() == positions[:2]
    assert at.state(positions[1]) == "leased", "it keeps what it holds"
    at.ack(positions[1])
    assert at.settled() == [(1, 0), (1, 0)]
    at.send(v.ConsumerFlow("s", 100))
    assert at.got() == positions


def test_a_stop_is_answered_after_what_was_on_its_way() -> None:
    at = bench(work(semantics="at-most-once"))
    positions = at.many(2)
    at.holding = True
    at.consume()
    at.send(v.StopConsumer("s", "1"))
    at.many(1)
    assert at.of(m.Ack)[-1].cid == "logon"
    at.land()
    assert at.got() == positions
    assert at.last() == m.Ack("processed", "1", sid="s")


def test_a_stop_is_answered_when_what_was_offered_cannot_be_sent() -> None:
    at = bench(work(semantics="at-most-once"))
    at.many(2)
    at.holding = True
    at.consume()
    at.send(v.StopConsumer("s", "1"))
    at.refuse()
    assert at.last() == m.Ack("processed", "1", sid="s")
    assert at.got() == []


@pytest.mark.parametrize("leases_end", [False, True])
def test_a_stop_waits_for_a_disk_that_fails(leases_end: bool) -> None:
    at = bench(work(lease=500))
    positions = at.many(2)
    at.later = (Give,)
    at.consume()
    at.send(v.StopConsumer("s", "1"))
    [give], at.waiting, at.later = at.waiting, [], ()
    assert at.of(m.Ack)[-1].cid == "logon"
    if not leases_end:
        at.extend(*positions, lease_ms=5_000)
    assert isinstance(give, Give)
    at.fail(give)
    assert at.of(m.Ack)[-1].cid == "1"
    assert at.got() == ([] if leases_end else positions)


def test_what_is_beyond_the_horizon_goes_before_the_answer() -> None:
    at = bench()
    positions = at.many(1)
    at.holding = True
    at.consume()
    at.send(v.StopConsumer("s", "1"))
    assert (at.got(), at.of(m.Ack)[-1].cid) == ([], "logon")
    at.land()
    assert (at.got(), at.of(m.Ack)[-1].cid) == (positions, "1")


def test_credit_that_comes_before_the_answer_counts_after_it() -> None:
    at = bench(work(semantics="at-most-once"))
    positions = at.many(2)
    at.holding = True
    _credited(1, at)
    at.send(v.StopConsumer("s", "1"), v.ConsumerFlow("s", 50, 1), v.ConsumerFlow("s", 50, 0))
    assert at.got() == []
    at.holding = False
    at.land()
    assert at.got() == positions
    assert at.core.shared.consumers[1].credit == 99


def test_commands_that_wait_are_done_in_their_order() -> None:
    at = bench(work(semantics="at-most-once"))
    positions = at.many(3)
    at.holding = True
    _credited(1, at)
    at.send(v.StopConsumer("s", "1"), v.ConsumerFlow("s", 50, 2), v.FlushConsumer("s", "2"))
    at.send(v.SetFlowMode("s", "window", "3"), v.StopConsumer("s", "4"))
    at.holding = False
    at.land()
    said = [one for to, one in at.answers if isinstance(one, m.Ack | v.Flushed)]
    assert [one.cid for one in said] == ["logon", "1", "2", "3", "4"]
    assert said[2] == v.Flushed("s", 2, "2")
    assert at.got() == positions


def test_a_command_that_waited_is_refused_then() -> None:
    at = bench(work(semantics="at-most-once"))
    at.many(1)
    at.holding = True
    _credited(1, at)
    at.send(v.StopConsumer("s"), v.ConsumerFlow("s", 50, 2), v.SetFlowMode("s", "window", "3"))
    at.holding = False
    at.land()
    assert at.errors() == [("credit_left", "3", None)]


def test_so_many_commands_may_wait() -> None:
    at = bench(work(semantics="at-most-once"))
    at.many(1)
    at.holding = True
    at.consume()
    at.send(*[v.StopConsumer("s", str(n)) for n in range(LATER_MAX + 2)])
    assert at.errors() == [("too_many", str(LATER_MAX + 1), None)]
    at.land()
    assert at.of(m.Ack)[-1].cid == str(LATER_MAX)


def test_a_consumer_begins_as_if_it_was_stopped() -> None:
    at = bench()
    at.consume(messages=0)
    [position] = at.many(1)
    assert at.got() == []
    at.send(v.ConsumerFlow("s"))
    assert at.got() == [position]


def test_a_replayable_queue_stops_too() -> None:
    at = bench(replayable())
    positions = at.many(2)
    at.consume(since="0")
    assert at.say(v.StopConsumer("s", "1")) == m.Ack("processed", "1", sid="s")
    positions += at.many(1)
    assert at.got() == positions[:2]
    at.send(v.ConsumerFlow("s", 100))
    assert at.got() == positions


@pytest.mark.parametrize(
    "command",
    [
        v.StopConsumer("x", "1"),
        v.FlushConsumer("x", "1"),
        v.SetFlowMode("x", "credit", "1"),
        v.AcquireMessages("x", [1, 2], "1"),
    ],
)
def test_a_command_for_no_consumer_is_refused(command: Any) -> None:
    at = bench()
    assert at.say(command).code == "unknown_sid"


def test_a_consumer_that_ends_needs_no_answer() -> None:
    at = bench(work(semantics="at-most-once"))
    at.many(1)
    at.holding = True
    at.consume()
    at.send(v.StopConsumer("s", "1"), q.Cancel("s", "2"))
    at.land()
    assert [one.cid for one in at.of(m.Ack)] == ["logon", "2"]


def test_a_barrier_waits_for_consumers_without_credit() -> None:
    at = bench(work(barrier="/end = 1"))
    at.consume(sid="a")
    at.consume(sid="b", flow_mode="credit", messages=1)
    at.send(v.StopConsumer("a"))
    [barrier] = at.publish(b'{"end": 1}')
    assert at.one().queue.why_nothing(at.now) == [
        f"the barrier at {barrier} waits for 1 consumers that were stopped, or have used up their "
        "credit in messages"
    ]
    at.send(v.ConsumerFlow("a", 100))
    assert at.seen("a") == at.seen("b") == [Got(barrier, barrier=True)]
    at.many(1)
    assert len(at.got("b")) == 1, "it took the credit"


# -- flush ------------------------------------------------------------------------------------


@pytest.mark.seed("001-51")
def test_a_flush_delivers_what_there_is_and_takes_the_credit() -> None:
    at = bench()
    positions = at.many(3)
    at.consume(backlog=9, messages=0)
    at.send(v.ConsumerFlow("s"), v.FlushConsumer("s", "1"))
    assert at.got() == positions
    assert at.last() == v.Flushed("s", 3, "1")
    at.many(1)
    at.ack(*positions)
    assert at.got() == positions
    at.send(v.ConsumerFlow("s", 100))
    assert len(at.got()) == 4


@pytest.mark.seed("001-51")
def test_a_flush_goes_as_far_as_the_credit() -> None:
    at = bench()
    at.many(5)
    _credited(None, at)
    at.send(v.ConsumerFlow("s", messages=2), v.FlushConsumer("s", "1"))
    assert (len(at.got()), at.last()) == (2, v.Flushed("s", 2, "1"))
    at.send(v.ConsumerFlow("s", 100, 9), v.FlushConsumer("s", "2"))
    assert (len(at.got()), at.last()) == (5, v.Flushed("s", 3, "2"))


def test_a_flush_waits_for_no_new_message() -> None:
    at = bench()
    at.consume()
    assert at.say(v.FlushConsumer("s", "1")) == v.Flushed("s", 0, "1")
    at.many(1)
    assert at.got() == []


def test_a_flush_goes_as_far_as_the_backlog_and_the_bytes() -> None:
    at = bench()
    at.publish(b"x" * 100, b"y", b"z")
    at.consume(sid="a", backlog=1)
    assert at.say(v.FlushConsumer("a")).sent == 0
    at.consume(sid="b", backlog=1, messages=0, credit=1)
    at.send(v.ConsumerFlow("b"))
    assert at.say(v.FlushConsumer("b")).sent == 0


def test_a_flush_is_answered_after_what_was_on_its_way() -> None:
    at = bench(work(semantics="at-most-once"))
    positions = at.many(2)
    at.holding = True
    at.consume()
    at.send(v.FlushConsumer("s", "1"))
    assert not at.of(v.Flushed)
    at.land()
    assert (at.got(), at.last()) == (positions, v.Flushed("s", 2, "1"))


def test_a_flush_compares_the_filter_with_what_there_is() -> None:
    at = bench()
    at.later = (Examine,)
    at.publish(b'{"n": 1}', b'{"n": 2}')
    at.consume(filter="/n = 2")
    at.send(v.FlushConsumer("s", "1"))
    assert not at.of(v.Flushed)
    at.go_on()
    assert at.last() == v.Flushed("s", 1, "1")


def test_a_flush_does_not_wait_for_a_filter_and_new_messages() -> None:
    at = bench()
    at.later = (Examine,)
    at.consume(filter="/n = 2")
    at.publish(b'{"n": 1}')
    at.send(v.FlushConsumer("s", "1"))
    at.publish(b'{"n": 2}')
    at.go_on()
    assert at.last() == v.Flushed("s", 0, "1")


def test_a_replayable_queue_is_flushed_as_far_as_its_bytes_go() -> None:
    at = bench(replayable())
    positions = at.many(2)
    at.consume(since="0", credit=0)
    at.send(v.ConsumerFlow("s", 1_000), v.FlushConsumer("s", "1"))
    assert (at.got(), at.last()) == (positions, v.Flushed("s", 2, "1"))
    at.many(1)
    assert at.got() == positions


def test_a_flush_of_a_queue_that_is_over_has_nothing() -> None:
    at = bench()
    at.consume()
    connection = at.core.shared.connections[ANN]
    del at.manager.running["q"]
    at.core.consumers.credit.command(connection, v.FlushConsumer("s", "1"))
    at.run()
    assert at.last() == v.Flushed("s", 0, "1")


def test_a_consumer_that_is_lost_while_it_is_flushed_is_forgotten() -> None:
    at = bench()
    at.later = (Examine,)
    at.many(1)
    at.consume(filter="/n = 2")
    at.send(v.FlushConsumer("s", "1"))
    at.lose()
    assert at.core.consumers.credit.flushing == {}
    assert not at.of(v.Flushed)


def test_the_mode_waits_for_messages_that_are_on_their_way() -> None:
    at = bench()
    at.many(1)
    at.holding = True
    _credited(1, at)
    assert at.say(v.SetFlowMode("s", "window", "1")).code == "credit_left"
    at.land()
    assert at.say(v.SetFlowMode("s", "window", "2")) == m.Ack("processed", "2", sid="s")
