"""What sessions hold when the queues process begins again: it is theirs, if they say so in time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import AFTER_LEASE_MS, ANN, BOB, HERE, Got
from tests.queues.test_session_timeouts import (
    MINE,
    MINUTE,
    OTHER,
    Kept,
    join,
    kept,
    logon,
    other_takes,
)
from tests.queues.test_transaction_commands import attach, bench, code, commit, records, say, took
from zbroker.config import QueueConfig
from zbroker.engine.contract import Now
from zbroker.queues.work.values import MS_NS
from zbroker.wire import queue_messages as q
from zbroker.wire.queue_surveys import DrainQueues, Explain
from zbroker.wire.transactions import DetachSession, TransactionCommitted

LEASE_MS = 5_000
LEASED = QueueConfig("q", topic="t", lease=LEASE_MS)


def restarted(*configs: QueueConfig) -> Kept:
    """The session had two messages; nobody is there yet."""
    at = kept(*(configs or (LEASED,)))
    begin_again(at)
    return at


def begin_again(at: Kept) -> None:
    at.restart()
    at.gives.clear()
    at.answers.clear()
    at.logon(BOB)
    at.logon()
    logon(at, MINE, OTHER)


def restate(at: Kept, *positions: int, **more: Any) -> list[int] | None:
    """The consumer of the session is back. Returns: what it keeps."""
    ends = [end for one in positions for end in (one, one + 1)]
    join(at, holding=ends, generation=HERE.generation, **more)
    kept: list[int] | None = at.of(q.Consuming)[-1].kept
    return kept


def again(at: Kept, *consumers: tuple[str, str]) -> Any:
    """The session is attached by the same program, which says which consumers it has."""
    return attach(
        at, holder="me", again=True, timeout_ms=MINUTE, consumers=[*consumers] or None
    )  # fmt: skip


@pytest.mark.seed("001-10")
def test_a_consumer_of_a_session_keeps_what_it_held() -> None:
    at = restarted()
    assert other_takes(at) == []
    assert restate(at, at.low, at.high) == [at.low, at.high + 1]
    at.pass_ms(10 * LEASE_MS)
    assert (at.seen("o"), at.got()) == ([], [])
    epoch = again(at, ("q", "h")).epoch
    accepted = took(at.low, at.high)
    accepted.holder = "h"
    assert isinstance(commit(at, epoch, 1, accepted), TransactionCommitted)
    assert at.here() == []


def test_what_it_does_not_hold_comes_again_flagged_once() -> None:
    at = restarted()
    other_takes(at)
    assert restate(at, at.high) == [at.high, at.high + 1]
    assert again(at, ("q", "h"))
    assert at.seen("o") == [Got(at.low, 2)]


@pytest.mark.parametrize("first", ["session", "consumer"])
def test_the_rest_is_offered_as_soon_as_all_its_consumers_are_back(first: str) -> None:
    at = restarted()
    other_takes(at)
    if first == "session":
        again(at, ("q", "h"), ("q", "h2"))
    restate(at, at.low)
    if first == "consumer":
        again(at, ("q", "h"), ("q", "h2"))
    assert at.seen("o") == []
    at.consume(sid="z", rid=OTHER, holder="h2", session="bills", epoch=at.epoch)
    assert [one.position for one in at.seen("o") + at.seen("z")] == [at.high]


def test_a_program_that_does_not_say_which_it_has_is_waited_for() -> None:
    at = restarted()
    other_takes(at)
    restate(at, at.low)
    again(at)
    at.pass_ms(LEASE_MS - 1)
    assert at.seen("o") == []
    at.pass_ms(1)
    assert at.seen("o") == [Got(at.high, 2)]


@pytest.mark.parametrize(("lease", "timeout_ms", "wait_ms"), [
    (LEASE_MS, MINUTE, LEASE_MS), (2 * MINUTE, MINUTE, MINUTE), (0, MINUTE, 30_000),
])  # fmt: skip
def test_it_is_held_back_for_a_lease_or_a_time_out(
    lease: int, timeout_ms: int, wait_ms: int
) -> None:
    at = restarted(QueueConfig("q", topic="t", lease=lease))
    other_takes(at)
    at.pass_ms(wait_ms - 1)
    assert at.seen("o") == []
    at.pass_ms(1)
    assert at.seen("o") == [Got(at.low, 2), Got(at.high, 2)]
    assert restate(at, at.low, at.high) == []


def test_new_messages_do_not_wait() -> None:
    at = restarted()
    other_takes(at)
    assert at.many(3) == at.got("o")


def test_nothing_waits_where_no_session_is_kept() -> None:
    at = bench(LEASED)
    at.consume(rid=BOB, sid="b")
    attach(at, holder="me")
    [one] = at.many(1)
    at.restart()
    at.logon(BOB)
    assert other_takes(at) == [Got(one, 2)]


def test_a_session_that_ends_is_not_waited_for() -> None:
    at = restarted()
    other_takes(at)
    say(at, DetachSession("bills", at.epoch))
    assert at.seen("o") == [Got(at.low, 2), Got(at.high, 2)]


def test_another_program_gets_all_of_it() -> None:
    at = restarted()
    attach(at, holder="other", timeout_ms=MINUTE)
    assert other_takes(at) == [Got(at.low, 2), Got(at.high, 2)]
    assert code(again(at)) == "session_fenced"


def test_a_consumer_of_no_session_claims_nothing() -> None:
    at = restarted()
    at.consume(rid=BOB, sid="o", holding=[at.low, at.low + 1], generation=HERE.generation)
    assert at.of(q.Consuming, BOB)[-1].kept == []
    assert at.seen("o") == []


def test_sessions_that_are_not_known_are_waited_for_up_to_a_lease() -> None:
    at = kept(LEASED)
    at.silent = True
    begin_again(at)
    other_takes(at)
    at.pass_ms(LEASE_MS - 1)
    assert at.seen("o") == []
    at.pass_ms(1)
    assert at.seen("o") == [Got(at.low, 2), Got(at.high, 2)]


@pytest.mark.parametrize("leasing", ["sublet", "strict"])
def test_an_acknowledgement_from_before_counts_meanwhile(leasing: Any) -> None:
    at = restarted(QueueConfig("q", topic="t", leasing=leasing))
    at.consume(rid=BOB, sid="o")
    at.ack(at.low, rid=BOB, sid="o")
    assert at.here() == [at.high]


@pytest.mark.parametrize("claims", [False, True])
def test_a_single_active_consumer_does_not_wait_for_what_is_done_or_claimed(claims: bool) -> None:
    at = restarted(QueueConfig("q", topic="t", lease=0, single_active_consumer=True))
    if claims:
        restate(at, at.low, at.high)
    at.ack(at.low, at.high, rid=BOB, sid=None, queue="q")
    if not claims:
        other_takes(at)
    new = at.many(1)
    assert at.got("s" if claims else "o") == new, "nothing else happens in this queue"


def test_one_of_a_key_is_held_back_and_the_next_ones_wait_for_it() -> None:
    at = kept(QueueConfig("q", topic="t", lease=LEASE_MS, group_key="KEY()"))
    at.publish(b"1", b"2", keys=[b"k", b"k"])
    begin_again(at)
    other_takes(at)
    assert at.seen("o") == []
    at.pass_ms(LEASE_MS)
    assert at.seen("o")


def test_a_consumer_that_is_faster_than_its_queue_says_again_what_it_holds() -> None:
    at = kept(LEASED)
    at.reading = False
    begin_again(at)
    join(at, holding=[at.low, at.high + 1], generation=HERE.generation)
    assert at.codes() == ["not_ready"]
    at.reading = True
    at.run()
    assert restate(at, at.low, at.high) == [at.low, at.high + 1]
    again(at, ("q", "h"))
    assert other_takes(at) == []


@pytest.mark.parametrize("back_ms", [0, 60_000])
def test_what_was_delayed_before_it_was_delivered_is_held_back(back_ms: int) -> None:
    """back_ms: how far the clock goes back with the restart, so that the delay is not over."""
    at = kept(LEASED)
    at.release(at.low, rid=MINE, delay_ms=1_000)
    at.pass_ms(1_001)
    assert at.got() == [at.low, at.high, at.low]
    at.now = Now(at.now.mono_ms, at.now.wall_ns - back_ms * MS_NS)
    begin_again(at)
    assert other_takes(at) == []
    assert restate(at, at.low, at.high) == [at.low, at.high + 1]
    again(at, ("q", "h"))
    at.pass_ms(10 * LEASE_MS)
    assert at.seen("o") == []


def test_what_waits_for_a_delay_waits_on_when_nothing_is_held_back() -> None:
    at = kept(LEASED)
    at.release(at.low, rid=MINE, delay_ms=2 * LEASE_MS)
    begin_again(at)
    other_takes(at)
    restate(at, at.high)
    again(at, ("q", "h"))
    at.pass_ms(2 * LEASE_MS - 1)
    assert at.seen("o") == []
    at.pass_ms(AFTER_LEASE_MS)
    assert [one.position for one in at.seen("o")] == [at.low]


def test_operators_see_why() -> None:
    at = restarted()
    answer = at.ask(Explain(1, "q"))
    assert any("2 messages are held back" in line for line in answer.lines)
    one = at.ask(Explain(1, "q", at.low))
    assert (one.state, at.one().queue.where(at.low, at.now).deliveries) == ("leased", 1)


def test_an_instance_that_is_to_stop_holds_nothing_back() -> None:
    at = restarted()
    at.ask(DrainQueues(1, "quiet"))
    assert other_takes(at) == [Got(at.low, 2), Got(at.high, 2)]


def test_a_session_that_began_since_is_not_waited_for() -> None:
    at = restarted()
    attach(at, "another", rid=ANN, holder="x", timeout_ms=10 * MINUTE)
    restate(at, at.low, at.high)
    again(at, ("q", "h"))
    assert at.manager.sessions.restating_ms() == 0
    assert records(at)
