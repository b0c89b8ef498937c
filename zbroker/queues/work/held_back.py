"""Messages that consumers of a process before this one may have: held back for a while. Pure.

    ready or delayed, may have been delivered --hold--> held back --claim--> leased to its consumer
                                                            +-----release--> ready or delayed

They are with a consumer that was lost, of a session that there is not: so all that leaves alone
what consumers have leaves these alone, too.
"""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.queues.work.consumers import HELD_BACK, QueueConsumer
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import insert, union

_NO_SESSION = "", ""  # a session has a name


def hold(queue: Queue) -> None:
    """Nothing of what may have been delivered is offered from now on. To be called once."""
    places, suspects = queue.places, queue.counting.suspects
    if not suspects:
        return
    # a delay may have been over, and the message delivered, when the process before this one ended
    delayed = places.delays.waiting & suspects
    places.delays.pause(delayed)
    places.ready.add(delayed)
    parts = places.ready.take(len(suspects), places.offered_before, suspects)
    early = delayed & places.ready.standing  # after a barrier, or others of its key
    places.ready.discard(early)
    places.delays.wait(early)
    if parts:
        found = union(parts)
        lost = queue.consumers.join(HELD_BACK, "", 0, filtered=False)
        lost.lost, lost.session = True, _NO_SESSION
        queue.consumers.in_sessions.add(HELD_BACK)
        queue.consumers.give(lost, found)
        places.leases.give(found, None)


def claim(queue: Queue, key: int, holding: BitMap64) -> BitMap64:
    """A consumer of a session says that it has these. Returns: those that are its own now."""
    lost = _lost(queue)
    if lost is None:
        return BitMap64()
    found = lost.held & holding
    queue.consumers.take_from(lost, found)
    insert(queue.consumers.by_key[key].held, found)
    return found


def release(queue: Queue) -> None:
    """All that is left can be offered. It is flagged since the start, and that was no delivery."""
    lost = _lost(queue)
    if lost is not None:
        queue.consumers.forget(lost)
        queue.places.leases.done(lost.held)
        queue.places.back(lost.held)


def _lost(queue: Queue) -> QueueConsumer | None:
    return queue.consumers.by_key.get(HELD_BACK)
