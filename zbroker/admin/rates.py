"""Rates, levels and growth from the counters that processes report. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from zbroker.admin.documents import Stats
from zbroker.config import setting_of
from zbroker.wire.queue_surveys import QueueCounters, QueueRow

FINE_S: Final = 600  # so far back every second is kept
COARSE_S: Final = 3_600
STEP_S: Final = 10
LATELY_S: Final = 5  # what `rates` are the mean of

#: series: whose counter it is the growth of, per second
GROWTH: Final = {
    "messages_in_s": ("ingest", "messages"),
    "messages_out_s": ("delivery", "messages_out"),
    "bytes_s": ("journal", "bytes_written"),
    "bytes_out_s": ("delivery", "bytes_out"),
    "queue_in_s": ("queues", "entered_grown"),
    "queue_delivered_s": ("queues", "delivered_grown"),
    "queue_acked_s": ("queues", "acked_grown"),
}
#: series: whose number it is
LEVELS: Final = {
    "clients": ("ingest", "clients"),
    "subscriptions": ("delivery", "subscriptions"),
    "lag_max": ("delivery", "lag_max"),
    "fsync_ms": ("journal", "sync_ms"),
    "queue_depth": ("queues", "depth"),
}
SERIES: Final = (*GROWTH, *LEVELS)
_LARGEST: Final = frozenset({"lag_max", "fsync_ms"})  # of several the largest; of others the sum

Number = float | None


class Sample(NamedTuple):
    """All series at one time (monotonic s)."""

    at_s: float
    numbers: tuple[Number, ...]


class Rings:
    """Every second for 10 minutes, every 10 s for an hour. Not thread-safe: the caller has a lock.

    A rate is how much a counter grew; one that fell belongs to a new process, which began at 0. A
    number that is not known is None. Processes report twice a second, so a second that has too many
    is followed by one that has too few.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], float] = {}
        self._before_s: float | None = None
        self._fine: deque[Sample] = deque(maxlen=FINE_S)
        self._coarse: deque[Sample] = deque(maxlen=COARSE_S // STEP_S)
        self._open: list[Sample] = []  # the seconds of the step that is under way

    def take(self, stats: Mapping[str, Stats], at_s: float) -> None:
        """Takes the numbers of all processes, by process."""
        growth = self._growth(stats, at_s)
        levels = [_level(stats, name) for name in LEVELS]
        sample = Sample(at_s, (*growth, *levels))
        self._fine.append(sample)
        if self._open and self._open[0].at_s // STEP_S != at_s // STEP_S:
            self._coarse.append(_joined(self._open))
            self._open = []
        self._open.append(sample)

    def _growth(self, stats: Mapping[str, Stats], at_s: float) -> list[Number]:
        took_s = None if self._before_s is None else at_s - self._before_s
        self._before_s = at_s
        steps: dict[str, float] = dict.fromkeys(GROWTH, 0.0)
        found: dict[tuple[str, str], float] = {}
        for name, (kind, key) in GROWTH.items():
            for process, number in _numbers(stats, kind, key):
                before = self._before.get((process, key), number)
                found[process, key] = number
                steps[name] += number - before if number >= before else number
        self._before |= found  # a process that says nothing for a while has its place kept
        return [steps[name] / took_s if took_s else None for name in GROWTH]

    def rates(self) -> dict[str, float]:
        """The mean of the last seconds; 0 where nothing is known."""
        latest = list(self._fine)[-LATELY_S:]
        joined = _joined(latest).numbers if latest else (None,) * len(SERIES)
        known = dict(zip(SERIES, joined, strict=True))
        names = {"bytes_in_s": "bytes_s"} | {name: name for name in GROWTH if name != "bytes_s"}
        return {shown: round(known[name] or 0.0, 1) for shown, name in sorted(names.items())}

    def history(self, seconds: int, now_s: float, wall_s: float) -> dict[str, Any]:
        """The last `seconds`, oldest first; `wall_s` is what the wall clock says at `now_s`."""
        fine = seconds <= FINE_S
        coarse = [*self._coarse, *([_joined(self._open)] if self._open else [])]
        samples = list(self._fine) if fine else coarse
        samples = [sample for sample in samples if now_s - sample.at_s <= seconds]
        return {
            "step_s": 1 if fine else STEP_S,
            "times": [round(wall_s - (now_s - sample.at_s)) for sample in samples],
            "series": {
                name: [_short(sample.numbers[at]) for sample in samples]
                for at, name in enumerate(SERIES)
            },
        }


def _numbers(stats: Mapping[str, Stats], kind: str, key: str) -> Iterable[tuple[str, float]]:
    """The number `key` of each process of this kind."""
    for process, numbers in stats.items():
        value = numbers.get(key)
        if setting_of(process) == kind and isinstance(value, int | float):
            yield process, value


def _level(stats: Mapping[str, Stats], name: str) -> Number:
    found = [number for _, number in _numbers(stats, *LEVELS[name])]
    if not found:
        return None
    return max(found) if name in _LARGEST else sum(found)


def _joined(samples: list[Sample]) -> Sample:
    """Several as one: means, and of what is a largest number the largest."""
    columns = zip(*(sample.numbers for sample in samples), strict=True)
    numbers = tuple(_one(name, column) for name, column in zip(SERIES, columns, strict=True))
    return Sample(samples[-1].at_s, numbers)


def _one(name: str, column: tuple[Number, ...]) -> Number:
    known = [number for number in column if number is not None]
    if not known:
        return None
    return max(known) if name in _LARGEST else sum(known) / len(known)


def _short(number: Number) -> Number:
    return None if number is None else round(number, 3)


COUNTERS: Final = QueueCounters.__struct_fields__
RATES: Final = {"entered_s": "entered", "delivered_s": "delivered", "acked_s": "acked"}
DEAD_LATELY_S: Final = 600  # how long a dead letter is news

Key = tuple[str, int]  # name and declaration
_GrowthStep = dict[Key, Counter[str]]


class Growth:
    """Growth of the counters of queues. Not thread-safe: the caller has a lock.

    A counter that fell belongs to a new process, which began at 0; a queue that is made again is a
    new key. So `grown` never falls.
    """

    def __init__(self) -> None:
        self.grown: Counter[str] = Counter()  # of all queues, since the first look
        self._counts: dict[Key, dict[str, int]] = {}
        self._at_s: float | None = None
        self._steps: deque[tuple[float, float, _GrowthStep]] = deque()
        self._dead: deque[tuple[float, Key, int]] = deque()

    def take(self, rows: Sequence[QueueRow], at_s: float, gone: Collection[Key] = ()) -> None:
        """Takes a report of `at_s` (monotonic): queues that changed, and those that are gone."""
        for key in gone:
            self._counts.pop(key, None)
        step: _GrowthStep = {}
        for row in rows:
            key, now = key_of(row), {name: getattr(row, name) for name in COUNTERS}
            # what a queue did before the first look is not known to be of late
            before = self._counts.get(key, dict[str, int]() if self._at_s is not None else now)
            step[key] = _steps_of(before, now)
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
        """The rates of one queue, per second; 0 where nothing is known."""
        took_s = sum(took for _, took, _ in self._steps)
        sums: Counter[str] = Counter()
        for _, _, step in self._steps:
            sums.update(step.get(key, {}))
        return {
            shown: round(sums[name] / took_s, 1) if took_s else 0.0 for shown, name in RATES.items()
        }

    def dead(self) -> dict[str, int]:
        """Dead letters of the last DEAD_LATELY_S, by queue that is there."""
        found: Counter[str] = Counter()
        for _, key, count in self._dead:
            if key in self._counts:
                found[key[0]] += count
        return dict(found)


def key_of(row: QueueRow) -> Key:
    """The identity of a queue: an earlier one of its name has another key."""
    return row.name, row.life


def _steps_of(before: dict[str, int], now: dict[str, int]) -> Counter[str]:
    return Counter(
        {
            name: count - then if count >= (then := before.get(name, 0)) else count
            for name, count in now.items()
        }
    )
