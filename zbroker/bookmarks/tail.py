"""What of the index is in memory: the entries since the last commit. Pure.

`TailEntries` are one kind of key in order; an `IndexTail` has these for positions, for log times
and for each publisher. It grows by at most three entries per batch and is dropped when LMDB has it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from zbroker.bookmarks.keys import Hint, encode_place, position_key, run_key, time_key


class TailEntries:
    """Numbers in rising order, each with the place of a batch."""

    __slots__ = ("_hints", "_keys")

    def __init__(self) -> None:
        self._keys: list[int] = []
        self._hints: list[Hint] = []

    def __len__(self) -> int:
        return len(self._keys)

    def items(self) -> Iterator[tuple[int, Hint]]:
        """All of them, in order."""
        return zip(self._keys, self._hints, strict=True)

    @property
    def last(self) -> int | None:
        """The highest key."""
        return self._keys[-1] if self._keys else None

    def put(self, key: int, hint: Hint) -> None:
        """Adds one; a key that is there gets the new place."""
        keys = self._keys
        if not keys or key > keys[-1]:
            keys.append(key)
            self._hints.append(hint)
            return
        at = bisect_left(keys, key)
        if keys[at] == key:
            self._hints[at] = hint
        else:
            keys.insert(at, key)
            self._hints.insert(at, hint)

    def at_or_before(self, key: int) -> tuple[int, Hint] | None:
        """The entry with the highest key that is not above `key`."""
        at = bisect_right(self._keys, key)
        return (self._keys[at - 1], self._hints[at - 1]) if at else None

    def forget_after(self, position: int) -> None:
        """Drops the entries whose batch begins at or above `position`."""
        kept = [(key, hint) for key, hint in self.items() if hint.position < position]
        self._keys = [key for key, _ in kept]
        self._hints = [hint for _, hint in kept]


class IndexTail:
    """Entries that are not in LMDB."""

    __slots__ = ("positions", "runs", "times")

    def __init__(self) -> None:
        self.positions = TailEntries()
        self.times = TailEntries()
        self.runs: dict[int, TailEntries] = {}

    def __len__(self) -> int:
        return len(self.positions) + len(self.times) + sum(map(len, self.runs.values()))

    def forget_after(self, position: int) -> None:
        """Drops the entries whose batch begins at or above `position`."""
        for line in (self.positions, self.times, *self.runs.values()):
            line.forget_after(position)

    def encoded(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values as they go to LMDB, in LMDB's order."""
        for position, hint in self.positions.items():
            yield (key := position_key(position)), encode_place(key, hint)
        for publisher in sorted(self.runs):
            for sequence, hint in self.runs[publisher].items():
                yield (key := run_key(publisher, sequence)), encode_place(key, hint)
        for log_time, hint in self.times.items():
            yield (key := time_key(log_time)), encode_place(key, hint)
