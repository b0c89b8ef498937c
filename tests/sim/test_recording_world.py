"""Whole histories where not everything is recorded; and bugs that must be found in them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.seed_counts import seed_count
from tests.sim.delivery_process import DeliveryNode
from tests.sim.queues_bugs import TURNS
from tests.sim.recording_world import RecordingWorld
from tests.sim.world import Violation
from zbroker.client.publisher.unrecorded import SequenceRuns, Unrecorded
from zbroker.delivery import live
from zbroker.delivery.contract import Effect
from zbroker.delivery.turns import ReadTurns
from zbroker.ingest.acks import Acks
from zbroker.ingest.chain import Chain
from zbroker.ingest.owed_answers import OwedAnswers
from zbroker.ingest.splitter import BatchPart, Contents, Splitter

_decide, _split = Contents.decide, Splitter.split
_send = ReadTurns._send
SEEDS = seed_count(12, 200)
FIRST = int(os.environ.get("ZB_FIRST_SEED", "0"))


def run(seed: int, *, faults: bool = True) -> RecordingWorld:
    world = RecordingWorld(seed, faults=faults)
    try:
        world.run()
        assert faults or world.errors == [], "refused without a reason"
    except AssertionError as error:
        again = f"ZB_FIRST_SEED={seed} ZB_SEEDS=1 python -m pytest {__file__}"
        raise Violation(f"seed {seed}: {error}\nfaults: {world.faults}\n{again}") from error
    return world


@pytest.mark.timeout(3_600)
def test_no_history_breaks_a_promise() -> None:
    worlds = [run(seed) for seed in range(FIRST, FIRST + SEEDS)]
    if SEEDS >= 100:
        assert sum(world.delivered for world in worlds)
        assert sum(world.dropped for world in worlds), "nothing was dropped for lack of credit"
        seen = {code for world in worlds for code in world.errors}
        assert seen >= {"disk_full", "sequence_gap"}


def test_without_faults_nothing_is_refused() -> None:
    for seed in range(FIRST, FIRST + min(SEEDS, 50)):
        run(seed, faults=False)


def _no_link(self: Chain, entry: Any) -> None:
    self.linked = max(self.linked, entry.seq + entry.count - 1)


def _never_broken(self: Chain, high: int, acked: int) -> None:
    self.linked, self.handled = high, max(high, acked)


def _not_checked(self: Chain, seq: int, count: int, prev: int | None) -> None:
    self.handled = max(self.handled, seq + count - 1)


def _always(_self: Chain, _entry: Any) -> bool:
    return True


def _first_for_all(self: Contents, recorded: list[bool | None], *more: Any) -> None:
    asked = [n for n, kind in enumerate(recorded) if kind is None]
    _decide(self, recorded, *more)
    for n in asked:
        recorded[n] = recorded[asked[0]]


def _backwards(self: Splitter, *batch: Any) -> list[BatchPart]:
    return _split(self, *batch)[::-1]


def _at_once(_self: Acks, _client: Any) -> bool:
    return False


def _not_named(_self: Unrecorded | SequenceRuns, *_what: Any) -> None:
    pass


def _dropped(_self: OwedAnswers, _answer: Any, _now_ms: int) -> None:
    pass


def _overtaking(_self: OwedAnswers, effects: Any) -> Any:
    return effects


def _passed_over(self: ReadTurns, *more: Any) -> list[Effect]:
    """One block of ten is not sent."""
    effects = _send(self, *more)
    return [] if self._counts.messages_out % 10 == 0 else effects


#: looked at first: those before it take seconds and find nothing
SEED_OF_RARE: dict[Callable[..., Any], int] = {_dropped: 33, _overtaking: 466}


@pytest.mark.parametrize(
    ("owner", "method", "bug"),
    [
        (ReadTurns, "_send", _passed_over),
        (Chain, "link", _no_link),
        (Chain, "broken", _never_broken),
        (Chain, "follow", _not_checked),
        (Chain, "passes", _always),
        (Contents, "decide", _first_for_all),
        (Splitter, "split", _backwards),
        (Acks, "waits", _at_once),
        (OwedAnswers, "put", _dropped),
        (OwedAnswers, "hold_back", _overtaking),
        (Unrecorded, "named", _not_named),
        (SequenceRuns, "add", _not_named),
    ],
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, bug: Callable[..., Any]
) -> None:
    monkeypatch.setattr(owner, method, bug)
    for seed in (SEED_OF_RARE.get(bug, 0), *range(500)):
        try:
            run(seed, faults=seed % 4 != 0)
        except AssertionError:
            return
    pytest.fail(f"{bug.__name__} was not found in 500 seeds")


@pytest.mark.parametrize("bug", TURNS)
def test_a_bug_of_the_turn_is_found(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    monkeypatch.setattr(DeliveryNode, "turn", TURNS[bug])
    for seed in range(300):
        try:
            run(seed)
        except AssertionError:
            return
    pytest.fail(f"{bug}: not found in 300 seeds")


def test_a_history_leaves_the_product_as_it_was() -> None:
    before = live.GRANT_BYTES
    assert run(3).delivered > 0
    assert before == live.GRANT_BYTES
