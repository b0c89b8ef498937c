"""The CPU on which ingest waits for receipts, which the journal shares with it meanwhile. Pure.

The two work in turn then, so neither is in the other's way; and a process is slow on a CPU that has
just been woken, or has last done something else. See zbroker.ingest.lock_step.
"""

from __future__ import annotations

from zbroker.cpus import ANY_CPU
from zbroker.engine.effects import RunOn


class SharedCpu:
    """Follows what appends say; without one for a whole beat it is left."""

    def __init__(self) -> None:
        self._cpu = self._runs_on = ANY_CPU
        self._heard = False  # of an append since the last beat

    def appended(self, cpu: int) -> None:
        """An Append came; cpu: what it says."""
        self._cpu, self._heard = cpu, True

    def beat(self) -> None:
        """Ingest may have nothing to append any more, or be dead."""
        if not self._heard:
            self._cpu = ANY_CPU
        self._heard = False

    def moves(self) -> list[RunOn]:
        """What follows, where it changed."""
        if self._cpu == self._runs_on:
            return []
        self._runs_on = self._cpu
        return [RunOn(self._cpu)]
