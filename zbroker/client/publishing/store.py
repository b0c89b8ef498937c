"""The publish store: batches that were packed and are not yet acknowledged, oldest first.

    append --(sent any number of times)--> discard_through, when persisted
                                       \\-> remove, when finally refused

In memory: it lives as long as its client. The link's core is the only one that changes it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from zbroker.client.publishing.packing import Batch

BATCH_OVERHEAD: Final = (
    512  # what one entry costs beside its body; bounds the number of tiny batches
)


class MemoryStore:
    """Batches in the order of their sequences; `bytes` is about what they occupy."""

    def __init__(self) -> None:
        self.bytes = 0
        self.messages = 0
        self._batches: deque[Batch] = deque()

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> Batch:
        return self._batches[index]

    def append(self, batch: Batch) -> None:
        """Keeps `batch`, whose numbers are above all that are kept."""
        self._batches.append(batch)
        self._count(batch, 1)

    def popleft(self) -> Batch:
        """Gives up the oldest batch: it is durable at the broker."""
        batch = self._batches.popleft()
        self._count(batch, -1)
        return batch

    def remove(self, index: int) -> Batch:
        """Gives up one batch: it was finally refused."""
        batch = self._batches[index]
        del self._batches[index]
        self._count(batch, -1)
        return batch

    def find(self, sequence: int) -> int:
        """Index of the first batch that ends at or above `sequence`; `len` if there is none."""
        for index, batch in enumerate(self._batches):
            if batch.last >= sequence:
                return index
        return len(self._batches)

    def _count(self, batch: Batch, sign: int) -> None:
        self.bytes += sign * (len(batch.body) + BATCH_OVERHEAD)
        self.messages += sign * batch.count
