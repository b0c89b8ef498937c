"""Generations that are known to have been, and of which this log has nothing. Pure.

An instance that loses its disk loses the number of its newest generation, too, unless a peer holds
something of it. The next number is the time, and may be lower: the clock was ahead, or the lost
number was drawn by chance (zbroker.log.generations). Then only subscribers that read there know it,
by their vectors, and they would wait for ever: a generation is over where a later one is here.

    reader --vector--> b: "a.900 is later than all of a here" --statement--> a begins 901

So the instance begins one above it, as it does when a peer holds a later one. If the reader was
merely ahead of this log, the instance is in that generation already, and nothing happens.

A state of another instance names generations, too, of which it had nothing that travels. They are
said likewise: the instance takes no state with generations of its own above the current one.

Everyone who may subscribe can name a generation, and each new one costs a segment: a reader is
believed up to AHEAD_S beyond the clock, and once in READER_MS for each instance. Peers pass on what
they heard until as late a generation is in their log; only the latest of an instance matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from zbroker.clock import is_time
from zbroker.engine.contract import Now
from zbroker.errors import ClientError
from zbroker.ids import Origin, is_vector, parse_vector
from zbroker.journal.origins import Origins
from zbroker.log.generations import EPOCH_S
from zbroker.wire.replication import GENERATION_MAX

AHEAD_S: Final = 30 * 86_400  # by so much a clock may have been wrong
READER_MS: Final = 60_000
SECOND_NS: Final = 1_000_000_000


def believed(wall_ns: int) -> int:
    """Up to this number a reader is believed that there was a generation."""
    return min(wall_ns // SECOND_NS - EPOCH_S + AHEAD_S, GENERATION_MAX)


class LaterGenerations:
    """What the journal of `instance` has heard since its start. changes: how often it was more."""

    def __init__(self, instance: int) -> None:
        self.changes = 0
        self._instance = instance
        self._latest: dict[int, int] = {}  # generation, by instance
        self._deaf_until_ms: dict[int, int] = {}  # to readers

    def reader(self, point: str, origins: Origins, here: int, now: Now) -> int:
        """A reader names this point. Returns the generation of this instance above which one has to
        begin; 0: none. here: the current one."""
        own, named = 0, _newest_of(point)
        known = origins.newest_generations() | {self._instance: here} if named else {}
        for instance, generation in named.items():
            latest = max(known.get(instance, 0), self._latest.get(instance, 0))
            if instance not in known or not latest < generation <= believed(now.wall_ns):
                continue
            if now.mono_ms < self._deaf_until_ms.get(instance, now.mono_ms):
                continue
            self._deaf_until_ms[instance] = now.mono_ms + READER_MS
            if instance == self._instance:
                own = self._latest[instance] = generation
            else:
                self._note(instance, generation)
        return own

    def peer(self, rows: Iterable[tuple[int, int]], origins: Origins) -> int:
        """A peer has heard of these, by instance. Returns the highest of this one; 0: none."""
        own, known = 0, origins.newest_generations()
        for instance, generation in rows:
            if instance == self._instance:
                own = max(own, generation)
            elif max(known.get(instance, generation), self._latest.get(instance, 0)) < generation:
                self._note(instance, generation)
        return own

    def _note(self, instance: int, generation: int) -> None:
        self._latest[instance] = generation
        self.changes += 1

    def rows(self, origins: Origins, said: Mapping[int, int]) -> list[tuple[int, int]]:
        """Those of other instances, by instance. said: the newest generation of each of which this
        instance says that it holds something."""
        latest = origins.newest_generations()
        for instance, generation in self._latest.items():
            latest[instance] = max(generation, latest.get(instance, 0))
        rows = latest.items()
        return [(one, at) for one, at in rows if one != self._instance and at > said.get(one, 0)]


def _newest_of(point: str) -> dict[int, int]:
    """The highest generation of each instance in a vector; none of what is not one."""
    found: dict[int, int] = {}
    with suppress(ClientError):  # the look-up refuses it
        vector: Iterable[Origin] = (
            () if is_time(point) or not is_vector(point) else parse_vector(point)
        )
        for origin in vector:
            found[origin.instance] = max(origin.generation, found.get(origin.instance, 0))
    return found
