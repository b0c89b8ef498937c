"""zbroker/admin/schedule.py: samples each second, alarms every five, whatever is late."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from zbroker.access.core import Access
from zbroker.admin import schedule
from zbroker.admin.schedule import SAMPLE_MS, WATCH_MS, AdminSchedule, TakeSample, WatchAlarms
from zbroker.engine.contract import Now, TurnPlan
from zbroker.engine.effects import Exit, Ready
from zbroker.engine.events import RulesChanged, StopAsked
from zbroker.engine.turn import Turn
from zbroker.wire.supervision import Status

BEGIN_MS = 50_000


class Bench:
    """A turn of the schedule; what it wants done is noted, and answered like in the process."""

    def __init__(self) -> None:
        self.now_ms = BEGIN_MS
        self.status: Status | None = Status(1, "ready", [])
        self.alarms = 0
        self.core = AdminSchedule(BEGIN_MS)
        self.done: list[Any] = []
        performers = {
            TakeSample: self._sample, WatchAlarms: self._watch,
            Ready: self.done.append, Exit: self.done.append,
        }  # fmt: skip
        self.turn: Turn[Any, Any] = Turn(
            self.core, TurnPlan([], get_args(schedule.Effect)), performers,
            lambda: Now(self.now_ms, 0),
        )  # fmt: skip

    def _sample(self, effect: TakeSample) -> schedule.Sampled:
        self.done.append(effect)
        return schedule.Sampled(self.status)

    def _watch(self, effect: WatchAlarms) -> schedule.AlarmsCounted:
        self.done.append(effect)
        return schedule.AlarmsCounted(self.alarms)

    def run(self, later_ms: int = 0) -> list[type]:
        """What is done in a turn so much later."""
        self.now_ms += later_ms
        self.done.clear()
        self.turn.run({})
        return [type(effect) for effect in self.done]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_it_is_ready_at_once_and_begins_with_a_sample_and_alarms(bench: Bench) -> None:
    assert bench.run() == [Ready, TakeSample, WatchAlarms]
    assert bench.run() == []


def test_a_sample_is_taken_each_second(bench: Bench) -> None:
    bench.run()
    assert bench.core.next_wake_ms() == BEGIN_MS + SAMPLE_MS
    assert bench.run(SAMPLE_MS - 1) == []
    assert bench.run(1) == [TakeSample]


def test_a_late_sample_does_not_delay_those_after_it(bench: Bench) -> None:
    bench.run()
    assert bench.run(SAMPLE_MS + 300) == [TakeSample]
    assert bench.run(SAMPLE_MS - 300) == [TakeSample]


def test_after_a_long_pause_the_missed_samples_are_not_made_up_for(bench: Bench) -> None:
    bench.run()
    bench.run(60 * SAMPLE_MS)
    bench.run()
    assert bench.core.next_wake_ms() == bench.now_ms + SAMPLE_MS


def test_alarms_are_looked_for_every_five_seconds(bench: Bench) -> None:
    bench.run()
    seen = [bench.run(SAMPLE_MS) for _ in range(WATCH_MS // SAMPLE_MS)]
    assert seen == [[TakeSample]] * 4 + [[TakeSample, WatchAlarms]]


def test_alarms_are_judged_by_the_sample(bench: Bench) -> None:
    bench.run()
    assert bench.done[2].status is bench.status


def test_alarms_are_looked_for_when_the_supervisor_is_silent(bench: Bench) -> None:
    bench.status = None
    bench.run()
    assert bench.done[2].status is None


def test_the_number_of_alarms_is_reported_once_it_is_known(bench: Bench) -> None:
    assert bench.core.stats() == {}
    bench.alarms = 2
    bench.run()
    assert bench.core.stats() == {"alarms": 2}


def test_other_rules_change_nothing_here(bench: Bench) -> None:
    bench.turn.hear(RulesChanged(Access.off()))
    assert bench.done == []


def test_it_ends_when_it_is_asked_to(bench: Bench) -> None:
    bench.turn.hear(StopAsked())
    assert [type(effect) for effect in bench.done] == [Exit]
