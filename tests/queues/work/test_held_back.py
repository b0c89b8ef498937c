"""zbroker/queues/work/held_back.py: what may have been delivered before a start."""

from __future__ import annotations

from array import array

import pytest
from pyroaring import BitMap64

from tests.queues.work.test_queue import config
from zbroker.engine.contract import Now
from zbroker.queues.work import held_back
from zbroker.queues.work.consumers import HELD_BACK
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Arrivals

NOW = Now(0, 10**15)
FAR_NS = 2 * 10**15


def begun(delayed: list[int], keys: list[int] | None = None) -> Queue:
    """A queue after a start, with messages 1 to 3. keys: of these; delayed: some of them."""
    queue = Queue(config(group_key="KEY()") if keys else config())
    groups = None if keys is None else array("q", keys)
    queue.entered(Arrivals(BitMap64([1, 2, 3]), groups=groups))
    late = BitMap64(delayed)
    queue.places.delays.put(late, FAR_NS)
    queue.places.ready.discard(late)
    queue.places.delays.wait(late)
    queue.suspect(4)
    held_back.hold(queue)
    queue.check()
    return queue


def held(queue: Queue) -> list[int]:
    lost = queue.consumers.by_key.get(HELD_BACK)
    return [] if lost is None else list(lost.held)


@pytest.mark.parametrize(
    ("delayed", "keys", "kept", "waiting"),
    [
        ([], None, [1, 2, 3], []),
        ([2], None, [1, 2, 3], []),
        ([1, 2, 3], None, [1, 2, 3], []),
        ([2], [7, 7, 8], [1, 3], [2]),  # 1 goes first
        ([1], [7, 7, 8], [1, 3], []),
        ([1, 2], [7, 7, 8], [1, 3], [2]),
    ],
)
def test_delayed_ones_are_held_back_as_if_the_delay_was_over(
    delayed: list[int], keys: list[int] | None, kept: list[int], waiting: list[int]
) -> None:
    queue = begun(delayed, keys)
    assert held(queue) == kept
    assert list(queue.places.delays.waiting) == waiting
    held_back.release(queue)
    queue.check()
    assert list(queue.places.delays.waiting) == delayed
    assert queue.offer(NOW, {}) == []
