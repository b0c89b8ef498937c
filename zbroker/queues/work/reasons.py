"""The state of a message, and why nothing is offered. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyroaring import BitMap64

from zbroker.engine.contract import Now
from zbroker.queues.work.consumers import HELD_BACK, QueueConsumer
from zbroker.queues.work.selector_stats import SelectorStats
from zbroker.queues.work.values import Numbers, Standing

if TYPE_CHECKING:
    from zbroker.queues.work.queue import Queue


def where(queue: Queue, position: int, now: Now) -> Standing:
    """One message. One that waits for its key is called ready if it was not linked yet."""
    places, counting = queue.places, queue.counting
    if position not in places.here:
        return Standing("gone")
    state, consumer, due, deliveries = "ready", None, None, counting.deliveries(position)
    if position in places.locks.all:
        state, deliveries = "locked", deliveries + 1
    elif position in places.going or position in places.overdue:
        state, deliveries = "going", deliveries + (position in places.were_leased)
    elif position in places.leases.leased:
        owner = queue.consumers.owner(position)
        state, due = "leased", places.leases.end(position)
        consumer = owner.key if owner is not None and owner.key != HELD_BACK else None
        deliveries += consumer is not None
    elif position in places.foreign and position not in places.barriers:
        state = "elsewhere"
    elif position in places.delays.waiting:
        due_ns = places.delays.due(position)
        state, due = "delayed", None if due_ns is None else now.ahead_ms(due_ns - now.steady_ns)
    elif position >= places.offered_before or places.ready.waits(position):
        state = "waiting"
    return Standing(state, consumer, due, deliveries, counting.failures.of(position))


def counts(queue: Queue) -> Numbers:
    """All messages by state."""
    places = queue.places
    stop, standing = places.offered_before, places.ready.standing
    ready = standing.rank(stop - 1) - places.ready.waiting(stop) if stop else 0
    leased, delayed = len(places.leases.leased), len(places.delays.waiting)
    going = len(places.going) + len(places.overdue)
    waiting = len(places.here) - ready - leased - delayed - going
    return Numbers(ready, leased, delayed, going, waiting)


def why_nothing(queue: Queue, now: Now) -> list[str]:
    """Sentences, the most important reason first; none: nothing is in the way."""
    places = queue.places
    if not places.here:
        return ["it is empty"]
    lines = []
    if not queue.consumers.current():
        lines.append("it has no consumer")
    barrier = places.barrier_due()
    if barrier is not None:
        if lines:
            return [*lines, f"the barrier at {barrier} waits for a consumer"]
        idle = _without_messages(queue.consumers.current())
        return [f"the barrier at {barrier} waits for {idle}"] if idle else []
    if places.ready.count(1, places.offered_before):
        return lines or _none_can(queue)
    if count := queue.consumers.held_back:
        lines.append(f"{count} messages are held back for sessions, until these say what they hold")
    return lines + _nothing_ready(queue, now)


def _none_can(queue: Queue) -> list[str]:
    """Why no consumer gets what can be offered."""
    config = queue.config
    many = queue.consumers.taking(config)
    if not many and queue.consumers.lost():
        text = "its active consumer has lost its connection, and may come back for what it holds"
        return [text]
    with_credit = [one for one in many if one.credit and one.left != 0]
    if not with_credit and (idle := _without_messages(many)):
        return [f"no consumer has credit: it waits for {idle}"]
    if not with_credit:
        return ["no consumer has credit: they have not read what they were sent"]
    if config.max_backlog and queue.consumers.held() >= config.max_backlog:
        return [f"{config.max_backlog} messages are with consumers, and max_backlog allows no more"]
    able = [one for one in with_credit if one.spare > 0]
    if not able:
        return ["every consumer with credit has its backlog full"]
    if any(_fits(queue, one) for one in able):
        return []
    return ["what can be offered fits no filter of a consumer that has room", *_elsewhere(queue)]


def _without_messages(many: list[QueueConsumer]) -> str:
    """The consumers that have to give credit before they are sent anything; "": none."""
    count = sum(one.left == 0 for one in many)
    if not count:
        return ""
    return f"{count} consumers that were stopped, or have used up their credit in messages"


def _fits(queue: Queue, one: QueueConsumer) -> bool:
    """True if something can be offered to it, as far as its filter was compared."""
    places = queue.places
    return one.looks is None or places.ready.count(1, places.offered_before, one.looks.matching) > 0


def _nothing_ready(queue: Queue, now: Now) -> list[str]:
    """Where all the messages are that cannot be offered."""
    places, numbers, lines = queue.places, queue.counts(), []
    if places.barrier is not None:
        lines.append(f"the barrier at {places.barrier} waits until all before it are gone")
    if numbers.leased:
        end = places.leases.first_end(places.leases.leased)
        text = f"{numbers.leased} messages are leased"
        lines.append(text if end is None else f"{text}; the first lease ends {_in(end, now)}")
    if numbers.delayed and places.delays.next_ns is not None:
        first = now.ahead_ms(places.delays.next_ns - now.steady_ns)
        lines.append(
            f"{numbers.delayed} messages are delayed; the first one is due {_in(first, now)}"
        )
    lines += _elsewhere(queue)
    waiting = places.ready.waiting(places.offered_before)
    if waiting:
        lines.append(f"{waiting} messages wait for another one of their group key")
    locked = len(places.locks.all)
    if locked:
        text = "are locked by distributed transactions that are prepared, and not decided"
        lines.append(f"{locked} messages {text}: zbroker-admin transaction ls")
    if numbers.going > locked:
        lines.append(f"{numbers.going - locked} messages are done; that is on its way to the disk")
    return lines


def _elsewhere(queue: Queue) -> list[str]:
    """What belongs to other instances, and how much of it consumers with filters could take."""
    foreign, known = queue.places.foreign, _all_filters(queue)
    if not foreign:
        return []
    line = f"{len(foreign)} messages belong to other instances"
    if not known:
        return [line]
    fits = len(BitMap64.union(*(looks.matching for looks in known)) & foreign)
    compared = len(BitMap64.intersection(*(looks.looked for looks in known), foreign))
    return [
        f"{line}: {fits} of them fit a filter of a consumer here, and are asked for; "
        f"{compared} were compared with all filters"
    ]


def why_elsewhere(queue: Queue, position: int) -> str:
    """Whether consumers here could take a message of another instance; "": there is none, or one
    that takes any."""
    known = _all_filters(queue)
    if any(position in looks.demand.named for looks in known):
        return "it was asked for, since it fits a filter of a consumer here"
    if any(position in looks.matching for looks in known):
        return "it fits a filter of a consumer here, and is asked for when that has room"
    if all(position in looks.looked for looks in known):
        return "it fits no filter of a consumer here" if known else ""
    return (
        "it was not compared with the filter of each consumer here: that is done when it is late, "
        "and they have room"
    )


def _all_filters(queue: Queue) -> list[SelectorStats]:
    """What the filters of all consumers know; nothing if one has no filter."""
    many = [one.looks for one in queue.consumers.current()]
    known = [looks for looks in many if looks is not None]
    return known if len(known) == len(many) else []


def _in(end_ms: int, now: Now) -> str:
    return f"in {max(0, end_ms - now.mono_ms) / 1000:.1f} s"
