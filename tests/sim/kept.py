"""A publish store in a directory, as far as a killed client leaves it to its next life.

The real one is compared with a list in tests/client/publisher/test_file_store.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from zbroker.client.publisher import packer
from zbroker.client.publisher.store import MemoryStore


@dataclass
class Kept:
    """What one application's directory holds between two lives.

    numbers: the application's number of each sequence that is owed. staged: not packed yet.
    """

    store: MemoryStore = field(default_factory=MemoryStore)
    numbers: dict[int, int] = field(default_factory=dict)
    staged: list[Any] = field(default_factory=list)

    def next_life(self, bug: str) -> Kept:
        """The same as a new process finds it: no round, and what was staged is packed."""
        store = MemoryStore()
        store.recorded, store.next_sequence = self.store.recorded, self.store.next_sequence
        anew = store.next_sequence if bug == "what is kept gets new numbers" else 0
        numbers = {}
        for index in range(len(self.store)):
            batch = replace(self.store[index], round=0)
            shift = anew and store.next_sequence - batch.first
            batch.first, batch.last = batch.first + shift, batch.last + shift
            for sequence in range(batch.first, batch.last + 1):
                numbers[sequence] = self.numbers[sequence - shift]
            store.append(batch)
        kept = Kept(store, numbers)
        if bug != "staged messages are forgotten":
            kept._adopt(self.staged)
        return kept

    def _adopt(self, items: list[Any]) -> None:
        if not items or not self.store.next_sequence:
            return  # before the first logon nothing is taken from the application
        for run in packer.split(packer.rows(items)):
            batch = packer.pack(run)
            batch.first, batch.prev = self.store.next_sequence, self.store.next_sequence - 1
            batch.last = batch.first + batch.count - 1
            self.store.append(batch)
            for n, item in enumerate(run.items):
                self.numbers[batch.first + n] = int(item.value)
