"""zbroker/queues/searches.py: searches take turns, and go behind what the queues have to do."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from tests.queues.bench import ANN, PUBLISHER, Bench, bench, replayable, work
from zbroker.filters import compile_filter
from zbroker.log.format import KIND_PUBLISH
from zbroker.queues import start_position
from zbroker.queues.effects import Effect, Give, Search
from zbroker.queues.events import Searched
from zbroker.queues.searches import SEARCHES_MAX, Searches
from zbroker.wire import bodies

CONTENT = compile_filter("/n = 1")
SLICES = 5
CLIENTS = 2 * SEARCHES_MAX


def _begun(many: int) -> tuple[Searches, list[int]]:
    """So many searches that go on for ever; keys as they are told to go on."""
    made, went = Searches(), list[int]()

    def begin(key: int) -> None:
        def go() -> None:
            went.append(key)
            made.slice(BitMap64([key]), CONTENT, lambda _hit, _end: go())

        made.begin(key, go)

    for key in range(many):
        begin(key)
    return made, went


def _turn(made: Searches) -> int:
    """One slice is done; whose it was."""
    search = made.next()
    assert search is not None
    made.searched(Searched(search.job, None, 0))
    return search.positions.min()


def test_searches_take_turns() -> None:
    made, _ = _begun(3)
    assert [_turn(made) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_few_run_at_a_time_and_the_next_begins_when_one_ends() -> None:
    made, went = _begun(SEARCHES_MAX + 2)
    seen = {_turn(made) for _ in range(3 * SEARCHES_MAX)}
    assert seen == set(range(SEARCHES_MAX))
    made.end(0)
    _turn(made)
    assert SEARCHES_MAX in went
    assert SEARCHES_MAX + 1 not in went


def test_it_is_busy_as_long_as_there_is_a_slice() -> None:
    made, _ = _begun(1)
    assert made.busy
    search = made.next()
    assert search is not None
    assert not made.busy, "it is being read"
    made.searched(Searched(search.job, None, 0))
    assert made.busy


def test_what_waits_and_has_nothing_to_do_any_more_is_passed_over() -> None:
    made = Searches()
    for key in range(5_000):
        made.begin(key, lambda key=key: made.end(key))  # type: ignore[misc]
    assert made.next() is None
    assert not made.busy


class Turns:
    """What a core does in each turn, while a message for another queue comes after each of them."""

    def __init__(self, at: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[list[Effect]] = []
        decided = at.core._decided

        def finished() -> list[Effect]:
            effects = decided()
            self.seen.append([one for one in effects if isinstance(one, Give | Search)])
            if any(isinstance(one, Search) for one in effects):
                at._put(KIND_PUBLISH, bodies.pack([b"{}"]), PUBLISHER, ["w"])
                at.persisted = at.position
                at.inbox.append(at._marks())
            return effects

        monkeypatch.setattr(at.core, "_decided", finished)


@pytest.mark.seed("003-33")
def test_between_two_slices_every_other_queue_does_what_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many search: a message is given in the turn in which it came, before the slice."""
    monkeypatch.setattr(start_position, "EXAMINE_MAX", 10)
    at = bench(replayable("r", "t"), work("w", "w", max_per_subscription=10_000))
    at.consume("w", sid="w")
    at.many(1, topic="w")  # from now on there is a horizon, and nothing waits for it
    at.many(10 * SLICES)
    rids = [b"\0%03d1" % number for number in range(CLIENTS)]
    for rid in rids:
        at.logon(rid)
    turns = Turns(at, monkeypatch)
    at.later = (Search,)  # so that all of them have begun before the first goes on
    for rid in rids:
        at.consume("r", sid="r", rid=rid, selector="/n = 'none'")
    at.later = ()
    assert len(at.waiting) == SEARCHES_MAX
    at.go_on()
    assert [code for code in at.codes() if code] == ["bookmark_not_found"] * CLIENTS
    slices = [sum(isinstance(one, Search) for one in turn) for turn in turns.seen]
    assert max(slices) == 1
    assert sum(slices) == CLIENTS * SLICES
    done = [type(one) for turn in turns.seen for one in turn]
    assert done == [Search, Give] * (CLIENTS * SLICES)


def test_a_search_of_who_is_gone_makes_place_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_position, "EXAMINE_MAX", 1)
    at = bench(replayable())
    positions = at.publish(*[b'{"n": %d}' % number for number in range(4)])
    at.later = (Search,)
    for number in range(SEARCHES_MAX):
        at.consume(sid=f"s{number}", selector="/n = 'none'")
    rid = b"\0bob2"
    at.logon(rid)
    at.consume(sid="s", rid=rid, selector="/n = 2")
    at.go_on()
    assert all(effect.positions != BitMap64(positions[:1]) for effect in at.waiting)  # type: ignore[union-attr]
    at.lose(ANN)
    at.later = ()
    at.go_on()
    assert at.one().queue.reader.client == "bob"
