"""What a work queue knows of its messages besides that they are here, in a few parts. Pure.

    failures, cancels   a part for each binary digit of these counts, for all messages with it
    delays              a part for each time
    seen                what was delivered, or may have been: it is flagged where it comes next

A queue that takes all these parts has the same counts and delays. Parts are added to what is known,
so it does not matter which of two queues are read first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyroaring import BitMap64

from zbroker.queues.work.queue import Queue


class CarriedPart(NamedTuple):
    """Something of these messages; the rest is 0 in each part. due_ns, delay_ms: see Delays.put."""

    positions: BitMap64
    failures: int = 0
    cancels: int = 0
    due_ns: int = 0
    delay_ms: int = 0
    seen: bool = False


def parts_of(queue: Queue) -> Iterator[CarriedPart]:
    """The state of a queue with no outcome on its way."""
    counting, places = queue.counting, queue.places
    for at, digit in enumerate(counting.failures.dump()):
        if digit:
            yield CarriedPart(digit, failures=1 << at)
    for at, digit in enumerate(counting.cancels.dump()):
        if digit:
            yield CarriedPart(digit, cancels=1 << at)
    for due_ns, waiting in places.delays.by_due():
        yield CarriedPart(waiting, due_ns=due_ns, delay_ms=places.delays.longest_ms)
    seen = places.leases.leased | counting.suspects | counting.uncounted.counted
    if seen:
        yield CarriedPart(seen, seen=True)


def carry(queue: Queue, part: CarriedPart) -> None:
    """The fold read that; `seen` is up to the caller."""
    found = part.positions & queue.here
    for tally, count in (
        (queue.counting.failures, part.failures), (queue.counting.cancels, part.cancels),
    ):  # fmt: skip
        if count > 0:
            tally.add(found, count)
    if part.due_ns > 0:
        places = queue.places
        idle = found & places.ready.standing
        places.delays.put(found - places.expired - places.barriers, part.due_ns, part.delay_ms)
        places.ready.discard(idle)
        places.back(idle)
