"""Consumers of sessions: what they hold has no lease, it lasts as long as their session. Pure.

    consumer --connection lost--> lost --the same consumer--> current, with what it holds
       |                            |
       +-----their session is over--+--> over: what they held comes back

At-most-once queues lease nothing, so their consumers are as all others.
"""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.engine.contract import Now
from zbroker.queues.work.consumers import SessionOf
from zbroker.queues.work.offers import once
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Outcome


def add(queue: Queue, key: int, session: SessionOf) -> bool:
    """A consumer that has just joined is of this session. False: that has no meaning here."""
    if once(queue.config):
        return False
    queue.consumers.by_key[key].session = session
    queue.consumers.in_sessions.add(key)
    return True


def end(queue: Queue, session: SessionOf, now: Now, *, failed: bool) -> list[Outcome]:
    """This session is over, and so are its consumers. failed: what they held counts as deliveries
    that failed, which is recorded; else it only comes flagged."""
    consumers, held = queue.consumers, BitMap64()
    for key in [*consumers.in_sessions]:
        one = consumers.by_key[key]
        if one.session != session:
            continue
        if failed:
            held |= one.held
            one.session = None
            consumers.in_sessions.discard(key)
            queue.lose(key, now)
        else:
            queue.leave(key)
    if not held:
        return []
    queue.places.leases.move(held, now.mono_ms)
    return queue.tick(now)
