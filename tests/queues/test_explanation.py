"""zbroker/queues/explanation.py: why is nothing delivered?"""

from __future__ import annotations

import pytest

from tests.queues.bench import Bench, bench, replayable, work
from zbroker.engine.effects import Tell
from zbroker.engine.events import Asked
from zbroker.queues.commits import UNDER_WAY_MAX
from zbroker.queues.effects import Give
from zbroker.wire import messages as m
from zbroker.wire.queue_surveys import Explain, SetPoint


def _why(at: Bench, position: int = 0) -> tuple[str, list[str]]:
    told = at.ask(Explain(7, "q", position))
    assert told.cid == 7
    return told.state, told.lines


def test_nothing_is_in_the_way() -> None:
    at = bench()
    at.later = (Give,)  # nothing is given
    at.consume()
    at.many(3)
    at.one().queue.leave(1, at.now)
    at.one().queue.join(1, "ann/s", 0, False, at.now)
    at.turn.hear(Asked(b"admin", Explain(7, "q")))
    effects = at.core.tick(at.now, drained=True)
    [told] = [effect.answer for effect in effects if isinstance(effect, Tell)]
    assert (told.state, told.lines) == ("delivering", ["nothing holds it back"])


def test_it_is_empty() -> None:
    assert _why(bench()) == ("waiting", ["it is empty"])


def test_nobody_consumes() -> None:
    at = bench()
    at.many(1)
    assert _why(at) == ("waiting", ["nobody consumes it"])


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
        at.turn.hear(Asked(b"admin", SetPoint(1, "p")))
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
    assert _why(at)[1][-1] == "what was offered waits for the horizon to be durable"


# -- one message ------------------------------------------------------------------------------


def test_a_message_that_can_be_delivered() -> None:
    at = bench()
    [position] = at.many(1)
    assert _why(at, position) == (
        "ready",
        ["it can be delivered as soon as a consumer has room", "nobody consumes it"],
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
