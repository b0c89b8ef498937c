"""How much happened in queues lately, from counters that the queues room tells. Pure.

A counter that fell belongs to a new process, which began at 0; a queue that is made again begins a
new life, and its counters begin with it. So `grown` never falls, whatever goes or restarts.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence
from typing import Final

from zbroker.wire.queue_surveys import QueueCounters, QueueRow

COUNTERS: Final = QueueCounters.__struct_fields__
RATES: Final = {"entered_s": "entered", "delivered_s": "delivered", "acked_s": "acked"}
LATELY_S: Final = 5  # what rates are the mean of
DEAD_LATELY_S: Final = 600  # how long a dead letter is news

Key = tuple[str, int]  # name and life
_Growth = dict[Key, Counter[str]]


class Growth:
    """Taken and read by one thread at a time: the caller has a lock."""

    def __init__(self) -> None:
        self.grown: Counter[str] = Counter()  # of all queues, since the first look
        self._counts: dict[Key, dict[str, int]] = {}
        self._at_s: float | None = None
        self._steps: deque[tuple[float, float, _Growth]] = deque()
        self._dead: deque[tuple[float, Key, int]] = deque()

    def take(self, rows: Sequence[QueueRow], at_s: float, gone: Collection[Key] = ()) -> None:
        """What is told at `at_s` (monotonic): queues that changed, and those that are gone."""
        for key in gone:
            self._counts.pop(key, None)
        step: _Growth = {}
        for row in rows:
            key, now = key_of(row), {name: getattr(row, name) for name in COUNTERS}
            # what a queue did before the first look is not known to be of late
            before = self._counts.get(key, dict[str, int]() if self._at_s is not None else now)
            step[key] = _growth(before, now)
            self.grown.update(step[key])
            if step[key]["dead"]:
                self._dead.append((at_s, key, step[key]["dead"]))
            self._counts[key] = now
        if self._at_s is not None:
            self._steps.append((at_s, at_s - self._at_s, step))
        self._at_s = at_s
        while self._steps and at_s - self._steps[0][0] >= LATELY_S:
            self._steps.popleft()
        while self._dead and at_s - self._dead[0][0] >= DEAD_LATELY_S:
            self._dead.popleft()

    def rates(self, key: Key) -> dict[str, float]:
        """Of one queue, per second; 0 where nothing is known."""
        took_s = sum(took for _, took, _ in self._steps)
        sums: Counter[str] = Counter()
        for _, _, step in self._steps:
            sums.update(step.get(key, {}))
        return {
            told: round(sums[name] / took_s, 1) if took_s else 0.0 for told, name in RATES.items()
        }

    def dead(self) -> dict[str, int]:
        """Dead letters of the last DEAD_LATELY_S, by queue that is there."""
        found: Counter[str] = Counter()
        for _, key, count in self._dead:
            if key in self._counts:
                found[key[0]] += count
        return dict(found)


def key_of(row: QueueRow) -> Key:
    """What tells a queue from one that had its name before."""
    return row.name, row.life


def _growth(before: dict[str, int], now: dict[str, int]) -> Counter[str]:
    return Counter(
        {
            name: count - then if count >= (then := before.get(name, 0)) else count
            for name, count in now.items()
        }
    )
