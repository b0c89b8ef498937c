"""How far a walk over the log has read each origin. Pure.

All queues that read with the walk share it: those that nothing in a batch is for cost nothing then.
"""

from __future__ import annotations

from zbroker.ids import Vector
from zbroker.log.format import Batch


class OriginsRead:
    """vector: of what was read since the walk began. batches: how many these were."""

    def __init__(self) -> None:
        self.vector: Vector = {}
        self.batches = 0

    def add(self, batch: Batch) -> None:
        """A batch was read, of any kind."""
        origin, last = batch.origin, batch.origin_position + batch.taken - 1
        self.batches += 1
        if last > self.vector.get(origin, 0):
            self.vector[origin] = last
