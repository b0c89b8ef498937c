"""One turn: what arrived is decided, and what was decided is done, in one order. Pure.

    sources, in order --event--> core --effects--> performers
                                   ^                    |
                                   +---- completions ---+
    then reads of the log for a slice of time, then `tick`, once

The rules, each with a test in tests/engine/test_rules.py; kept by Turn (T), ports (P), cores (C):

 1 T  sources in the order of the plan, each up to its limit; then reads; then one tick
 2 T  effects are performed in the order in which they were decided, across events
 3 T  a core hears of nothing while effects of it wait: completions come after them, in order
 4 T  all effects of an event are performed or begun before the next event is taken
 5 T  a completion at once and one that a source has later are the same event
 6 T  reads are asked for when they can be done, never queued
 7 T  a peer that is gone gets nothing more in this drain, and the core hears of it once
 8 T  a peer that is full gets nothing more in this drain: the core is given it all back, in order
 9 T  no Write while a Sync runs, one Sync at a time; a failure ends the turn before a later effect
10 P  Reconnect drops what is queued in the old socket; what follows goes to the new one
11 C  departures before arrivals for the listener: a peer may have come back under its id
12 C  Gate, Pace and RunOn are effects, and only when they change
13 T  errors go through untouched; a Turn that raised is dead
14 T  a chain of completions has at most CHAIN_MAX links: an endless one is a defect

A drain is all that follows from one event. Credit and retries are decisions, so they belong to the
cores; sleeping, sockets and files belong to the ports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic

from zbroker.engine.contract import Core, Effect, Event, Now, Performers, Ready, TurnPlan
from zbroker.engine.effects import Sync, ToPeer, Write
from zbroker.engine.events import Full, NotSent, Synced
from zbroker.errors import Bug

CHAIN_MAX: Final = 1_000


class Turn(Generic[Event, Effect]):
    """Turns one core. clock: gives the time in the core's unit."""

    def __init__(
        self, core: Core[Event, Effect], plan: TurnPlan, performers: Performers,
        clock: Callable[[], Now],
    ) -> None:  # fmt: skip
        if missing := [kind.__name__ for kind in plan.effects if kind not in performers]:
            raise Bug(f"nothing performs {', '.join(missing)}")
        self._core, self._plan, self._clock = core, plan, clock
        self._performers = {kind: self._guarded(kind, do) for kind, do in performers.items()}
        wakes = [source.next_wake_ms for source, _ in plan.sources]
        self._wakes = [*(wake for wake in wakes if wake is not None), core.next_wake_ms]
        self._not_sent: dict[bytes, bool] = {}  # peers not reached in this drain: because full?
        self._syncing = False
        self._entered = False  # stays True after an error

    def run(self, ready: Ready, *, hot: bool = False) -> int | None:
        """One turn. Returns: for how many ms the port may sleep; None: until something arrives.

        hot: only of the plan's hot sources, without reads; it says nothing of sleep then.
        """
        self._enter()
        now, drained = self._clock(), True
        for source, limit in self._plan.sources:
            if hot and source not in self._plan.hot:
                continue
            heard = False
            for event in source.events(ready, limit):
                self._drain([event], now)
                heard = True
            drained = drained and source.drained
            if heard:
                now = self._clock()
        if self._plan.reads_max and not hot:
            now = self._read(now)
        self._drain(self._perform(self._core.tick(now, drained=drained)), now)
        self._entered = False
        return 0 if hot else self._wait_ms()

    def hear(self, event: Event) -> None:
        """One event without a turn: for rigs, and for threads that have the turn."""
        self._enter()
        self._drain([event], self._clock())
        self._entered = False

    def _enter(self) -> None:
        if self._entered:
            raise Bug("this turn has failed before, or is entered twice")
        self._entered = True

    def _read(self, now: Now) -> Now:
        end_ms = now.mono_ms + self._plan.read_slice_ms
        for _ in range(self._plan.reads_max):
            read = self._core.next_read()
            event = None if read is None else self._performers[type(read)](read)
            if event is None:
                break
            self._drain([event], now)
            now = self._clock()
            if now.mono_ms >= end_ms:
                break
        return now

    def _drain(self, heard: list[Any], now: Now) -> None:
        """Decides these, performs what follows, decides what came of that, and so on."""
        for _ in range(CHAIN_MAX + 1):
            events, heard = heard, []
            for event in events:
                if type(event) is Synced:
                    self._end_sync()
                heard += self._perform(self._core.handle(event, now))
            if not heard:
                self._not_sent.clear()
                return
        raise Bug(f"a chain of completions does not end: {heard[0]!r:.200}")

    def _perform(self, effects: Sequence[Any]) -> list[Any]:
        """Performs all of them. Returns: their immediate results."""
        completions = []
        performers, not_sent = self._performers, self._not_sent
        for effect in effects:
            if not_sent and isinstance(effect, ToPeer) and effect.rid in not_sent:
                full = not_sent[effect.rid]
                event = Full(effect.rid, effect) if full else effect.skipped()
            else:
                event = performers[type(effect)](effect)
            if event is not None:
                if isinstance(event, NotSent):
                    not_sent[event.rid] = type(event) is Full
                completions.append(event)
        return completions

    def _guarded(self, kind: type, do: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return partial(self._write, do) if issubclass(kind, Write | Sync) else do

    def _write(self, do: Callable[[Any], Any], effect: Write | Sync) -> object:
        if self._syncing:
            raise Bug(f"while a sync runs: {effect!r:.200}")
        self._syncing = isinstance(effect, Sync)
        return do(effect)

    def _end_sync(self) -> None:
        if not self._syncing:
            raise Bug("Synced without a Sync")
        self._syncing = False

    def _wait_ms(self) -> int | None:
        if self._plan.reads_max and self._core.next_read() is not None:
            return 0
        least = None
        for wake in self._wakes:
            wake_ms = wake()
            if wake_ms == 0:
                return 0  # the core, which has to look for longest, comes last
            if wake_ms is not None and (least is None or wake_ms < least):
                least = wake_ms
        return least if not least else max(0, least - self._clock().mono_ms)
