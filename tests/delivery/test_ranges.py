"""Splitting the log (zbroker/delivery/ranges.py)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.delivery.process import INSTANCE
from zbroker.delivery import ranges
from zbroker.delivery.points import Point
from zbroker.delivery.ranges import RangeMark, split
from zbroker.log.disk import RealDisk
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Log
from zbroker.log.recovery import recover
from zbroker.log.writer import Writer

SEGMENT = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Three hundred batches of ten positions and 10 KB over several segments."""
    disk = RealDisk(tmp_path)
    found = recover(disk, INSTANCE, on_batch=lambda *_: None, segment_bytes=SEGMENT)
    writer = Writer(disk, found.tail, segment_bytes=SEGMENT)
    for number in range(300):
        at = writer.position
        batch = Batch(KIND_PUBLISH, at, 1, 1, at, at - 1, 10, at, ["t"], bytes(10_000), 0, 10_000)
        writer.write([batch], number)
    writer.sync()
    disk.close()
    return Log(tmp_path)


def planned(log: Log, start: int, end: int, parts: int) -> ranges.Ranges:
    steps = ranges.plan(log, Point(start), end, parts)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


@pytest.mark.parametrize("walk", [20_000, 40, 0])
@pytest.mark.parametrize(("start", "end", "parts"), [(1, 3001, 1), (1, 3001, 8), (995, 2006, 3)])
def test_ranges_cover_exactly_what_was_asked_for(log, monkeypatch, walk, start, end, parts):
    monkeypatch.setattr(ranges, "WALK_MAX", walk)
    found = planned(log, start, end, parts)
    assert len(found) == parts
    assert (found[0][0], found[-1][1]) == (start, end)
    assert all(low[1] == high[0] for low, high in pairwise(found))
    sizes = [size for _, _, size in found]
    assert sum(sizes) == pytest.approx((end - start) * 1_000, rel=0.2)
    assert max(sizes) <= 1.3 * min(sizes) + 20_000


def test_an_empty_range_has_no_parts(log):
    assert planned(log, 50, 50, 4) == []
    assert planned(log, 60, 50, 4) == []


def test_more_parts_than_batches_are_not_made_up(log):
    found = planned(log, 1, 31, 100)
    assert [(low, high) for low, high, _ in found] == [(1, 11), (11, 21), (21, 31)]


def test_a_range_without_bytes_is_one_part():
    assert split([RangeMark(1, 0, True), RangeMark(9, 0, True)], 5) == [(1, 9, 0)]
