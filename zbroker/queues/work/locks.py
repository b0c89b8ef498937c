"""How messages are locked for a branch of a distributed transaction, and what then. Pure.

    held by a consumer --prepare--> going --fold: locked--> locked --decide--> going --fold--> gone,
                                                                               or back

A branch says of each whether it acknowledges or rejects it; that is in its lock.

A locked message is `going` until its branch is decided: no consumer gets it, and no lease, purge,
expiry or acknowledgement is about it. It is in the dump of a queue, as nothing else that is going.
An acknowledgement of another instance, which took over meanwhile, counts: then it is gone, and the
branch finds fewer than it had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyroaring import BitMap64

from zbroker.queues.work.sets import insert, remove, without
from zbroker.queues.work.values import Branch, Lock, Outcome

if TYPE_CHECKING:
    from zbroker.queues.work.queue import Queue


def prepare(queue: Queue, key: int, positions: BitMap64, lock: Lock) -> Outcome:
    """A consumer holds all of these, and its branch is to lock them."""
    queue.consumers.free(queue.places.take_out(positions), queue.consumers.by_key[key])
    queue.places.going_to_go(positions)
    insert(queue.places.locks.coming, positions)
    return Outcome(positions, "locked", "locked", lock=lock)


def locked(queue: Queue, positions: BitMap64, lock: Lock) -> None:
    """The fold read that they are locked."""
    places = queue.places
    remove(places.locks.coming, positions)
    if places.locks.is_over(lock.branch):
        return
    found = positions & places.here
    fresh = without(found, places.going)
    if fresh:
        leased = fresh & places.leases.leased
        if leased:
            queue.consumers.free(leased)
        places.pull(fresh)
        insert(places.going, fresh)
    if found:
        places.locks.put(found, lock)


def decide(queue: Queue, branch: Branch, *, committed: bool) -> list[Outcome]:
    """What becomes of all that a branch has locked here."""
    locks = queue.places.locks
    if committed:
        buried = bool(queue.config.dead_letter)
        return [
            Outcome(many, "gone", "rejected" if text else "acked", letter=text if buried else "")
            for text, many in locks.of(branch).items()
        ]
    found = locks.all_of(branch)
    if not found:
        return []
    queue.places.going_to_fail(found)
    return [Outcome(found, "failed", "cancelled")]


def failed(
    queue: Queue, positions: BitMap64, why: str, due_ns: int, delay_ms: int, *, here: bool
) -> None:
    """The fold of a queue of several instances read that deliveries of them failed. here: at this
    one.

    Instances may have had the same messages, and their records come in any order. So what is
    locked stays locked until the decision, and an outcome that is on its way here is not undone by
    a failure elsewhere: else another consumer could have them before it is read.
    """
    places = queue.places
    stay = positions & (places.locks.all if here else places.going)
    if stay:
        queue.counting.failed(stay & places.here, why)
        if here:
            remove(places.failing, without(stay, places.both))
    queue.failed(without(positions, stay), why, due_ns, delay_ms)


def unlock(queue: Queue, branch: Branch) -> None:
    """Its decision was read, and what that says of messages: all that are still locked come back,
    also those that were not locked where it was decided."""
    left = queue.places.locks.take(branch)
    if left:
        queue.places.back(queue.places.settled(left))
