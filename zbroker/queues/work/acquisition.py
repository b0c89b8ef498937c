"""Messages that a consumer asks for by name, out of the order of their queue. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyroaring import BitMap64

from zbroker.engine.contract import Now
from zbroker.queues.work.leases import end_of
from zbroker.queues.work.sets import union

if TYPE_CHECKING:
    from zbroker.queues.work.queue import Queue


def acquire(queue: Queue, key: int, wanted: BitMap64, now: Now, most: int) -> BitMap64:
    """Leases to a consumer up to `most` of the wanted messages that could be offered now, and that
    it may hold.

    So it gets none that another consumer has, that waits for a delay, a barrier or its group, or
    that belongs to another instance; nor any while another consumer is the active one. Its filter
    and its credit in messages do not count.
    """
    queue.places.notice(now)
    one, config = queue.consumers.by_key[key], queue.config
    if one not in queue.consumers.taking(config):
        return BitMap64()
    most = min(most, one.backlog - len(one.held))
    if config.max_backlog:
        most = min(most, config.max_backlog - queue.consumers.held())
    ready = queue.places.ready
    parts = ready.take(most, queue.places.offered_before, wanted) if most > 0 else []
    found = union(parts) if parts else BitMap64()
    if found:
        queue.places.leases.give(found, end_of(now.mono_ms, one.lease_ms(config)))
        queue.consumers.give(one, found)
    return found


def available(queue: Queue) -> int:
    """How many messages could be offered now, at most."""
    if queue.places.barrier_due() is not None:
        return 1
    return len(queue.places.ready.standing)
