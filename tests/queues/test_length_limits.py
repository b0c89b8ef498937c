"""Limits of what may wait in a queue, through the core: zbroker/queues/work/length_limit.py."""

from __future__ import annotations

from tests.queues.bench import BOB, bench, work
from tests.queues.linked import join, linked
from zbroker.log.records import MessagesGone, unpack_positions
from zbroker.queues.commits import UNDER_WAY_MAX
from zbroker.queues.snapshots import Snapshots
from zbroker.wire import queue_surveys as s


def test_what_is_too_much_leaves_by_one_record() -> None:
    at = bench(work(max_length=3))
    positions = at.many(5)
    assert at.here() == positions[2:]
    [fact] = at.facts(MessagesGone)
    assert (list(unpack_positions(fact.where)), fact.why) == (positions[:2], "max_length")
    counts = at.one().counts
    assert (counts.dropped, counts.dead) == (2, 2)


def test_a_consumer_with_room_gets_all_of_it() -> None:
    at = bench(work(max_length=1))
    at.consume()
    positions = at.many(5)
    assert at.got() == positions
    assert at.facts(MessagesGone) == []


def test_they_are_dead_letters_with_the_reason() -> None:
    at = bench(work(max_length=1, dead_letter="dead"))
    at.publish(b"one", b"two")
    [(topic, data, headers)] = at.letters()
    assert (topic, data, headers["zb-reason"]) == ("dead", b"one", "max_length")
    assert len(at.here()) == 1


def test_what_was_dropped_can_be_brought_back() -> None:
    at = bench(work(max_length=2))
    positions = at.many(3)
    at.consume(backlog=2)
    assert at.ask(s.Requeue(0, "q", limit=10)).count == 1
    assert at.here() == positions, "the two others are with a consumer"


def test_a_restart_drops_nothing_twice() -> None:
    at = bench(work(max_length=2))
    positions = at.many(4)
    count = len(at.log)
    at.restart()
    at.logon()
    assert (at.here(), len(at.log)) == (positions[2:], count)


def test_bytes_are_known_after_a_restart_with_tables() -> None:
    at = bench(work(max_bytes=100))
    at.publish(b"x" * 60)
    at.restart(Snapshots().take(at.manager).many)
    at.logon()
    [last] = at.publish(b"x" * 60)
    assert at.here() == [last]


def test_what_is_read_late_is_dropped_once_all_was_read() -> None:
    at = bench(work(max_length=2))
    at.reading = False
    positions = at.many(5)
    assert at.here() == []
    at.reading = True
    at.run()
    assert at.here() == positions[3:]


def test_a_lower_limit_holds_at_once() -> None:
    at = bench(work("other"))
    at.ask(s.Define(0, "create", "q", {"topic": "t", "max_length": 4}))
    positions = at.many(4)
    at.ask(s.Define(0, "alter", "q", {"max_length": 1}))
    assert at.here() == positions[3:]


def test_nothing_is_decided_while_too_many_units_wait() -> None:
    at = bench(work(max_length=1), work("busy", "b"))
    at.holding = True
    at.logon(BOB)
    at.consume("busy", sid="b", rid=BOB, backlog=5_000)
    busy = at.many(UNDER_WAY_MAX + 1_000, "b")
    for position in busy:
        at.ack(position, sid="b", rid=BOB)
        if at.manager.commits.full:
            break
    assert at.manager.commits.full
    positions = at.many(3)
    assert at.here() == positions
    at.holding = False
    at.land()
    assert at.here() == positions[2:]


def test_each_instance_drops_what_it_owns() -> None:
    one, other = linked(2, work(scope="distributed", max_length=2))
    for each in (one, other):
        each.peers_read()
    for number in (1, 2, 3):
        one.accept(number)
    for number in (4, 5, 6):
        other.accept(number)
    join([one, other])
    assert one.numbers() == other.numbers() == {2, 3, 5, 6}
