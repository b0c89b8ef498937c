"""zbroker/queues/dispatch.py: what consumers are given, and what is durable before that."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from pyroaring import BitMap64

from tests.queues.bench import AFTER_LEASE_MS, ANN, BOB, Got, bench, replayable, work
from zbroker.engine.events import Asked
from zbroker.log.records import BarrierDelivered, Horizon, MessagesGone
from zbroker.queues import dispatch
from zbroker.queues.commits import UNDER_WAY_MAX
from zbroker.queues.context import RemoteConsumer
from zbroker.queues.effects import Examine, Give, Unsent
from zbroker.queues.queue_state import AHEAD
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire.queue_surveys import SetPoint

# -- the horizon ------------------------------------------------------------------------------


def test_nothing_is_given_before_the_horizon_is_after_it() -> None:
    at = bench()
    positions = at.many(3)
    at.holding = True
    at.consume()
    assert at.got() == []
    assert at.sent_facts() == [Horizon(positions[-1] + AHEAD)]
    at.land()
    assert at.got() == positions


def test_the_next_horizon_is_asked_for_before_it_is_needed() -> None:
    at = bench(work(max_per_subscription=20_000))
    first = at.many(1)
    at.consume(backlog=20_000)
    assert at.got() == first
    at.holding = True
    more = at.many(AHEAD // 2)
    assert len(at.sent_facts()) == 1
    assert at.got() == first + more, "it did not have to wait"


def test_what_is_beyond_the_next_horizon_waits_for_the_one_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zbroker.queues.dispatch.AHEAD", 200)
    at = bench(work(max_per_subscription=40_000))
    at.consume(backlog=40_000)
    at.holding = True
    positions = [*at.many(1), *at.many(400)]
    assert at.got() == []
    horizon = at.sent_facts()[0].position
    at.land(1)
    got = at.got()
    assert got == positions[: len(got)]
    assert got[0] == positions[0]
    assert got[-1] < horizon < positions[-1]
    at.land()
    assert at.got() == positions


def test_what_waits_for_the_horizon_is_not_sent_to_who_is_gone() -> None:
    at = bench()
    at.many(1)
    at.holding = True
    at.consume()
    at.send(q.Cancel("s"))
    at.land()
    assert at.gives == []


def test_what_was_acknowledged_meanwhile_is_not_sent() -> None:
    at = bench()
    positions = at.many(3)
    at.holding = True
    at.consume()
    at.refuse("disk_full")
    at.ack(positions[0], sid=None, queue="q")
    at.pass_ms(1_000)
    at.land()
    assert at.settled() == [(1, 0)]
    assert at.got() == positions[1:]


def test_what_another_consumer_has_by_now_is_not_sent() -> None:
    at = bench()
    positions = at.many(1)
    at.holding = True
    at.consume()
    at.refuse("disk_full")
    at.logon(BOB)
    at.pass_ms(AFTER_LEASE_MS)
    at.send(q.Cancel("s"))
    at.consume(sid="b", rid=BOB)
    at.holding = False
    at.pass_ms(1_000)
    at.land()
    assert at.got() == []
    assert set(at.got("b")) == set(positions)


def test_a_horizon_that_was_refused_is_asked_for_again() -> None:
    at = bench()
    positions = at.many(3)
    at.holding = True
    at.consume()
    at.refuse("too_large")
    assert at.got() == []
    at.land()
    assert at.got() == positions


def test_after_a_restart_what_is_before_the_horizon_is_flagged() -> None:
    at = bench()
    old = at.many(2)
    at.consume()
    at.ack(old[0])
    at.restart()
    at.logon()
    at.consume(sid="t")
    assert at.seen("t") == [Got(old[1], 2)]


# -- at-most-once -----------------------------------------------------------------------------


@pytest.mark.seed("001-43")
def test_at_most_once_a_message_is_sent_after_it_is_durably_gone() -> None:
    at = bench(work(semantics="at-most-once"))
    positions = at.many(3)
    at.holding = True
    at.consume()
    assert at.got() == []
    [fact] = at.sent_facts()
    assert isinstance(fact, MessagesGone)
    assert fact.why == "sent"
    at.land()
    assert at.got() == positions
    assert at.here() == []


def test_at_most_once_what_could_not_be_written_is_offered_again() -> None:
    at = bench(work(semantics="at-most-once"))
    positions = at.many(3)
    at.holding = True
    at.consume()
    at.refuse("too_large")
    assert at.got() == []
    at.land()
    assert at.got() == positions


def test_at_most_once_an_ack_frees_backlog_and_writes_nothing() -> None:
    at = bench(work(semantics="at-most-once"))
    positions = at.many(4)
    at.consume(backlog=2)
    assert at.got() == positions[:2]
    at.ack(*positions[:2])
    assert at.settled() == [(2, 0)]
    assert at.got() == positions
    assert {fact.why for fact in at.facts(MessagesGone)} == {"sent"}


# -- filters ----------------------------------------------------------------------------------


def test_a_filter_decides_what_a_consumer_gets() -> None:
    at = bench()
    positions = at.publish(b'{"n": 1}', b'{"n": 2}', b'{"n": 3}')
    at.consume(sid="odd", filter="/n <> 2")
    at.consume(sid="rest")
    assert at.got("odd") == [positions[0], positions[2]]
    assert at.got("rest") == positions[1:2]


def test_a_filter_on_a_header_decides_what_a_consumer_gets() -> None:
    at = bench()
    headers = [{"book": "b1"}, None, {"book": "b2"}, {"desk": "b1"}, {"book": "b1"}]
    positions = at.publish(*[b"no JSON"] * 5, headers=headers)
    at.consume(sid="one", filter="HEADER('book') = 'b1'")
    at.consume(sid="none", filter="HEADER('book') IS NULL")
    assert at.got("one") == [positions[0], positions[4]]
    assert at.got("none") == [positions[1], positions[3]]


def test_messages_are_compared_once_at_a_time() -> None:
    at = bench()
    at.later = (Examine,)
    at.consume(filter="/n = 1")
    positions = at.publish(b'{"n": 1}')
    more = at.publish(b'{"n": 1}')
    assert len(at.waiting) == 1
    at.go_on()
    at.go_on()
    assert at.got() == positions + more


def test_a_comparison_for_who_is_gone_changes_nothing() -> None:
    at = bench()
    at.later = (Examine,)
    at.consume(filter="/n = 1")
    at.publish(b'{"n": 1}')
    at.send(q.Cancel("s"))
    at.go_on()
    assert at.gives == []


def test_a_delay_that_is_over_when_its_unit_lands_holds_nothing_back() -> None:
    """The consumer with a filter was never asked about it, since another one had it."""
    at = bench()
    [held] = at.publish(b'{"n": 1}')
    at.consume(sid="first")
    at.consume(sid="second", filter="/n = 1")
    assert (at.got("first"), at.got("second")) == ([held], [])
    at.holding = True
    at.release(held, sid="first", delay_ms=50)
    at.send(q.Cancel("first"))
    at.pass_ms(60)
    at.land()
    assert at.got("second") == [held]


# -- barriers ---------------------------------------------------------------------------------


def test_a_barrier_goes_to_everybody_once_all_before_it_is_gone() -> None:
    at = bench(work(barrier="/stop = 1", max_per_subscription=1))
    first, stop, last = at.publish(b"{}", b'{"stop": 1}', b"{}")
    at.consume(sid="a")
    at.consume(sid="b")
    assert at.got("a") == [first]
    assert at.got("b") == []
    at.ack(first, sid="a")
    assert Got(stop, barrier=True) in at.seen("a")
    assert Got(stop, barrier=True) in at.seen("b")
    assert [fact.position for fact in at.facts(BarrierDelivered)] == [stop]
    assert sorted(at.got("a") + at.got("b")) == [first, stop, stop, last]


def test_a_barrier_waits_for_the_horizon_too() -> None:
    at = bench(work(barrier="/stop = 1"))
    [stop] = at.publish(b'{"stop": 1}')
    at.holding = True
    at.consume()
    assert at.got() == []
    at.land()
    assert at.seen() == [Got(stop, barrier=True)]


def test_a_barrier_that_no_one_is_left_to_get_waits_for_somebody() -> None:
    at = bench(work(barrier="/stop = 1"))
    stop, last = at.publish(b'{"stop": 1}', b"{}")
    at.holding = True
    at.consume()
    at.send(q.Cancel("s"))
    at.land()
    assert at.gives == []
    assert at.here() == [stop, last]
    at.holding = False
    at.consume(sid="t")
    at.land()
    assert at.got("t") == [stop, last]


def test_a_barrier_goes_to_those_who_are_left() -> None:
    at = bench(work(barrier="/stop = 1"))
    [stop] = at.publish(b'{"stop": 1}')
    at.holding = True
    at.send(*[q.Consume(sid, "q", f"c-{sid}") for sid in "abc"])
    at.send(q.Cancel("a"))
    at.land()
    assert (at.got("a"), at.got("b"), at.got("c")) == ([], [stop], [stop])
    at.land()
    assert [fact.position for fact in at.facts(BarrierDelivered)] == [stop]
    assert at.here() == []


def test_a_barrier_whose_record_was_refused_goes_to_all_again() -> None:
    at = bench(work(barrier="/stop = 1"))
    at.consume()
    at.ack(*at.many(1))  # the horizon is there
    at.holding = True
    [stop] = at.publish(b'{"stop": 1}')
    assert at.got()[-1] == stop
    at.refuse("too_large")
    assert at.seen()[-1] == Got(stop, 2, barrier=True)
    at.land()
    assert at.here() == []


def test_a_barrier_that_could_not_be_read_comes_flagged() -> None:
    at = bench(work(barrier="/stop = 1"))
    at.consume()
    [stop] = at.publish(b'{"stop": 1}')
    (give,) = (give for _, give in at.gives)
    at.fail(give)
    assert at.seen()[-1] == Got(stop, 2, barrier=True), "it may have come back meanwhile"


# -- limits -----------------------------------------------------------------------------------


def test_a_consumer_with_a_large_backlog_gets_all_of_it() -> None:
    at = bench(work(max_per_subscription=5_000))
    positions = at.many(4_000)
    at.consume(backlog=5_000)
    assert at.got() == positions


def test_nothing_is_offered_while_the_journal_has_too_much_to_do() -> None:
    at = bench()
    at.consume(backlog=2)
    [one, two] = at.many(2)
    at.die()
    for _ in range(UNDER_WAY_MAX + 1):
        at.turn.hear(Asked(b"admin", SetPoint(1, "p", 1)))
    at.ack(one)
    more = at.many(1)
    assert at.got() == [one, two]
    at.come_back()
    assert at.got() == [one, two, *more]


def test_nothing_is_offered_before_all_of_the_log_was_read() -> None:
    at = bench()
    positions = at.many(3)
    at.reading = False
    at.restart()
    at.logon()
    at.consume()
    assert at.gives == []
    at.reading = True
    at.run()
    assert at.got() == positions


# -- what was given ---------------------------------------------------------------------------


def test_what_was_given_is_counted() -> None:
    at = bench()
    positions = at.many(3)
    at.consume()
    at.release(positions[0])
    one = at.one()
    assert (one.counts.delivered, one.counts.redelivered) == (4, 1)
    assert one.taken_ms == 0
    [consumer] = at.core.shared.consumers.values()
    assert consumer.delivered == 4


def test_what_cannot_be_read_is_gone() -> None:
    at = bench()
    positions = at.many(3)
    at.unreadable.add(positions[1])
    at.consume()
    assert at.got() == [positions[0], positions[2]]
    assert at.here() == [positions[0], positions[2]]
    assert [fact.why for fact in at.facts(MessagesGone)] == ["unreadable"]
    assert at.one().counts.delivered == 2


def test_what_is_given_after_its_queue_was_deleted_changes_nothing() -> None:
    at = bench()
    at.later = (Give,)
    at.many(1)
    at.consume()
    one = at.manager.running.pop("q")
    at.go_on()
    assert one.counts.delivered == 0


# -- replayable queues ------------------------------------------------------------------------


def test_a_replayable_queue_says_what_was_acknowledged() -> None:
    at = bench(replayable())
    positions = at.many(2)
    at.consume(since="0")
    at.ack(positions[1])
    at.consume(sid="again", since="0")
    assert at.seen("again") == [Got(positions[0], acked=False), Got(positions[1], acked=True)]


def test_a_replayable_queue_is_read_chunk_by_chunk() -> None:
    at = bench(replayable())
    positions = at.many(2_500)
    at.consume(since="0")
    assert at.got() == positions
    assert len(at.gives) == 3


@pytest.mark.seed("003-33")
def test_a_replayable_queue_gives_so_many_bytes_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left waits for the turn after what the other queues have to do."""
    monkeypatch.setattr(dispatch, "GIVE_BYTES", 250)
    at = bench(replayable("many"), work("other", topic="x"))
    positions = [position for _ in range(7) for position in at.publish(b"x" * 100)]
    at.consume("other", sid="other")
    at.later = (Give,)
    at.consume("many", since="0")
    other = at.publish(b"1", topic="x")
    at.go_on()
    assert (at.got(), at.got("other")) == (positions[:3], other)
    while at.waiting:
        at.go_on()
    assert at.got() == positions
    assert [len(give.positions) for sid, give in at.gives if sid == "s"] == [3, 3, 1]
    one = at.one("many")
    assert (one.counts.delivered, at.here("many")) == (7, positions)


@pytest.mark.seed("003-33")
def test_a_message_is_given_however_large_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "GIVE_BYTES", 10)
    at = bench(replayable())
    positions = [position for _ in range(3) for position in at.publish(b"x" * 100)]
    at.unreadable.add(positions[1])
    at.consume(since="0")
    assert at.got() == at.here() == [positions[0], positions[2]]


def test_a_part_of_what_is_given_keeps_its_counts() -> None:
    consumer = RemoteConsumer(5, ANN, "s", "ann", "q", 0)
    give = Give(consumer, BitMap64([3, 5, 8]), [1, 2, 3])
    assert give.part(BitMap64([3, 8])) == Give(consumer, BitMap64([3, 8]), [1, 3])
    assert replace(give, deliveries=None).part(BitMap64([5])).deliveries is None


def test_a_reader_ends_where_it_wanted_to() -> None:
    at = bench(replayable())
    positions = at.many(5)
    at.consume(since="0", until=at.bookmark(positions[2]))
    assert at.got() == positions[:3]
    assert at.last() == m.Ack("completed", sid="s", ended=True)
    assert at.core.shared.consumers == {}
    at.consume(sid="t", since="0", until=at.bookmark(positions[0]))
    assert at.got("t") == positions[:1]


def test_a_reader_that_wants_nothing_ends_at_once() -> None:
    at = bench(replayable())
    positions = at.many(5)
    at.consume(since=at.bookmark(positions[3]), until=at.bookmark(positions[1]))
    assert at.gives == []
    assert at.last() == m.Ack("completed", sid="s", ended=True)


def test_what_a_replayable_queue_cannot_read_is_passed_over() -> None:
    at = bench(replayable())
    positions = at.many(3)
    at.unreadable.add(positions[0])
    at.consume(since="0")
    assert at.got() == positions[1:]
    assert at.here() == positions[1:]


# -- what cannot be sent or read --------------------------------------------------------------


def test_what_could_not_be_sent_is_with_another_consumer_at_once() -> None:
    at = bench()
    positions = at.many(3)
    at.consume()
    at.logon(BOB)
    (give,) = (give for _, give in at.gives)
    at.turn.hear(Unsent(ANN, give, BitMap64(positions[1:])))
    at.run()
    at.consume(sid="b", rid=BOB)
    assert at.got("b") == positions[1:]
    assert [got.deliveries for got in at.seen("b")] == [1, 1], "it was no delivery"


def test_what_could_not_be_read_is_given_later_if_the_consumer_still_has_it() -> None:
    at = bench()
    positions = at.many(3)
    at.consume()
    (give,) = (give for _, give in at.gives)
    at.ack(positions[0])
    at.fail(give)
    assert at.got() == [*positions, *positions[1:]]
    at.send(q.Cancel("s"))
    at.fail(give)
    assert len(at.gives) == 2, "there is no one to give it to"


def test_what_could_not_be_read_of_a_queue_that_is_gone_is_given_to_no_one() -> None:
    at = bench()
    at.many(1)
    at.consume()
    (give,) = (give for _, give in at.gives)
    del at.core.manager.running["q"]
    at.gives.clear()
    at.fail(give)
    at.turn.hear(Unsent(BOB, give, give.positions))
    at.run()
    assert at.gives == []
