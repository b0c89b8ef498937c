"""zbroker/queues/consumer_registry.py: consumers begin, end, get lost and come back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from tests.queues.bench import (
    AFTER_LEASE_MS,
    BOB,
    HERE,
    KEY_A,
    WALL_NS,
    Bench,
    bench,
    replayable,
    rules,
    work,
)
from zbroker.clock import format_time
from zbroker.ids import EPOCH, NOW, format_vector
from zbroker.queues import consumer_registry, start_positions
from zbroker.queues.effects import Search
from zbroker.queues.snapshots import Snapshots
from zbroker.server.budgets import Budget
from zbroker.server.peers import ENDED_MAX
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire.queue_surveys import Purge, RemovePoint, SetPoint


def test_a_consumer_learns_what_it_was_granted() -> None:
    at = bench(work(lease=5_000, max_per_subscription=10))
    at.consume(backlog=0)
    assert at.last() == q.Consuming(
        "s", 10, 5_000, "at-least-once", "work", at.last().credit, "c-s"
    )
    at.consume(sid="small", backlog=3)
    assert at.last().backlog == 3


@pytest.mark.seed("001-50")
def test_the_backlog_of_a_consumer_is_its_prefetch_limit() -> None:
    at = bench()
    positions = at.many(5)
    at.consume(backlog=3)
    assert at.got() == positions[:3]
    at.ack(positions[0])
    assert at.got() == positions[:4]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (q.Consume("x", "nope"), "unknown_queue"),
        (q.Consume("s", "q"), "sid_in_use"),
        (q.Consume("x", "q", since="0"), "bad_field"),
        (q.Consume("x", "q", until="0"), "bad_field"),
        (q.Consume("x", "q", selector="/n = 1"), "bad_field"),
        (q.Consume("x", "q", filter="/n ="), "bad_filter"),
        (q.Consume("x", "q", holding=[1]), "bad_field"),
        (q.Consume("x", "q", holding=[5, 3]), "bad_field"),
        (q.Consume("x", "log"), "bad_field"),
        (q.Consume("x", "log", since="0", filter="/n = 1"), "bad_field"),
        (q.Consume("x", "log", since="nonsense"), "bad_bookmark"),
        (q.Consume("x", "log", since="point:nope"), "unknown_point"),
        (q.Consume("x", "log", selector="/n ="), "bad_filter"),
    ],
)
def test_what_cannot_be_is_refused(command: q.Consume, code: str) -> None:
    at = bench(work(), replayable("log"))
    at.consume()
    at.send(command)
    assert at.codes() == [code]
    positions = at.many(1)
    assert at.got() == positions, "the consumer that was there goes on"
    assert at.got("x") == []


def test_a_sid_that_was_refused_can_be_used() -> None:
    at = bench(work(), replayable("log"))
    at.consume("log", "x", since="point:nope")
    at.consume("q", "x")
    assert at.of(q.Consuming)


def test_no_one_consumes_before_the_queues_are_known() -> None:
    at = Bench(work())
    at.manager.known = False
    at.logon()
    at.consume()
    assert at.codes() == ["not_ready"]


def test_a_connection_has_so_many_consumers_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_registry, "CONSUMERS_MAX", 2)
    at = bench()
    for sid in "abc":
        at.consume(sid=sid)
    assert at.codes() == ["too_many"]
    at.logon(BOB)
    at.consume(sid="c", rid=BOB)
    assert len(at.of(q.Consuming)) == 3


def test_who_may_not_consume_a_queue_is_refused() -> None:
    at = Bench(work("yes"), work("no"), access=rules("yes"))
    at.logon(key=KEY_A)
    at.consume("yes", "a")
    at.consume("no", "b")
    assert at.errors() == [("not_entitled", "c-b", "b")]
    assert len(at.of(q.Consuming)) == 1


@pytest.mark.parametrize(
    "more",
    [
        "filter = '/n = 1'",
        '[[role.r.deny]]\nactions = ["consume"]\ntopics = ["*"]\nfilter = \'/n = 1\'',
    ],
)
def test_a_right_to_a_part_of_a_queue_is_none(more: str) -> None:
    """docs/reference/access.md: a filter does not go with `consume`."""
    at = Bench(work("yes"), access=rules("yes", more=more))
    at.logon(key=KEY_A)
    at.consume("yes", "a")
    assert at.errors() == [("not_entitled", "c-a", "a")]


@pytest.mark.seed("001-14")
def test_connections_and_consumers_leave_nothing_in_the_log() -> None:
    at = bench()
    size = len(at.log)
    for _ in range(3):
        at.logon()
        at.consume(holder="me")
        at.consume(sid="t", filter="/n = 1")
        at.send(q.Cancel("t"))
        at.lose()
    at.pass_ms(AFTER_LEASE_MS)
    assert (len(at.log), at.under_way) == (size, [])


# -- the end ----------------------------------------------------------------------------------


def test_what_a_cancelled_consumer_holds_goes_to_others_at_once() -> None:
    at = bench()
    positions = at.many(3)
    at.consume(sid="a", backlog=2)
    at.consume(sid="b", backlog=5)
    at.send(q.Cancel("a", "bye"))
    assert at.of(m.Ack)[-1] == m.Ack("processed", "bye", sid="a")
    assert sorted(at.got("b")) == positions
    assert {one.position: one.deliveries for one in at.seen("b")} == {
        positions[0]: 2, positions[1]: 2, positions[2]: 1,
    }  # fmt: skip


@pytest.mark.seed("001-52")
def test_nothing_is_delivered_after_the_answer_to_a_cancel() -> None:
    at = bench()
    at.consume()
    at.many(2)
    at.send(q.Cancel("s", "c"))
    given = len(at.gives)
    at.many(2)
    at.pass_ms(AFTER_LEASE_MS)
    assert at.of(m.Ack)[-1].cid == "c"
    assert len(at.gives) == given


def test_a_cancel_is_repeated_without_harm() -> None:
    at = bench()
    at.consume()
    at.send(q.Cancel("s", "1"), q.Cancel("s", "2"))
    assert [ack.cid for ack in at.of(m.Ack)] == ["logon", "1", "2"]


def test_a_cancel_of_what_never_was_is_refused() -> None:
    at = bench()
    at.send(q.Cancel("s", "1"))
    assert at.errors() == [("unknown_sid", "1", "s")]


def test_only_so_many_ended_sids_are_remembered() -> None:
    at = bench()
    for number in range(ENDED_MAX + 1):
        at.consume(sid=str(number))
        at.send(q.Cancel(str(number)))
    at.send(q.Cancel("0"), q.Cancel("1"))
    assert at.errors() == [("unknown_sid", None, "0")]


def test_a_consumer_of_a_queue_that_is_gone_already_ends_quietly() -> None:
    at = bench()
    at.consume()
    del at.manager.running["q"]
    at.send(q.Cancel("s"))
    assert at.codes() == []
    assert at.core.shared.consumers == {}


# -- lost and back ----------------------------------------------------------------------------


def _lost(**more: Any) -> tuple[Bench, list[int]]:
    at = bench(**more)
    positions = at.many(4)
    at.consume(backlog=3, holder="me")
    at.lose()
    return at, positions


def test_what_a_lost_consumer_holds_waits_for_it() -> None:
    at, positions = _lost()
    at.logon(BOB)
    at.consume(sid="b", rid=BOB)
    assert at.got("b") == positions[3:]


def test_a_lost_consumer_that_does_not_come_back_loses_its_leases() -> None:
    at, positions = _lost()
    at.logon(BOB)
    at.consume(sid="b", rid=BOB)
    at.pass_ms(AFTER_LEASE_MS)
    assert set(at.got("b")) == set(positions)


def test_a_consumer_that_is_back_keeps_what_it_still_has() -> None:
    at, positions = _lost()
    at.logon()
    first, last = positions[0], positions[1]
    at.consume(sid="t", holder="me", holding=[first, last + 1], generation=HERE.generation)
    assert at.of(q.Consuming)[-1].kept == [first, last + 1]
    assert at.got("t") == positions[2:], "what it does not have any more comes again"
    assert {one.position: one.deliveries for one in at.seen("t")} == {
        positions[2]: 2, positions[3]: 1,
    }  # fmt: skip


def test_a_consumer_that_is_back_under_another_name_keeps_nothing() -> None:
    at, positions = _lost()
    at.logon()
    at.consume(sid="t", holder="other", holding=[positions[0], positions[3]])
    assert at.of(q.Consuming)[-1].kept == []
    assert at.got("t") == positions[3:]


def test_a_consumer_of_another_client_keeps_nothing() -> None:
    at, positions = _lost()
    at.logon(BOB)
    at.consume(sid="t", holder="me", holding=[positions[0], positions[3]], rid=BOB)
    assert at.of(q.Consuming)[-1].kept == []


def test_the_sid_is_the_holder_by_default() -> None:
    at = bench()
    [position] = at.many(1)
    at.consume()
    at.lose()
    at.logon()
    at.consume(holding=[position, position + 1])
    assert at.of(q.Consuming)[-1].kept == [position, position + 1]


def test_positions_of_another_generation_are_not_kept() -> None:
    at, positions = _lost()
    at.logon()
    at.consume(sid="t", holder="me", holding=[positions[0], positions[3]], generation=9)
    assert at.of(q.Consuming)[-1].kept == []
    assert at.got("t") == positions


# -- replayable queues ------------------------------------------------------------------------


def test_a_replayable_queue_is_read_from_a_place() -> None:
    at = bench(replayable())
    positions = at.many(5)
    at.consume(since=at.bookmark(positions[2]))
    [answer] = at.of(q.Consuming)
    assert (answer.kind, answer.backlog, answer.lease_ms) == ("replayable", 0, 0)
    assert answer.position == positions[3]
    assert at.got() == positions[3:]


def test_a_replayable_queue_has_one_reader() -> None:
    at = bench(replayable())
    at.consume(since="0")
    at.logon(BOB)
    at.consume(sid="b", since="0", rid=BOB)
    assert at.errors() == [("resource_locked", "c-b", "b")]
    at.send(q.Cancel("s"))
    at.consume(sid="b", since="0", rid=BOB)
    assert len(at.of(q.Consuming, BOB)) == 1


def test_a_client_that_reads_again_replaces_itself() -> None:
    at = bench(replayable())
    positions = at.many(2)
    at.consume(sid="a", since="0")
    at.consume(sid="b", since="0")
    assert at.errors() == [("session_ended", None, "a")]
    assert at.got("b") == positions
    at.many(1)
    assert len(at.got("a")) == 2


def test_of_two_that_open_at_a_time_the_second_is_refused() -> None:
    at = bench(replayable())
    positions = at.many(2)
    at.logon(BOB)
    at.silent = True
    at.consume(sid="a", since=at.bookmark(positions[0]))
    at.consume(sid="b", since=at.bookmark(positions[0]), rid=BOB)
    at.answer()
    assert at.errors() == [("resource_locked", "c-b", "b")]
    assert at.got("a") == positions[1:]
    assert at.got("b") == []


def test_a_reader_that_is_lost_holds_no_place() -> None:
    at = bench(replayable())
    at.consume(since="0")
    at.lose()
    at.logon(BOB)
    at.consume(since="0", rid=BOB)
    assert at.codes() == []


def test_a_reader_that_is_not_open_yet_ends_quietly() -> None:
    at = bench(replayable())
    [position] = at.many(1)
    at.silent = True
    at.consume(since=at.bookmark(position))
    at.send(q.Cancel("s", "bye"))
    at.answer()
    assert at.last() == m.Ack("processed", "bye", sid="s")
    assert at.one().queue.reader is None


LONG_FILTER = " OR ".join(f"/field{n} = {n}" for n in range(200))
NUMBERS = count()  # no text is like one that is compiled already


@pytest.mark.parametrize("command", [
    lambda n, text: q.Consume(f"f{n}", "q", filter=text),
    lambda n, text: q.Consume(f"f{n}", "log", since="0", selector=text),
    lambda _, text: q.Browse("q", filter=text),
    lambda _, text: q.Settle(queue="q", filter=text),
])  # fmt: skip
def test_compiling_has_a_budget(command: Callable[[int, str], m.ClientCommand]) -> None:
    at = bench(work(), replayable("log"), budget=Budget(compile_ms=10))
    at.logon(BOB, "ann-2", principal="ann")
    taken = 0
    while "too_many" not in at.codes():
        at.send(command(taken, f"{LONG_FILTER} OR /n = {next(NUMBERS)}"))
        taken += 1
        assert taken < 10
    assert taken > 2
    at.send(command(0, "/n = 77"), rid=BOB)
    assert at.codes()[-2:] == ["too_many", "too_many"], "it is that of the principal"
    at.consume(sid="plain", rid=BOB)
    assert isinstance(at.last(), q.Consuming), "what needs no compiling goes on"


def _filled(count: int = 6) -> tuple[Bench, list[int]]:
    """Each message is a batch of its own, with a number, and a log time a millisecond later."""
    at, positions = bench(replayable()), []
    for number in range(count):
        positions += at.publish(b'{"n": %d}' % number)
    return at, positions


@pytest.mark.parametrize("since", [EPOCH, "epoch"])
def test_the_epoch_is_the_beginning(since: str) -> None:
    at, positions = _filled()
    at.consume(since=since)
    assert at.got() == positions


@pytest.mark.parametrize("since", [NOW, "now"])
def test_now_is_what_comes_after(since: str) -> None:
    at, _ = _filled()
    at.consume(since=since)
    assert at.got() == []
    more = at.many(2)
    assert at.got() == more


def test_a_bookmark_is_the_place_after_it() -> None:
    at, positions = _filled()
    at.consume(since=at.bookmark(positions[2]))
    assert at.got() == positions[3:]


def test_a_time_is_the_first_message_from_then_on() -> None:
    at, positions = _filled()
    at.consume(since=format_time(WALL_NS + positions[2] * 1_000_000))
    assert at.got() == positions[2:]


def test_a_vector_is_the_place_after_what_it_covers() -> None:
    at, positions = _filled()
    at.consume(since=format_vector({HERE: positions[2]}))
    assert at.got() == positions[3:]


def test_a_point_is_the_place_that_it_names() -> None:
    at, positions = _filled()
    at.ask(SetPoint(1, "noon", positions[2]))
    at.consume(since="point:noon", until="point:noon")
    assert at.last() == m.Ack("completed", sid="s", ended=True)
    at.consume(since="point:noon")
    assert at.got() == positions[2:]


@pytest.mark.parametrize("more", [{"since": "point:noon"}, {"since": "0", "until": "point:noon"}])
def test_a_removed_point_is_no_place_any_more(more: dict[str, Any]) -> None:
    at, positions = _filled()
    at.ask(SetPoint(1, "noon", positions[2]))
    at.ask(RemovePoint(1, "noon"))
    at.consume(**more)
    assert at.errors() == [("unknown_point", "c-s", "s")]


def test_until_is_looked_up_too() -> None:
    at, positions = _filled()
    at.consume(since=at.bookmark(positions[0]), until=at.bookmark(positions[3]))
    assert at.got() == positions[1:4]
    assert at.last().type == "completed"


def test_a_selector_is_the_first_message_that_it_is_true_for() -> None:
    at, positions = _filled()
    at.consume(selector="/n > 2")
    [answer] = at.of(q.Consuming)
    assert answer.position == positions[3]
    assert at.got() == positions[3:], "everything from there on, also what does not fit"


def test_a_selector_is_compared_from_a_place_on() -> None:
    at, positions = _filled()
    at.consume(selector="/n > 2", since=at.bookmark(positions[4]))
    assert at.got() == positions[5:]


def test_a_selector_is_compared_up_to_a_place() -> None:
    at, positions = _filled()
    at.consume(selector="/n > 2", until=at.bookmark(positions[2]))
    assert at.errors() == [("bookmark_not_found", "c-s", "s")]


def test_a_selector_is_compared_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_positions, "EXAMINE_MAX", 2)
    at, positions = _filled()
    at.later = (Search,)
    at.consume(selector="/n = 5")
    seen = []
    while at.waiting:
        seen += [list(effect.positions) for effect in at.waiting]  # type: ignore[union-attr]
        at.go_on()
    assert seen == [positions[:2], positions[2:4], positions[4:]]
    assert at.got() == positions[5:]


def test_a_selector_that_fits_nothing_is_refused() -> None:
    at, _ = _filled()
    at.consume(selector="/n = 50")
    assert at.errors() == [("bookmark_not_found", "c-s", "s")]
    assert at.core.shared.consumers == {}


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"since": "5|5|"}, "bookmark_not_found"),
        ({"since": "0", "until": "5|5|"}, "bookmark_not_found"),
        ({"since": "0", "until": "point:nope"}, "unknown_point"),
    ],
)
def test_a_place_that_is_not_there_is_refused(more: dict[str, Any], code: str) -> None:
    at, _ = _filled()
    at.consume(**more)
    assert at.errors() == [(code, "c-s", "s")]
    at.consume(since="0")
    assert at.of(q.Consuming)


def test_a_place_that_is_refused_late_is_reported_all_the_same() -> None:
    at, positions = _filled()
    at.consume(since=at.bookmark(positions[0]), until="point:nope")
    assert at.errors() == [("unknown_point", "c-s", "s")]


def test_a_silent_journal_is_reported() -> None:
    at, positions = _filled()
    at.silent = True
    at.consume(since=at.bookmark(positions[0]))
    at.pass_ms(10_000)
    assert at.errors() == [("not_ready", "c-s", "s")]


def test_nothing_follows_for_who_is_gone_while_a_selector_is_compared() -> None:
    at, _ = _filled()
    at.later = (Search,)
    at.consume(selector="/n = 1")
    at.lose()
    at.go_on()
    assert at.of(q.Consuming) == []
    assert at.one().queue.reader is None


def test_nothing_follows_for_who_is_gone_while_a_place_is_looked_up() -> None:
    at, positions = _filled()
    at.silent = True
    at.consume(since=at.bookmark(positions[0]))
    at.lose()
    at.answer()
    assert at.of(q.Consuming) == []
    assert at.errors() == []


@pytest.mark.parametrize("more", [{}, {"until": "0"}, {"since": "0", "filter": "/n = 1"}])
def test_a_place_is_needed_and_a_filter_is_not_possible(more: dict[str, Any]) -> None:
    at, _ = _filled()
    at.consume(**more)
    assert at.errors() == [("bad_field", "c-s", "s")]


# -- what was purged ------------------------------------------------------------------------------


def _purged(count: int = 3) -> tuple[Bench, list[int]]:
    """The first messages were purged."""
    at, positions = _filled()
    at.ask(SetPoint(1, "early", positions[1]))
    at.ask(Purge(1, "q", positions[count]))
    return at, positions


def _place(at: Bench, positions: list[int], what: str) -> str:
    if what == "bookmark":
        return at.bookmark(positions[0])
    if what == "vector":
        return format_vector({HERE: positions[0]})
    if what == "time":
        return format_time(WALL_NS + positions[1] * 1_000_000)
    return "point:early" if what == "point" else f"[{at.bookmark(positions[1])}:)"


PLACES = ["bookmark", "vector", "time", "point", "range"]


@pytest.mark.seed("003-08")
@pytest.mark.parametrize("what", PLACES)
def test_a_place_inside_what_was_purged_is_refused(what: str) -> None:
    at, positions = _purged()
    at.consume(since=_place(at, positions, what))
    [error] = at.of(m.Error)
    assert error.code == "bookmark_expired"
    assert f"its oldest message is at position {positions[3]}" in error.reason
    assert at.got() == []


@pytest.mark.parametrize("what", PLACES)
@pytest.mark.parametrize("restarted", ["from the log", "from tables"])
def test_a_purge_is_known_after_a_restart(what: str, restarted: str) -> None:
    at, positions = _purged()
    at.restart(Snapshots().take(at.manager).many if restarted == "from tables" else None)
    at.logon()
    at.consume(since=_place(at, positions, what))
    assert at.codes() == ["bookmark_expired"]


@pytest.mark.parametrize("what", PLACES)
def test_a_consumer_may_choose_the_oldest_message_instead(what: str) -> None:
    at, positions = _purged()
    at.consume(since=_place(at, positions, what), bookmark_not_found="epoch")
    assert at.got() == positions[3:]


def test_a_consumer_may_choose_what_comes_from_now_on() -> None:
    at, positions = _purged()
    at.consume(since=at.bookmark(positions[0]), bookmark_not_found="now")
    assert at.got() == []
    more = at.many(1)
    assert at.got() == more


@pytest.mark.seed("003-10")
def test_an_unknown_bookmark_may_begin_elsewhere_too() -> None:
    at, positions = _filled()
    at.consume(since="77|1|", bookmark_not_found="epoch")
    assert at.got() == positions
    at.consume(sid="other", since="77|1|")
    assert at.codes() == ["bookmark_not_found"]


def test_after_the_last_message_that_was_purged_nothing_is_missed() -> None:
    at, positions = _filled()
    at.publish(b"1", topic="elsewhere")
    at.ask(Purge(1, "q"))
    more = at.many(2)
    at.consume(since=at.bookmark(positions[-1]))
    assert at.got() == more
    assert at.codes() == []


def test_the_epoch_is_the_oldest_that_was_not_purged() -> None:
    at, positions = _purged()
    at.consume(since="epoch")
    assert at.got() == positions[3:]


def test_a_purge_while_the_selector_is_searched_is_noticed() -> None:
    at, positions = _filled()
    at.later = (Search,)
    at.consume(since=at.bookmark(positions[0]), selector="/n = 5")
    at.ask(Purge(1, "q", positions[3]))
    at.go_on()
    assert at.codes() == ["bookmark_expired"]


def test_a_consumer_that_a_purge_overtakes_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would go on after the purge, and its program would not know."""
    monkeypatch.setattr("zbroker.queues.replayable.CHUNK", 2)
    at, positions = _filled()
    at.consume(since="epoch", credit=1)
    sent = at.got()
    assert sent == positions[:2]
    at.ask(Purge(1, "q", positions[-1]))
    [error] = at.of(m.Error)
    assert (error.code, error.sid) == ("bookmark_expired", "s")


def test_a_consumer_that_was_sent_what_is_purged_stays() -> None:
    at, positions = _filled()
    at.consume(since="epoch")
    at.ask(Purge(1, "q", positions[-1]))
    more = at.many(1)
    assert at.got() == positions + more
    assert at.codes() == []


# -- ranges ---------------------------------------------------------------------------------------


@pytest.mark.seed("003-01")
@pytest.mark.parametrize(
    ("opening", "closing", "expected"),
    [("[", "]", slice(1, 5)), ("[", ")", slice(1, 4)), ("(", "]", slice(2, 5))],
)
def test_a_range_takes_in_what_its_brackets_say(
    opening: str, closing: str, expected: slice
) -> None:
    at, positions = _filled()
    first, last = at.bookmark(positions[1]), at.bookmark(positions[4])
    at.consume(since=f"{opening}{first}:{last}{closing}")
    assert at.got() == positions[expected]
    assert [(ack.type, ack.ended) for ack in at.of(m.Ack)][-1] == ("completed", True)


def test_a_range_without_an_end_goes_on() -> None:
    at, positions = _filled()
    at.consume(since=f"[{at.bookmark(positions[4])}:]")
    more = at.many(1)
    assert at.got() == positions[4:] + more


def test_a_range_brings_its_own_end() -> None:
    at, positions = _filled()
    at.consume(since=f"[{at.bookmark(positions[4])}:]", until="now")
    assert at.codes() == ["bad_field"]
    at.consume(since="[nothing")
    assert at.codes()[-1] == "bad_bookmark"
