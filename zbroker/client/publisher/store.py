"""The publish store: batches that were packed and are not yet acknowledged, oldest first.

    append --(sent any number of times)--> popleft, when persisted
                                       \\-> remove, when finally refused

MemoryStore lives as long as its client; file_store.py keeps the same in a directory. The link's
core is the only one that changes it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from zbroker.client.publisher.packer import PackedBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zbroker.client.publisher.mapped_queue import StagedMessage, Staging

#: what one entry costs beside its body; bounds the number of tiny batches
BATCH_OVERHEAD: Final = 512


class MemoryStore:
    """Batches in the order of their sequences; `bytes` is about what they occupy.

    recorded: highest sequence that the broker is known to have durably, also from an earlier
    process. next_sequence: the next one to give; 0 if none was ever given. staging: where messages
    are kept before they are packed, if this store keeps them that early.
    """

    staging: Staging | None = None
    leftover: Sequence[StagedMessage] = ()  # staged by an earlier process, without space for it yet
    may_lag = False  # the machine went down, and the newest of it may be lost

    def __init__(self) -> None:
        self.bytes = 0
        self.messages = 0
        self.recorded = 0
        self.next_sequence = 0
        self.batches: deque[PackedBatch] = deque()  # maybe without body and columns: see `load`

    def load(self, index: int) -> PackedBatch:
        """One batch with all that is sent of it."""
        return self.batches[index]

    def append(self, batch: PackedBatch) -> None:
        """Keeps `batch`, whose numbers are above all that are kept."""
        self.batches.append(batch)
        self._count(batch, 1)
        self.next_sequence = batch.last + 1

    def popleft(self) -> PackedBatch:
        """Gives up the oldest batch: it is durable at the broker."""
        batch = self.batches.popleft()
        self._count(batch, -1)
        return batch

    def remove(self, index: int) -> PackedBatch:
        """Gives up one batch: it was finally refused."""
        batch = self.batches[index]
        del self.batches[index]
        self._count(batch, -1)
        return batch

    def begin(self, next_sequence: int) -> None:
        """A session gives numbers from there on."""
        self.next_sequence = next_sequence

    def settled(self) -> None:
        """Some batches were given up, or `recorded` changed."""

    def secure(self, size: int) -> bool:
        """Whether there is space for a batch of `size` bytes."""
        return size >= 0

    def close(self) -> None:
        """Lets go of what it has open."""

    def find(self, sequence: int) -> int:
        """Index of the first batch that ends at or above `sequence`; `len` if there is none."""
        found = (index for index, batch in enumerate(self.batches) if batch.last >= sequence)
        return next(found, len(self.batches))

    def _count(self, batch: PackedBatch, sign: int) -> None:
        self.bytes += sign * (batch.size + BATCH_OVERHEAD)
        self.messages += sign * batch.count
