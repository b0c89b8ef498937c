"""zbroker/queues/reports.py: what the admin is informed of queues and consumers."""

from __future__ import annotations

import pytest
from msgspec import to_builtins

from tests.queues.bench import ANN, BOB, STEP_NS, WALL_NS, Bench, bench, replayable, work
from zbroker.engine.effects import Tell
from zbroker.engine.events import Asked
from zbroker.queues import reports
from zbroker.queues.commits import UNDER_WAY_MAX
from zbroker.queues.effects import Give
from zbroker.queues.snapshots import Snapshots
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.queue_surveys import Explain, SetPoint
from zbroker.wire.surveys import AskClients


def _row(at: Bench, name: str = "q") -> s.QueueRow:
    return reports.row(at.core.shared, at.one(name))


def test_a_row_says_what_a_queue_is() -> None:
    config = work(lease=5_000)
    row = _row(bench(config))
    assert (row.name, row.kind, row.topic, row.regex) == ("q", "work", "t", False)
    assert (row.source, row.life, row.created, row.state) == ("config", 1, 1, "running")
    assert row.definition == to_builtins(config)
    assert (row.depth, row.first, row.last, row.oldest_ns, row.barrier) == (0, 0, 0, None, None)


def test_without_a_topic_the_name_is_it() -> None:
    assert _row(bench(work(topic="")), "q").topic == "q"


def test_a_row_says_what_it_holds() -> None:
    at = bench(work(barrier="/stop = 1"))
    positions = at.publish(*[b"{}"] * 6, b'{"stop": 1}', b"{}")
    at.consume(backlog=3)
    at.release(positions[0], delay_ms=5_000)
    at.holding = True
    at.ack(positions[1])
    at.pass_ms(1_500)
    row = _row(at)
    assert (row.depth, row.ready, row.leased, row.delayed, row.going) == (8, 1, 3, 1, 1)
    assert (row.first, row.last) == (positions[0], positions[-1])
    assert row.barrier == positions[6]
    assert row.holding == positions[0]
    assert row.oldest_ns == WALL_NS + positions[0] * STEP_NS
    assert row.bytes > 0
    assert row.memory_bytes > 0
    assert row.consumers == 1
    assert row.behind == 0


def test_a_row_says_what_was_done() -> None:
    at = bench()
    positions = at.many(5)
    assert _row(at).idle_ms is None
    at.consume(backlog=3)
    at.ack(positions[0])
    at.release(positions[1])
    at.reject(positions[2])
    at.pass_ms(700)
    row = _row(at)
    assert row.idle_ms == 700
    assert (row.entered, row.delivered, row.redelivered) == (5, 6, 1)
    assert (row.acked, row.failed, row.dead, row.expired) == (1, 1, 1, 0)


def test_what_came_from_the_tables_and_left_is_not_reported_any_more() -> None:
    """Nobody used the queue since the start, as on an instance whose messages others process."""
    at = bench(work())
    positions = at.many(3)
    at.restart(Snapshots().take(at.manager).many)
    [row] = at.ask(s.AskQueues(1)).rows
    assert (row.depth, row.entered, row.holding) == (3, 0, positions[0])
    at.ask(s.Purge(2, "q"))
    assert not at.one().queue.here
    [row] = at.ask(s.AskQueues(3)).rows
    assert (row.depth, row.holding) == (0, at.one().folded)


def test_a_queue_that_is_read_says_how_far_it_is_behind() -> None:
    at = bench()
    at.many(3)
    at.reading = False
    at.restart()
    row = _row(at)
    assert (row.state, row.behind) == ("reading", at.persisted - 1)


def test_of_a_replayable_queue_everything_is_ready() -> None:
    at = bench(replayable())
    at.many(3)
    row = _row(at)
    assert (row.depth, row.ready, row.leased, row.barrier) == (3, 3, 0, None)


# -- consumers --------------------------------------------------------------------------------


def _consumers(at: Bench, **more: object) -> tuple[list[s.ConsumerRow], int]:
    found = reports.consumers(at.core.shared, s.AskConsumers(7, **more))  # type: ignore[arg-type]
    return found.rows, found.left_out


def test_a_consumer_is_reported_with_what_it_has() -> None:
    at = bench()
    positions = at.publish(*[b'{"n": %d}' % n for n in range(4)])
    at.consume(backlog=2, credit=1_000, filter="/n > 0")
    at.ack(positions[1])
    at.pass_ms(10_000)
    assert _consumers(at) == (
        [s.ConsumerRow("q", "ann", "s", "", 2, 2, 1_000 - 24, 3, 1, "/n > 0", 20_186)],
        0,
    )


def test_a_consumer_that_has_nothing_has_no_end_of_a_lease() -> None:
    at = bench(work(), replayable("log"))
    at.consume()
    at.consume("log", "r", since="0")
    assert [(row.held, row.next_end_ms) for row in _consumers(at)[0]] == [(0, None)] * 2


def test_a_consumer_whose_connection_is_lost_is_reported_as_long_as_it_may_come_back() -> None:
    at = bench()
    at.many(3)
    at.consume(backlog=2)
    at.lose()
    assert _consumers(at) == (
        [s.ConsumerRow("q", "ann", "s", "", 2, 2, 0, 0, 0, "", 30_186, gone=True)],
        0,
    )
    at.pass_ms(60_000)
    assert _consumers(at) == ([], 0)


def test_consumers_come_by_queue_and_client() -> None:
    at = bench(work("b"), work("a"))
    at.logon(BOB)
    for queue, sid, rid in (("b", "4", ANN), ("a", "3", BOB), ("a", "2", ANN), ("a", "1", ANN)):
        at.consume(queue, sid, rid)
    names = [(row.queue, row.client, row.sid) for row in _consumers(at)[0]]
    assert names == [("a", "ann", "1"), ("a", "ann", "2"), ("a", "bob", "3"), ("b", "ann", "4")]
    assert len(_consumers(at, queue="b")[0]) == 1
    rows, left_out = _consumers(at, limit=3)
    assert (len(rows), left_out) == (3, 1)


def test_so_many_rows_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "ROWS_MAX", 1)
    at = bench()
    at.logon(BOB)
    at.consume(sid="a")
    at.consume(sid="b")
    assert _consumers(at, limit=5)[1] == 1
    assert reports.clients(at.core.shared, AskClients(7, limit=5), _peers).left_out == 1


def test_a_consumer_of_a_queue_that_was_just_deleted_is_informed() -> None:
    at = bench()
    at.many(1)
    at.consume()
    del at.manager.running["q"]
    assert [row.held for row in _consumers(at)[0]] == [0]


# -- connections ------------------------------------------------------------------------------


def _peers(rid: bytes) -> tuple[str, int | None]:
    return ("10.0.0.1:5", 250) if rid == ANN else ("", None)


def test_connections_are_reported_by_name() -> None:
    at = bench()
    at.logon(BOB, heartbeat_s=2)
    at.consume(sid="a")
    at.consume(sid="b")
    at.many(3)
    at.pass_ms(1_000)
    reported = reports.clients(at.core.shared, AskClients(7), _peers)
    ann, bob = reported.rows
    assert (reported.cid, reported.left_out) == (7, 0)
    assert (ann.client, ann.address, ann.subscriptions, ann.messages) == ("ann", "10.0.0.1:5", 2, 3)
    assert (bob.client, bob.address, bob.subscriptions, bob.messages) == ("bob", "", 0, 0)
    assert (ann.heartbeat_s, bob.heartbeat_s) == (30, 2)
    [only] = reports.clients(at.core.shared, AskClients(7, "bob"), _peers).rows
    assert only.client == "bob"
    assert at.of(q.Consuming)


def _why(at: Bench, position: int = 0) -> tuple[str, list[str]]:
    reported = at.ask(Explain(7, "q", position))
    assert reported.cid == 7
    return reported.state, reported.lines


def test_nothing_is_in_the_way() -> None:
    at = bench()
    at.later = (Give,)  # nothing is given
    at.consume()
    at.many(3)
    at.one().queue.leave(1)
    at.one().queue.join(1, "ann/s", 0, False, at.now)
    at.turn.hear(Asked(b"admin", Explain(7, "q")))
    effects = at.core.tick(at.now, drained=True)
    [reported] = [effect.answer for effect in effects if isinstance(effect, Tell)]
    assert (reported.state, reported.lines) == ("delivering", ["nothing holds it back"])


def test_it_is_empty() -> None:
    assert _why(bench()) == ("waiting", ["it is empty"])


def test_no_one_consumes() -> None:
    at = bench()
    at.many(1)
    assert _why(at) == ("waiting", ["it has no consumer"])


def test_the_log_is_being_read() -> None:
    at = bench()
    at.many(3)
    at.reading = False
    at.restart()
    state, [line] = _why(at)
    assert state == "reading"
    assert line == f"it is being read: {at.persisted - 1} positions of the log are left"


def test_the_journal_takes_nothing() -> None:
    at = bench()
    at.die()
    for _ in range(UNDER_WAY_MAX + 1):
        at.turn.hear(Asked(b"admin", SetPoint(1, "p", 1)))
    assert _why(at)[0] == "journal"


def test_a_consumer_has_no_credit() -> None:
    at = bench()
    at.publish(b"x" * 100, b"y")
    at.consume(backlog=1, credit=50)
    at.ack(*at.got())
    state, lines = _why(at)
    assert state == "waiting"
    assert lines == [
        "no consumer has credit: they have not read what they were sent",
        "consumer ann/s has no credit: it does not read what it was sent",
    ]
    at.send(m.Flow("s", 1_000))
    assert _why(at)[1][0] == "1 messages are leased; the first lease ends in 30.2 s"


def test_the_horizon_is_on_its_way() -> None:
    at = bench()
    at.many(1)
    at.holding = True
    at.consume()
    assert _why(at)[1][-1] == "offered messages wait for the horizon to be durable"


# -- one message ------------------------------------------------------------------------------


def test_a_message_that_can_be_delivered() -> None:
    at = bench()
    [position] = at.many(1)
    assert _why(at, position) == (
        "ready",
        ["it can be delivered as soon as a consumer has room", "it has no consumer"],
    )


def test_a_message_that_is_leased() -> None:
    at = bench()
    [position] = at.many(1)
    at.consume()
    at.pass_ms(20_000)
    assert _why(at, position) == (
        "leased",
        [
            "it is leased",
            "consumer ann/s has it",
            "that is over in 10.2 s",
            "1 deliveries, 0 failures so far",
        ],
    )


def test_a_message_that_is_delayed() -> None:
    at = bench()
    [position] = at.many(1)
    at.consume()
    at.release(position, delay_ms=5_000)
    assert _why(at, position) == (
        "delayed",
        [
            "it waits for its delay to be over",
            "that is over in 5.0 s",
            "1 deliveries, 1 failures so far",
        ],
    )


def test_a_message_that_is_done() -> None:
    at = bench()
    [position] = at.many(1)
    at.consume()
    at.holding = True
    at.ack(position)
    state, lines = _why(at, position)
    assert (state, lines[0]) == ("going", "it is done; that is on its way to the disk")


def test_a_message_that_waits_for_its_group() -> None:
    at = bench(work(group_key="/k"))
    first, second = at.publish(b'{"k": 1}', b'{"k": 1}')
    at.consume()
    assert at.got() == [first]
    state, lines = _why(at, second)
    assert (state, lines[0]) == ("waiting", "something before it has to be done first")
    assert "1 messages wait for another one of their group key" in lines


def test_a_message_that_is_gone() -> None:
    at = bench()
    [position] = at.many(1)
    at.consume()
    at.ack(position)
    assert _why(at, position) == (
        "gone",
        ["it is not in the queue: it never entered, was done, or was purged"],
    )


def test_a_message_that_was_given_up() -> None:
    at = bench()
    [position] = at.many(1)
    at.consume()
    at.reject(position)
    assert _why(at, position) == (
        "dead",
        ["it was given up; `zbroker-admin queue requeue` brings it back"],
    )


def test_a_message_that_was_not_read_yet() -> None:
    at = bench()
    at.reading = False
    [position] = at.many(1)
    assert _why(at, position) == ("reading", ["the queue has not read that far yet"])


@pytest.mark.parametrize("acked", [True, False])
def test_a_message_of_a_replayable_queue(acked: bool) -> None:
    at = bench(replayable())
    [position] = at.many(1)
    if acked:
        at.ack(position, sid=None, queue="q")
    assert _why(at, position) == (
        ("acked", ["it was acknowledged, and is kept"]) if acked else ("kept", ["it is kept"])
    )
