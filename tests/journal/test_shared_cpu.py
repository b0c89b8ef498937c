"""zbroker/journal/shared_cpu.py: the journal is where ingest waits, for as long as it does."""

from __future__ import annotations

from tests.journal.test_core import MINE, RID, Steps
from zbroker.cpus import ANY_CPU
from zbroker.engine.effects import RunOn
from zbroker.journal.events import Incoming, Requested
from zbroker.journal.shared_cpu import SharedCpu
from zbroker.limits import BEAT_MS
from zbroker.wire import internal as m


def test_it_follows_what_appends_say() -> None:
    shared = SharedCpu()
    assert shared.moves() == []
    shared.appended(3)
    assert (shared.moves(), shared.moves()) == ([RunOn(3)], [])
    shared.appended(1)
    shared.appended(ANY_CPU)
    assert (shared.moves(), shared.moves()) == ([RunOn(ANY_CPU)], [])


def test_after_a_beat_without_an_append_it_is_left() -> None:
    shared = SharedCpu()
    shared.appended(3)
    shared.beat()
    assert shared.moves() == [RunOn(3)]
    shared.beat()
    assert shared.moves() == [RunOn(ANY_CPU)]


def runs_on(steps: Steps, now_ms: int) -> list[RunOn]:
    return [effect for effect in steps.tick(now_ms) if isinstance(effect, RunOn)]


def test_the_journal_moves_with_the_appends_of_ingest() -> None:
    steps = Steps()
    steps.hear(Requested([Incoming(RID, m.Append(MINE, 1, 0, [], 3), [])]))
    assert runs_on(steps, 0) == [RunOn(3)]
    assert runs_on(steps, BEAT_MS) == []
    assert runs_on(steps, 2 * BEAT_MS) == [RunOn(ANY_CPU)]
