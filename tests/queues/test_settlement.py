"""zbroker/queues/settlement.py: which messages are meant, and when that is answered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import BOB, HERE, KEY_A, Bench, bench, replayable, rules, work
from zbroker.log.generations import Generations
from zbroker.log.records import Failed, MessagesGone, Noted
from zbroker.queues import settlement
from zbroker.queues.effects import Examine
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q


def _filled(*configs: Any, count: int = 3, **more: Any) -> tuple[Bench, list[int]]:
    """Messages numbered from 0 as JSON, all of them leased to ann's consumer s."""
    at = bench(*configs, **more)
    positions = at.publish(*[b'{"n": %d}' % number for number in range(count)])
    at.consume()
    return at, positions


# -- answers ----------------------------------------------------------------------------------


@pytest.mark.seed("001-44")
@pytest.mark.seed("003-13")
def test_an_ack_is_answered_once_its_unit_has_landed() -> None:
    at, positions = _filled()
    at.holding = True
    at.ack(*positions)
    assert at.settled() == []
    assert at.one().queue.going == at.one().queue.here
    at.land()
    assert at.of(q.Settled) == [q.Settled("c", "s", 3, 0)]
    assert at.here() == []


def test_an_ack_that_is_repeated_while_it_is_on_its_way_waits_for_it() -> None:
    at, positions = _filled()
    at.holding = True
    at.ack(*positions, cid="1")
    at.ack(*positions, cid="2")
    assert at.settled() == []
    at.land()
    assert [(one.cid, one.taken, one.ignored) for one in at.of(q.Settled)] == [
        ("1", 3, 0),
        ("2", 0, 3),
    ]


def test_a_repeated_ack_of_which_some_is_new_waits_for_both() -> None:
    at, positions = _filled()
    at.holding = True
    at.ack(*positions[:2], cid="1")
    at.ack(*positions, cid="2")
    at.land(1)
    assert [one.cid for one in at.of(q.Settled)] == ["1"]
    at.land()
    assert [(one.cid, one.taken, one.ignored) for one in at.of(q.Settled)] == [
        ("1", 2, 0),
        ("2", 1, 2),
    ]


@pytest.mark.seed("002-10")
def test_what_is_gone_is_ignored() -> None:
    at, positions = _filled()
    at.ack(*positions)
    at.ack(*positions, 900)
    assert at.settled() == [(3, 0), (0, 4)]


def test_a_refused_unit_is_undone_and_reported() -> None:
    at, positions = _filled()
    at.holding = True
    at.ack(*positions, cid="1")
    at.refuse("too_large")
    assert at.errors() == [("too_large", "1", None)]
    assert at.settled() == []
    at.holding = False
    at.land()
    assert at.got() == positions * 2, "they are offered again"
    assert [note.name for note in at.notes] == ["queues.refused"]


def test_who_repeated_an_ack_that_is_refused_learns_so_too() -> None:
    at, positions = _filled()
    at.holding = True
    at.ack(*positions, cid="1")
    at.ack(*positions, cid="2")
    at.refuse("too_large")
    at.land()
    assert at.errors() == [("too_large", "1", None), ("too_large", "2", None)]
    assert at.settled() == []


def test_a_unit_that_is_refused_for_now_is_answered_when_it_lands() -> None:
    at, positions = _filled()
    at.holding = True
    at.ack(*positions)
    at.refuse("disk_full")
    assert at.answers[-1][1] == at.of(q.Consuming)[-1], "nothing was said"
    at.pass_ms(1_000)
    at.land()
    assert at.settled() == [(3, 0)]


def test_a_command_of_two_parts_is_answered_when_both_have_landed() -> None:
    at, positions = _filled(work(retry_delay=[0, 10]))
    at.release(positions[0])
    at.holding = True
    at.release(*positions)
    assert len(at.sent_facts()) == 2, "they wait for different times"
    at.land()
    assert at.settled() == [(1, 0), (3, 0)]


def test_nothing_is_answered_to_who_is_gone() -> None:
    at, positions = _filled()
    at.holding = True
    at.ack(*positions)
    at.lose()
    at.land()
    assert at.settled() == []
    at.logon()
    at.consume()
    at.ack(*positions, cid="1")
    at.holding = True
    at.logon(BOB)
    at.ack(at.many(1)[0], sid=None, queue="q", rid=BOB)
    at.lose(BOB)
    at.refuse("too_large")
    assert at.errors() == []


def test_a_settle_without_messages_is_answered_at_once() -> None:
    at, _ = _filled()
    at.holding = True
    at.ack()
    assert at.settled() == [(0, 0)]


# -- verbs ------------------------------------------------------------------------------------


def test_a_nack_brings_the_message_again() -> None:
    at, positions = _filled()
    at.release(positions[1])
    assert at.settled() == [(1, 0)]
    assert at.seen()[-1].deliveries == 2
    assert [fact.why for fact in at.facts(Failed)] == ["cancelled"]


def test_what_is_released_with_a_delay_comes_then() -> None:
    at, positions = _filled()
    at.release(positions[1], delay_ms=500)
    assert at.state(positions[1]) == "delayed"
    at.pass_ms(499)
    assert at.got() == positions
    at.pass_ms(1)
    assert at.got() == [*positions, positions[1]]


def test_what_is_rejected_is_gone() -> None:
    at, positions = _filled()
    at.reject(positions[1], reason="no good")
    assert at.here() == [positions[0], positions[2]]
    assert [fact.why for fact in at.facts(MessagesGone)] == ["rejected"]


def test_an_extended_lease_lasts_longer() -> None:
    at, positions = _filled()
    at.holding = True
    at.extend(positions[0], lease_ms=120_000)
    assert at.settled() == [(1, 0)], "it is answered at once"
    at.pass_ms(60_000)
    assert at.state(positions[0]) == "leased"
    assert at.state(positions[1]) == "going"


def test_only_an_ack_counts_as_one() -> None:
    at, positions = _filled()
    at.ack(positions[0])
    at.reject(positions[1])
    [consumer] = at.core.shared.consumers.values()
    assert consumer.acked == 1


def test_anybody_may_acknowledge_by_queue() -> None:
    at, positions = _filled()
    at.logon(BOB)
    at.ack(*positions, sid=None, queue="q", rid=BOB)
    assert at.of(q.Settled, BOB) == [q.Settled("c", None, 3, 0)]
    assert at.here() == []


def test_where_leasing_is_strict_the_holder_must() -> None:
    at, positions = _filled(work(leasing="strict"))
    at.logon(BOB)
    at.ack(*positions, sid=None, queue="q", rid=BOB)
    at.ack(*positions)
    assert at.settled() == [(0, 3), (3, 0)]


def test_the_queue_counts_if_the_consumer_is_over() -> None:
    at, positions = _filled()
    at.send(q.Cancel("s"))
    at.ack(*positions, queue="q")
    assert at.settled() == [(3, 0)]


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (q.Settle("c", ends=[1, 2]), "bad_field"),
        (q.Settle("c", sid="nope", ends=[1, 2]), "unknown_sid"),
        (q.Settle("c", queue="nope", ends=[1, 2]), "unknown_queue"),
        (q.Settle("c", sid="s", ends=[1, 2], filter="/n = 1"), "bad_field"),
        (q.Settle("c", sid="s", ends=[1, 2], bookmarks=["1|1|"]), "bad_field"),
        (q.Settle("c", sid="s", ends=[1]), "bad_field"),
        (q.Settle("c", sid="s", ends=[2, 1]), "bad_field"),
        (q.Settle("c", sid="s", ends=[1, 2], generation=9), "stale_epoch"),
        (q.Settle("c", sid="s", filter="/n ="), "bad_filter"),
        (q.Settle("c", sid="s", bookmarks=["nonsense"]), "bad_bookmark"),
        (q.Settle("c", sid="s", bookmarks=["1|1|"] * 1_001), "too_many"),
        (q.Release("c", sid="log", ends=[1, 2]), "bad_command"),
        (q.RejectMessages("c", queue="log", ends=[1, 2]), "bad_command"),
        (q.Extend("c", queue="log", ends=[1, 2]), "bad_command"),
        (q.Settle("c", queue="log", filter="/n = 1"), "bad_field"),
    ],
)
def test_what_cannot_be_is_refused(command: q.Settle, code: str) -> None:
    at, positions = _filled(work(), replayable("log"))
    at.consume("log", "log", since="0")
    at.send(command)
    assert at.errors() == [(code, "c", None)]
    assert at.here() == positions


def test_an_error_ends_no_consumer() -> None:
    at, positions = _filled()
    at.ack(*positions, generation=9)
    at.ack(*positions, generation=HERE.generation)
    assert at.settled() == [(3, 0)]


def _told_the_later_generation() -> tuple[Bench, list[int]]:
    """Two messages of the first generation and one of the next; a process that began in that."""
    at = bench()
    positions = at.many(2)
    at.raise_generation(9)
    positions += at.many(1)
    at.manager.announced = at.manager.here
    at.consume()
    return at, positions


def test_an_ack_of_an_older_generation_counts_up_to_where_that_ended() -> None:
    """A consumer that came back after a restart lost all that it held, and processed it twice."""
    at, positions = _told_the_later_generation()
    at.ack(*positions, generation=HERE.generation)
    assert at.settled() == [(2, 1)]
    assert at.here() == positions[2:]


def test_an_ack_of_what_an_older_generation_lost_is_stale() -> None:
    at, positions = _told_the_later_generation()
    at.ack(positions[2], generation=HERE.generation)
    assert at.codes() == ["stale_epoch"]
    assert at.here() == positions


def test_who_was_told_a_generation_goes_on_when_the_next_one_begins() -> None:
    at = bench()
    at.raise_generation(9)
    positions = at.many(3)
    at.consume()
    at.ack(*positions, generation=HERE.generation)
    assert at.settled() == [(3, 0)]
    assert at.core.origin() == HERE


def test_before_a_journal_was_heard_of_no_generation_is_right() -> None:
    at, positions = _filled()
    at.manager.announced, at.manager.history = None, Generations()
    at.ack(*positions, generation=HERE.generation)
    assert at.codes() == ["stale_epoch"]


def test_who_may_not_consume_may_not_settle() -> None:
    at = Bench(work("yes"), work("no"), access=rules("yes"))
    at.logon(key=KEY_A)
    at.ack(1, sid=None, queue="no")
    assert at.codes() == ["not_entitled"]


def test_who_may_not_consume_does_not_learn_which_queues_there_are() -> None:
    at = Bench(work("yes"), access=rules("yes"))
    at.logon(key=KEY_A)
    at.ack(1, sid=None, queue="not-there")
    assert at.codes() == ["not_entitled"]


# -- by bookmarks -----------------------------------------------------------------------------


def test_messages_are_named_by_bookmarks() -> None:
    at, positions = _filled()
    at.ack(ends=[], queue="q", bookmarks=[at.bookmark(positions[0]), at.bookmark(positions[2])])
    assert at.settled() == [(2, 0)]
    assert at.here() == positions[1:2]


def test_a_bookmark_that_is_not_in_the_log_is_ignored() -> None:
    at, positions = _filled()
    at.ack(ends=[], bookmarks=[at.bookmark(positions[0]), "5|5|"])
    assert at.settled() == [(1, 1)]


def test_a_silent_journal_is_reported_once() -> None:
    at, positions = _filled()
    at.silent = True
    at.ack(ends=[], bookmarks=[at.bookmark(position) for position in positions])
    at.pass_ms(10_000)
    assert at.errors() == [("not_ready", "c", None)]
    assert at.here() == positions


def test_bookmarks_of_a_consumer_that_is_over_count_all_the_same() -> None:
    at, positions = _filled()
    at.silent = True
    at.ack(ends=[], bookmarks=[at.bookmark(positions[0])])
    at.send(q.Cancel("s"))
    at.answer()
    assert at.settled() == [(1, 0)]
    assert at.here() == positions[1:]


def test_a_release_of_a_consumer_that_is_over_takes_nothing_from_others() -> None:
    at, positions = _filled()
    at.silent = True
    at.release(ends=[], bookmarks=[at.bookmark(positions[0])])
    at.consume(sid="other")
    at.send(q.Cancel("s"))
    at.answer()
    assert at.settled() == [(0, 1)]
    assert at.state(positions[0]) == "leased"


def test_a_refusal_that_comes_late_is_reported() -> None:
    at, positions = _filled(work(), replayable("log"))
    at.release(ends=[], sid=None, queue="log", bookmarks=[at.bookmark(positions[0])])
    assert at.errors() == [("bad_command", "c", None)]


def test_a_refusal_that_comes_late_is_sent_to_no_one_who_is_gone() -> None:
    at, positions = _filled(work(), replayable("log"))
    at.silent = True
    at.release(ends=[], sid=None, queue="log", bookmarks=[at.bookmark(positions[0])])
    at.lose()
    at.answer()
    assert at.errors() == []


# -- by a filter ------------------------------------------------------------------------------


def test_a_filter_means_what_is_leased_and_fits() -> None:
    at, positions = _filled(work(max_per_subscription=4), count=6)
    at.ack(ends=[], filter="/n > 1")
    assert at.settled() == [(2, 0)]
    assert at.here() == [*positions[:2], *positions[4:]]


def test_a_filter_by_queue_means_all_that_is_leased() -> None:
    at, _ = _filled(work(max_per_subscription=2), count=6)
    at.logon(BOB)
    at.consume(sid="b", rid=BOB)
    at.ack(ends=[], sid=None, queue="q", filter="/n < 3", rid=BOB)
    assert at.settled() == [(3, 0)]


def test_a_filter_where_nothing_is_leased_reads_nothing() -> None:
    at = bench()
    at.later = (Examine,)
    at.consume()
    at.ack(ends=[], filter="/n > 1")
    assert at.settled() == [(0, 0)]
    assert at.waiting == []


def test_a_filter_of_a_consumer_that_is_over_counts_all_the_same() -> None:
    at, positions = _filled()
    at.later = (Examine,)
    at.ack(ends=[], filter="/n = 1")
    at.lose()
    at.go_on()
    assert at.here() == [positions[0], positions[2]]


def test_a_filter_of_a_queue_that_was_deleted_meanwhile_is_refused() -> None:
    at, _ = _filled()
    at.later = (Examine,)
    at.ack(ends=[], filter="/n = 1")
    del at.manager.running["q"]
    at.go_on()
    assert at.errors() == [("unknown_queue", "c", None)]


# -- replayable queues ------------------------------------------------------------------------


def test_an_ack_of_a_replayable_queue_is_noted() -> None:
    at = bench(replayable())
    positions = at.many(3)
    at.consume(since="0")
    at.ack(positions[1])
    assert at.settled() == [(1, 0)]
    assert len(at.facts(Noted)) == 1
    assert at.here() == positions
    assert at.state(positions[1]) == "acked"


def test_bookmarks_are_bounded() -> None:
    assert settlement.BOOKMARKS_MAX == 1_000


def test_an_answer_is_one_of_this_listener() -> None:
    at, positions = _filled()
    at.ack(*positions, cid=None)
    assert at.last() == q.Settled(None, "s", 3, 0)
    assert not at.of(m.Error)
