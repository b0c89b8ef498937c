"""Messages of a replicated queue that go from one instance to another: which, and how many. Pure.

    to an instance that asks      what could be offered here, the oldest first, before a barrier
    from one that is to stop      all that it owns, whatever it waits for: its time, a barrier

Neither of a consumer: that has to settle it, or to lose it, first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyroaring import BitMap64

from zbroker.queues.work.sets import lowest, without
from zbroker.queues.work.values import Outcome

if TYPE_CHECKING:
    from zbroker.queues.work.queue import Queue


def spare(queue: Queue) -> int:
    """How many messages of other instances consumers could use: what one of them can take now, and
    as many as all may hold, so that they need not wait for the next ones; without those that are
    ready here. Consumers with a filter do not count: it was not compared with them."""
    many = [one for one in queue.consumers.current() if one.credit and one.looks is None]
    free, most = sum(max(0, one.spare) for one in many), sum(one.backlog for one in many)
    if limit := queue.config.max_backlog:
        free, most = min(free, limit - queue.consumers.held()), min(most, limit)
    if free <= 0:
        return 0
    ready = queue.places.ready.count(free + most, queue.places.offered_before)
    return free + most - ready


def grant(
    queue: Queue, limit: int, among: BitMap64 | None = None, *, leaving: bool = False
) -> list[Outcome]:
    """The oldest ones, of those `among` these. leaving: the instance is to stop."""
    if queue.config.group_key:
        return []  # the next one of a key would not wait for that
    places, stop = queue.places, queue.places.offered_before
    if leaving:
        own = owned(queue) if among is None else among & owned(queue)
        found = lowest(own, limit)
    elif among is None:
        found = places.ready.candidates(limit, stop, 0)
    else:
        found = lowest(among & places.ready.standing, limit, stop)
    if not found:
        return []
    places.pull(found)
    places.going_to_fail(found)
    return [Outcome(found, "granted", "granted")]


def owned(queue: Queue) -> BitMap64:
    """What belongs to this instance, and neither a consumer has nor an outcome is about."""
    places = queue.places
    found = without(without(places.here, places.foreign), places.going)
    return without(without(found, places.leases.leased), places.overdue)
