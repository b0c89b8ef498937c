"""The limits of how much may wait in a queue, and what is given up beyond them. Pure.

    entered --offered to consumers with room--> leased, does not count
        \\--waits, and it is more than max_length or max_bytes--> the oldest of all that wait: gone
                 with overflow = "reject-publish"--> full: ingest refuses what is published

What waits is what an instance owns, and can offer now or after a delay: neither what consumers
have, nor what an outcome or a branch is about, nor barriers. The limits are looked at after the
offers of a turn, so a message that a consumer takes at once is never given up for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyroaring import BitMap64

from zbroker.queues.work.places import MessagePlaces
from zbroker.queues.work.sets import lowest
from zbroker.queues.work.values import Outcome

if TYPE_CHECKING:
    from zbroker.queues.work.queue import Queue

MAX_LENGTH: Final = "max_length"  # why they are given up, by either limit
AT_ONCE_MAX: Final = 100_000  # messages of one outcome; when that has landed come the next ones
_FIRST: Final = 64  # messages that are looked at for their bytes; then twice as many


def is_limited(queue: Queue) -> bool:
    """Whether messages beyond a limit of what may wait in it are given up."""
    config = queue.config
    return bool(config.max_length or config.max_bytes) and not config.refuses_publishes


def is_full(queue: Queue) -> bool:
    """Whether as much waits as may, in a queue whose publishers are refused then."""
    config, places = queue.config, queue.places
    if not config.refuses_publishes:
        return False
    count = _count(places)
    if config.max_length and count >= config.max_length:
        return True
    most = config.max_bytes
    return bool(most) and places.sizes.total >= most and _bytes(places, count) >= most


def give_up(queue: Queue) -> list[Outcome]:
    """The oldest messages are to leave, if more wait than may."""
    config, places = queue.config, queue.places
    count = _count(places)
    over = max(0, count - config.max_length) if config.max_length else 0
    if config.max_bytes and places.sizes.total > config.max_bytes:
        over = max(over, _over_in_bytes(places, count, config.max_bytes))
    if not over:
        return []
    found = _oldest(places, min(over, AT_ONCE_MAX))
    places.take_out(found)
    places.going_to_go(found)
    letter = MAX_LENGTH if config.dead_letter else ""
    return [Outcome(found, "gone", MAX_LENGTH, letter=letter)]


def _count(places: MessagePlaces) -> int:
    """How many wait."""
    return len(places.ready.standing) + len(places.delays.waiting)


def _oldest(places: MessagePlaces, count: int) -> BitMap64:
    """The oldest ones that wait."""
    found = lowest(places.ready.standing, count)
    if places.delays.waiting:
        found = lowest(found | lowest(places.delays.waiting, count), count)
    return found


def _over_in_bytes(places: MessagePlaces, count: int, max_bytes: int) -> int:
    """How many of the oldest ones have to go until the others have at most so many bytes."""
    over, found = _bytes(places, count) - max_bytes, 0
    looked = _FIRST
    while over > 0 and found < count:
        sizes = places.sizes.of(_oldest(places, looked))[found:]
        for size in sizes:
            if over <= 0:
                break
            over -= size
            found += 1
        looked *= 2
    return found


def _bytes(places: MessagePlaces, count: int) -> int:
    """Bytes of all that wait; the fewer messages are looked at for that."""
    sizes, ready, waiting = places.sizes, places.ready.standing, places.delays.waiting
    if 2 * count <= len(places.here):
        return sum(sizes.of(ready)) + sum(sizes.of(waiting))
    return sizes.total - sum(sizes.of(places.here - ready - waiting))
