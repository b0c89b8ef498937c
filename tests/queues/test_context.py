"""zbroker/queues/context.py: what waits for an answer gets one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from pyroaring import BitMap64

from tests.queues.bench import ANN, HERE, PUBLISHER, Bench, bench, code_of, replayable, work
from zbroker.engine.effects import JOURNAL, Say
from zbroker.errors import ClientError
from zbroker.filters import compile_filter
from zbroker.ids import EPOCH, NOW, check_point, format_vector
from zbroker.log.format import KIND_PUBLISH
from zbroker.queues import context, start_positions
from zbroker.queues.context import (
    PATIENCE_MS,
    QueuesContext,
    RemoteConsumer,
)
from zbroker.queues.effects import (
    Effect,
    Examine,
    Examined,
    Give,
    Inspect,
    Inspected,
    Reenter,
    Reentered,
    Search,
    Searched,
)
from zbroker.queues.replayable import Replayable
from zbroker.queues.start_positions import SEARCHES_MAX, StartPosition, StartPositions
from zbroker.queues.work.values import Arrivals
from zbroker.wire import bodies
from zbroker.wire import queue_messages as q
from zbroker.wire.internal import Locate, Located


@pytest.fixture
def shared() -> QueuesContext:
    return QueuesContext(bench().manager, None)


@pytest.mark.parametrize("text", [EPOCH, NOW, "5|7|", "20261121T080000Z", format_vector({HERE: 5})])
def test_points_of_every_kind_may_be_looked_up(text: str) -> None:
    check_point(text)


@pytest.mark.parametrize("text", ["", "nonsense", "5|", "20261341T080000Z", "epoch"])
def test_what_is_no_point_is_refused(shared: QueuesContext, text: str) -> None:
    assert code_of(lambda: shared.locate(text, lambda _: None)) == "bad_bookmark"
    assert not shared.lookups
    assert shared.out == []


def test_a_look_up_is_answered_once(shared: QueuesContext) -> None:
    seen: list[Located] = []
    shared.locate("5|7|", seen.append, "at")
    assert shared.out == [Say(JOURNAL, Locate(1, "5|7|", cut="at"))]
    assert shared.lookups
    answer = Located(1, 9)
    shared.located(answer)
    shared.located(answer)
    assert seen == [answer]
    assert not shared.lookups


def test_a_look_up_that_takes_too_long_is_given_up(shared: QueuesContext) -> None:
    seen: list[Located] = []
    shared.locate("5|7|", seen.append)
    shared.now = replace(shared.now, mono_ms=1)
    shared.locate("5|8|", seen.append)
    shared.now = replace(shared.now, mono_ms=PATIENCE_MS)
    shared.give_up()
    assert [one.code for one in seen] == ["not_ready"]
    assert shared.lookups


def test_look_ups_are_bounded(shared: QueuesContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "LOOKUPS_MAX", 2)
    for _ in range(2):
        shared.locate("5|7|", lambda _: None)
    assert code_of(lambda: shared.locate("5|7|", lambda _: None)) == "too_many"


def test_another_journal_is_asked_what_the_last_one_did_not_answer(shared: QueuesContext) -> None:
    for sequence in range(3):
        shared.locate(f"5|{sequence}|", lambda _: None)
    shared.located(Located(2))
    shared.out.clear()
    shared.ask_again()
    assert [effect.message.value for effect in shared.out] == ["5|0|", "5|2|"]  # type: ignore[union-attr]


def test_readings_have_numbers_of_their_own(shared: QueuesContext) -> None:
    seen: list[object] = []
    one = bench().one()
    positions, content = BitMap64([5]), compile_filter("/n = 1")
    shared.examine(positions, content, lambda found: seen.append(("examined", list(found))))
    shared.read(Reenter, lambda done: seen.append(("reentered", done.entered)), positions, one)
    shared.read(Inspect, lambda done: seen.append(("inspected", done.rows)), positions)
    assert shared.out == [
        Examine(1, positions, content), Reenter(2, positions, one), Inspect(3, positions),
    ]  # fmt: skip
    shared.answered(Inspected(3, [], 6))
    shared.answered(Examined(1, positions, 6))
    shared.answered(Reentered(2, []))
    assert seen == [("inspected", []), ("examined", [5]), ("reentered", [])]


@pytest.mark.seed("003-33")
def test_many_messages_are_examined_slice_by_slice(shared: QueuesContext) -> None:
    """A slice may end before all of it was read; what matched is reported once, at the end."""
    seen: list[BitMap64] = []
    positions, content = BitMap64(range(1, 2_501)), compile_filter("/n = 1")
    shared.examine(positions, content, seen.append)
    asked = []
    for read in (1_000, 400, 1_000, 100):
        [effect], shared.out[:] = shared.out[:], []
        assert isinstance(effect, Examine)
        asked.append((effect.positions.min(), len(effect.positions)))
        last = effect.positions[:read].max()
        shared.answered(Examined(effect.job, BitMap64([last]), last + 1))
    assert asked == [(1, 1_000), (1_001, 1_000), (1_401, 1_000), (2_401, 100)]
    assert (seen, shared.out) == ([BitMap64([1_000, 1_400, 2_400, 2_500])], [])


def test_a_consumer_is_known_by_its_key_and_its_queue() -> None:
    at = bench()
    shared, connection = at.core.shared, at.core.shared.connections[ANN]
    one = RemoteConsumer(5, ANN, "s", "ann", "q", 0)
    shared.add(connection, one)
    assert (shared.consumers, shared.of["q"], connection.consumers) == (
        {5: one}, {5: one}, {"s": one},
    )  # fmt: skip
    shared.remove(one)
    shared.remove(one)
    assert (shared.consumers, shared.of["q"], connection.consumers) == ({}, {}, {})
    assert list(connection.ended) == ["s"]


def test_a_consumer_may_outlive_its_connection() -> None:
    at = bench()
    one = RemoteConsumer(5, ANN, "s", "ann", "q", 0)
    at.core.shared.add(at.core.shared.connections[ANN], one)
    at.core.shared.connections.leave(ANN)
    at.core.shared.remove(one)
    assert at.core.shared.consumers == {}


def test_queues_are_found_by_name() -> None:
    at = bench(work("a"))
    assert at.core.shared.running("a") is at.one("a")
    assert code_of(lambda: at.core.shared.running("b")) == "unknown_queue"
    early = Bench(welcome=False)
    assert code_of(lambda: early.core.shared.running("a")) == "not_ready"


def test_a_queue_that_is_over_is_not_looked_at_any_more() -> None:
    at = bench()
    shared, one = at.core.shared, at.one()
    shared.touch(one)
    assert shared.dirty == {"q": one}
    shared.dirty.clear()
    del at.manager.running["q"]
    shared.touch(one)
    assert shared.dirty == {}


CONTENT = compile_filter("/n = 1")
SLICES = 5
CLIENTS = 2 * SEARCHES_MAX


class Started:
    """The registry: consumers whose search is over, and why."""

    def __init__(self) -> None:
        self.over: list[tuple[int, str]] = []

    def opened(self, it: StartPosition) -> None:
        self.over.append((it.consumer.key, "opened"))

    def refuse(self, it: StartPosition, error: ClientError) -> None:
        self.over.append((it.consumer.key, error.code))


class Starts:
    """Searches of consumers, each in a queue of its own."""

    def __init__(self, shared: QueuesContext, many: int) -> None:
        self._shared, self.registry, self._one = shared, Started(), bench().one()
        self.starts = StartPositions(shared, self.registry)  # type: ignore[arg-type]
        for key in range(many):
            self.begin(key)

    def begin(self, key: int, *, messages: int = 100) -> None:
        queue, consumer = Replayable(), RemoteConsumer(key, ANN, f"s{key}", "ann", "r", 0)
        queue.entered(Arrivals(BitMap64(range(1_000 * key, 1_000 * key + messages))))
        self._shared.consumers[key] = consumer
        command = q.Consume("c", "s", "r")
        self.starts._search(StartPosition(command, self._one, queue, consumer, CONTENT))

    def turn(self) -> int:
        """One slice is done; whose it was."""
        search = self.starts.next_search()
        assert search is not None
        self._shared.answered(Searched(search.job, None, search.positions.max() + 1))
        return search.positions.min() // 1_000


@pytest.fixture
def _slices_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_positions, "EXAMINE_MAX", 1)


@pytest.mark.usefixtures("_slices_of_one")
def test_searches_take_turns(shared: QueuesContext) -> None:
    made = Starts(shared, 3)
    assert [made.turn() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.usefixtures("_slices_of_one")
def test_few_run_at_a_time_and_the_next_begins_when_one_ends(shared: QueuesContext) -> None:
    made = Starts(shared, SEARCHES_MAX + 2)
    seen = {made.turn() for _ in range(3 * SEARCHES_MAX)}
    assert seen == set(range(SEARCHES_MAX))
    del shared.consumers[0]
    seen = {made.turn() for _ in range(3 * SEARCHES_MAX)}
    assert SEARCHES_MAX in seen
    assert SEARCHES_MAX + 1 not in seen


@pytest.mark.usefixtures("_slices_of_one")
def test_it_is_busy_as_long_as_there_is_a_slice(shared: QueuesContext) -> None:
    made = Starts(shared, 1)
    assert made.starts.busy
    search = made.starts.next_search()
    assert search is not None
    assert not made.starts.busy, "it is being read"
    shared.answered(Searched(search.job, None, 1))
    assert made.starts.busy


def test_what_waits_and_has_nothing_to_do_any_more_is_passed_over(shared: QueuesContext) -> None:
    made = Starts(shared, 0)
    for key in range(2_000):
        made.begin(key, messages=0)
    assert made.starts.next_search() is None
    assert not made.starts.busy
    assert made.registry.over == [(key, "bookmark_not_found") for key in range(2_000)]


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
                at.inbox.append(at._watermarks())
            return effects

        monkeypatch.setattr(at.core, "_decided", finished)


@pytest.mark.seed("003-33")
def test_between_two_slices_every_other_queue_does_what_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many search: a message is given in the turn in which it came, before the slice."""
    monkeypatch.setattr(start_positions, "EXAMINE_MAX", 10)
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
    monkeypatch.setattr(start_positions, "EXAMINE_MAX", 1)
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
