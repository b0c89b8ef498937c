"""What a consumer with a filter has to look at next. Pure."""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.queues.work.consumers import SelectorStats
from zbroker.queues.work.ready import ReadyMessages
from zbroker.queues.work.sets import lowest, without


def next_unlooked(
    looks: SelectorStats, ready: ReadyMessages, behind: int, limit: int, enough: int
) -> BitMap64:
    """The lowest messages before `behind` that can be offered and were not looked at.

    None if so many as are `enough` are known to fit. What is past the cursor and was not there when
    the cursor passed is `missed`; so nothing is looked at twice.
    """
    if ready.count(enough, behind, looks.matching) >= enough:
        return BitMap64()
    looks.missed &= ready.standing
    found = lowest(looks.missed, limit, behind)
    at, passed = looks.cursor, True
    while len(found) < limit:
        chunk = ready.candidates(limit - len(found), behind, at)
        if not chunk:
            break
        new, at = without(chunk, looks.looked), chunk.max() + 1
        passed = passed and not new
        found |= new
        if passed:
            looks.cursor = at
    return found
