"""Messages of a replicated queue that go from one instance to another: which, and how many. Pure.

    to an instance that asks      what could be offered here, the oldest first, before a barrier
    from one that is to stop      all that it owns, whatever it waits for: its time, a barrier

Neither of a consumer: that has to settle it, or to lose it, first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from zbroker.queues.work.consumers import QueueConsumer
from zbroker.queues.work.selector_stats import ASK_AGAIN_MS, NextNames, SelectorStats
from zbroker.queues.work.sets import lowest, without
from zbroker.queues.work.values import Outcome
from zbroker.wire.replication import WANT_NAMES_MAX

if TYPE_CHECKING:
    from zbroker.queues.work.queue import Queue


def spare(queue: Queue) -> int:
    """How many messages of other instances consumers could use: what one of them can take now, and
    as many as all may hold, so that they need not wait for the next ones; without those that are
    ready here. Consumers with a filter do not count: they ask by name, see `seek`."""
    return _usable(queue, [one for one in queue.consumers.current() if one.looks is None])


def seeking(queue: Queue) -> bool:
    """Whether a consumer with a filter could use messages of other instances."""
    return any(True for _ in _seekers(queue))


def seek(queue: Queue, now_ms: int) -> NextNames:
    """What consumers with filters ask for now, all together; as far as they were compared.

    Each has an equal part of the names, so that a filter which is true for many messages leaves
    some to the others; those that asked longest ago come first.
    """
    many = sorted(_seekers(queue), key=lambda each: each[0].demand.asked_ms)
    names, most, wakes = BitMap64(), 0, []
    for looks, free in many:
        part = max(1, WANT_NAMES_MAX // len(many))
        if len(names) + part > WANT_NAMES_MAX:
            wakes.append(now_ms + ASK_AGAIN_MS)
            break
        fits = _fitting(queue, looks)
        found = looks.demand.next(fits, queue.places.foreign, free, part, now_ms)
        names |= found.names
        most += found.most
        wakes += [] if found.wake_ms is None else [found.wake_ms]
    return NextNames(names, min(most, len(names)), min(wakes, default=None))


def _seekers(queue: Queue) -> Iterator[tuple[SelectorStats, int]]:
    """Consumers with filters that have room, and for how many."""
    for one in queue.consumers.current():
        if one.looks is not None and (free := _usable(queue, [one], one.looks.matching)):
            yield one.looks, free


def _usable(queue: Queue, many: list[QueueConsumer], among: BitMap64 | None = None) -> int:
    many = [one for one in many if one.credit]
    free, most = sum(max(0, one.spare) for one in many), sum(map(_holds_at_most, many))
    if limit := queue.config.max_backlog:
        free, most = min(free, limit - queue.consumers.held()), min(most, limit)
    if free <= 0:
        return 0
    ready = queue.places.ready.count(free + most, queue.places.offered_before, among)
    return free + most - ready


def _holds_at_most(one: QueueConsumer) -> int:
    return one.backlog if one.left is None else min(one.backlog, one.left)


def _fitting(queue: Queue, looks: SelectorStats) -> BitMap64:
    """Those that may be asked for, and for which its filter is known to be true."""
    places = queue.places
    found, stop = looks.matching & places.foreign, min(places.offered_before, queue.late_before)
    for other in (places.going, places.expired):
        found = without(found, other)
    if found and found.max() >= stop:
        found.remove_range(stop, found.max() + 1)
    return found


def untaken(queue: Queue) -> BitMap64 | None:
    """Those that can be offered, and that no consumer here can take: the filters of all that have
    room were compared with them, and are false. None: no consumer has room, so these are all."""
    config, found = queue.config, None
    if config.max_backlog and queue.consumers.held() >= config.max_backlog:
        return None
    for one in queue.consumers.current():
        if not one.credit or one.spare <= 0:
            continue
        if one.looks is None:
            return BitMap64()
        useless = one.looks.looked - one.looks.matching
        found = (queue.places.ready.standing if found is None else found) & useless
    return found


def grant(
    queue: Queue, limit: int, among: BitMap64 | None = None, *, leaving: bool = False
) -> list[Outcome]:
    """The oldest ones, of those `among` these. leaving: the instance is to stop."""
    if queue.config.one_instance:
        return []  # later ones would not wait for that
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
