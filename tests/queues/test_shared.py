"""zbroker/queues/shared.py: what waits for an answer gets one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from pyroaring import BitMap64

from tests.queues.bench import ANN, HERE, Bench, bench, code_of, work
from zbroker.engine.effects import JOURNAL, Say
from zbroker.filters import compile_filter
from zbroker.ids import EPOCH, NOW, check_point, format_vector
from zbroker.queues import shared as shared_module
from zbroker.queues.clients import RemoteConsumer
from zbroker.queues.effects import Examine, Inspect, Reenter
from zbroker.queues.events import Examined, Inspected, Reentered
from zbroker.queues.shared import PATIENCE_MS, QueuesContext
from zbroker.wire.internal import Locate, Located


@pytest.fixture
def shared() -> QueuesContext:
    return QueuesContext(bench().manager, bench().access, None)


@pytest.mark.parametrize("text", [EPOCH, NOW, "5|7|", "20261121T080000Z", format_vector({HERE: 5})])
def test_points_of_every_kind_may_be_looked_up(text: str) -> None:
    check_point(text)


@pytest.mark.parametrize("text", ["", "nonsense", "5|", "20261341T080000Z", "epoch"])
def test_what_is_no_point_is_refused(shared: QueuesContext, text: str) -> None:
    assert code_of(lambda: shared.locate(text, lambda _: None)) == "bad_bookmark"
    assert not shared.asking
    assert shared.out == []


def test_a_look_up_is_answered_once(shared: QueuesContext) -> None:
    seen: list[Located] = []
    shared.locate("5|7|", seen.append, "at")
    assert shared.out == [Say(JOURNAL, Locate(1, "5|7|", cut="at"))]
    assert shared.asking
    answer = Located(1, 9)
    shared.located(answer)
    shared.located(answer)
    assert seen == [answer]
    assert not shared.asking


def test_a_look_up_that_takes_too_long_is_given_up(shared: QueuesContext) -> None:
    seen: list[Located] = []
    shared.locate("5|7|", seen.append)
    shared.now = replace(shared.now, mono_ms=1)
    shared.locate("5|8|", seen.append)
    shared.now = replace(shared.now, mono_ms=PATIENCE_MS)
    shared.give_up()
    assert [one.code for one in seen] == ["not_ready"]
    assert shared.asking


def test_look_ups_are_bounded(shared: QueuesContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_module, "LOOKUPS_MAX", 2)
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
    shared.reenter(one, positions, lambda parts: seen.append(("reentered", parts)))
    shared.look(positions, lambda rows, _end: seen.append(("looked", rows)))
    assert shared.out == [
        Examine(1, positions, content), Reenter(2, one, positions), Inspect(3, positions),
    ]  # fmt: skip
    shared.looked(Inspected(3, [], 6))
    shared.examined(Examined(1, positions, 6))
    shared.reentered(Reentered(2, []))
    assert seen == [("looked", []), ("examined", [5]), ("reentered", [])]


@pytest.mark.seed("003-33")
def test_many_messages_are_examined_slice_by_slice(shared: QueuesContext) -> None:
    """A slice may end before all of it was read; what matched is told once, at the end."""
    seen: list[BitMap64] = []
    positions, content = BitMap64(range(1, 2_501)), compile_filter("/n = 1")
    shared.examine(positions, content, seen.append)
    asked = []
    for read in (1_000, 400, 1_000, 100):
        [effect], shared.out[:] = shared.out[:], []
        assert isinstance(effect, Examine)
        asked.append((effect.positions.min(), len(effect.positions)))
        last = effect.positions[:read].max()
        shared.examined(Examined(effect.job, BitMap64([last]), last + 1))
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
