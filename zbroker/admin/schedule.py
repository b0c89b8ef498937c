"""When the loop of the admin's process takes samples, looks for alarms, and ends. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from zbroker.engine.contract import Now
from zbroker.engine.effects import Exit, Ready
from zbroker.engine.events import RulesChanged, StopAsked
from zbroker.wire.supervision import Status

SAMPLE_MS: Final = 1_000  # how often processes are asked how they are
WATCH_MS: Final = 5_000  # how often alarms are looked for without a request


class Sampled(Struct):
    """The state of all processes. None: the supervisor does not answer."""

    status: Status | None


class AlarmsCounted(Struct):
    """So many alarms are there now."""

    alarms: int


class TakeSample(Struct):
    """Ask all processes how they are. Answered by Sampled."""


class WatchAlarms(Struct):
    """Look for alarms that begin or end. Answered by AlarmsCounted."""

    status: Status | None


Event = Sampled | AlarmsCounted | RulesChanged | StopAsked
Effect = TakeSample | WatchAlarms | Ready | Exit


class AdminSchedule:
    """The core of the admin's turn. begin_ms: when the first sample is due."""

    def __init__(self, begin_ms: int) -> None:
        self._sample_ms = self._watch_ms = begin_ms
        self._ready = False
        self._stats: dict[str, int | float | str] = {}

    def handle(self, event: Event, now: Now) -> list[Effect]:
        """What follows at once; other threads see changed rules by themselves."""
        if isinstance(event, Sampled) and now.mono_ms >= self._watch_ms:
            self._watch_ms = now.mono_ms + WATCH_MS
            return [WatchAlarms(event.status)]
        if isinstance(event, AlarmsCounted):
            self._stats = {"alarms": event.alarms}
        return [Exit()] if isinstance(event, StopAsked) else []

    def tick(self, now: Now, *, drained: bool) -> list[Effect]:
        """A sample each second; one that is late does not delay those after it. Ready at once."""
        effects: list[Effect] = [] if self._ready else [Ready()]
        self._ready = True
        if now.mono_ms >= self._sample_ms:
            self._sample_ms = max(self._sample_ms + SAMPLE_MS, now.mono_ms)
            effects.append(TakeSample())
        return effects

    def next_read(self) -> None:
        """Nothing: the loop reads no log."""

    def next_wake_ms(self) -> int:
        """When the next sample is due."""
        return self._sample_ms

    def stats(self) -> dict[str, int | float | str]:
        """The number of alarms, once they were looked for."""
        return self._stats
