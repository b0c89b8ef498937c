"""zbroker/queues/start_position.py: where a consumer of a replayable queue begins, and ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import HERE, WALL_NS, Bench, bench, replayable
from zbroker.clock import format_time
from zbroker.ids import EPOCH, NOW, format_vector
from zbroker.queues import start_position
from zbroker.queues.effects import Search
from zbroker.queues.snapshots import Snapshots
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire.queue_surveys import Purge, RemovePoint, SetPoint


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


def test_a_bookmark_is_the_place_behind_it() -> None:
    at, positions = _filled()
    at.consume(since=at.bookmark(positions[2]))
    assert at.got() == positions[3:]


def test_a_time_is_the_first_message_from_then_on() -> None:
    at, positions = _filled()
    at.consume(since=format_time(WALL_NS + positions[2] * 1_000_000))
    assert at.got() == positions[2:]


def test_a_vector_is_the_place_behind_what_it_covers() -> None:
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
    monkeypatch.setattr(start_position, "EXAMINE_MAX", 2)
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


def test_a_place_that_is_refused_late_is_told_all_the_same() -> None:
    at, positions = _filled()
    at.consume(since=at.bookmark(positions[0]), until="point:nope")
    assert at.errors() == [("unknown_point", "c-s", "s")]


def test_a_silent_journal_is_told() -> None:
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


def test_behind_the_last_message_that_was_purged_nothing_is_missed() -> None:
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
    """Else it would go on behind the purge, and its program would not know."""
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
