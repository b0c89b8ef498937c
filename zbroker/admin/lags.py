"""About when, in log time, what stands at a position was placed: from where segments begin.

Between the first messages of two segments time is taken to go evenly. That is an estimate, off by a
segment's time at most, and it costs one header per segment where the exact time would cost a walk.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from zbroker.errors import StorageError
from zbroker.log.format import Batch
from zbroker.log.reader import Cursor, Gap, Log, first_time


class Moment(NamedTuple):
    """What stands at `position` was placed at `ns`."""

    position: int
    ns: int


def between(position: int, low: Moment, high: Moment) -> int:
    """The log time of `position`, if it goes evenly from `low` to `high`."""
    if high.position <= low.position:
        return low.ns
    share = (position - low.position) * (high.ns - low.ns) // (high.position - low.position)
    return low.ns + max(0, min(share, high.ns - low.ns))


class LogTimes:
    """Thread-safe; keeps no file open between two questions."""

    def __init__(self, journal: Path, archive: Path) -> None:
        self._places = (journal, archive)
        self._log: Log | None = None
        self._lock = threading.Lock()

    def of(self, positions: Iterable[int], newest: Moment) -> dict[int, int]:
        """The log times of those that can be told; `newest` is the end of the log."""
        with self._lock:
            try:
                return self._of(sorted(set(positions)), newest)
            except StorageError:
                return {}  # damage is told by the journal and by `journal verify`
            finally:
                if self._log is not None:
                    self._log.close()

    def _of(self, positions: list[int], newest: Moment) -> dict[int, int]:
        if self._log is None:
            self._log = Log(*self._places)
        self._log.refresh()
        starts = self._log.starts
        known: dict[int, Moment | None] = {len(starts): newest}
        found: dict[int, int] = {}
        for position in positions:
            at = bisect_right(starts, position, key=lambda start: start.position)
            if at == 0:
                continue
            for index in (at - 1, at):
                if index not in known:
                    known[index] = _begin(self._log, starts[index], newest.position)
            low, high = known[at - 1], known[at]
            if low is not None:
                found[position] = between(position, low, high or newest)
        return found


def _begin(log: Log, start: Cursor, end: int) -> Moment | None:
    """The first message of a segment, if it can be read."""
    item = next(iter(log.headers(start, end)), None)
    if item is None or isinstance(item, Gap):
        return None
    batch: Batch = item[0]
    return Moment(batch.position, first_time(batch))
