"""Which part of the log the queues need, and which queues let go of some of it. Pure.

    holds more than max_hold --purge record of its oldest messages--> holds whole segments up to it

Retention removes whole segments, so a bounded queue lets go of whole segments: of everything before
the first segment from which on the log takes no more than its `max_hold`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, islice

from zbroker.engine.effects import Note
from zbroker.ids import format_vector
from zbroker.limits import HOLDINGS_MAX, U63_MAX
from zbroker.log.format import KIND_PURGE
from zbroker.log.reader import Extent
from zbroker.log.records import PurgeRecord
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replayable import Replayable
from zbroker.queues.shared import QueuesContext
from zbroker.wire.internal import Holding, Holds


class LogHolds:
    """Of the queues process."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared
        self._since: dict[str, int] = {}  # wall clock, ms, since when a queue needs the log

    def stated(self, journal: int, wall_ms: int) -> Holds:
        """What the journal is told."""
        manager, holding = self._shared.manager, self._shared.holding
        if not manager.known or not all(one.ready for one in manager.running.values()):
            # dead letters that were brought back may stand before the place that is read from
            return Holds(journal, manager.floor, 0)
        for one in self._shared.dirty.values():  # the tables may have had messages of it
            self._shared.note_use(one)
        walks = manager.following.lowest  # also that of units in doubt
        many = sorted((one.lowest, one.name) for one in holding.values())
        lowest = min((many[0][0] if many else U63_MAX, U63_MAX if walks is None else walks))
        others = (one for one in manager.running.values() if one.name not in holding)
        many += ((one.folded, one.name) for one in islice(others, HOLDINGS_MAX))
        del many[HOLDINGS_MAX:]
        self._since = {name: self._since.get(name, wall_ms) for _, name in many}
        holdings = [Holding("queues", name, position, self._since[name]) for position, name in many]
        return Holds(journal, manager.floor, lowest, holdings)

    def release(self, log: Sequence[Extent]) -> None:
        """Queues that hold more of the log than they may let go of their oldest messages.

        log: its segments, oldest first; those that were removed may still be among them.
        """
        bounded = [
            one for one in self._shared.holding.values()
            if one.definition.config.max_hold and one.ready
        ]  # fmt: skip
        if not bounded or not log:
            return
        newest_first = log[::-1]
        sums = list(accumulate(extent.bytes for extent in newest_first))
        for one in bounded:
            # the open segment is kept, however large it is: nobody could remove it
            within = max(1, _count_within(sums, one.definition.config.max_hold))
            self._release_before(one, newest_first[min(within, len(sums)) - 1].first)

    def _release_before(self, one: QueueState, position: int) -> None:
        manager, queue = self._shared.manager, one.queue
        position = min(position, one.folded)
        if not isinstance(queue, Replayable) or manager.here is None:
            return
        count = len(queue.before(position))
        if position <= one.releasing_to or not count:
            return
        one.releasing_to = position

        def done(code: str, reason: str, _: int) -> None:
            if code:
                one.releasing_to = 0  # the next look tries again
                told = f"queue {one.name!r} could not let go of the log: {reason}; nothing changed"
                manager.notes.append(Note("queues.release_refused", told))
                return
            manager.notes.append(Note("queues.released", _released(one, count, position)))

        record = PurgeRecord(one.name, format_vector({manager.here: position - 1}))
        manager.commits.add_record(KIND_PURGE, record, done)


def _count_within(sums: Sequence[int], most: int) -> int:
    """How many of the newest segments take no more than `most` together."""
    return bisect_left(sums, most + 1)


def _released(one: QueueState, count: int, position: int) -> str:
    most = one.definition.config.max_hold
    return (
        f"queue {one.name!r} held more of the log than its max_hold of {most} bytes: {count} "
        f"messages before position {position} were purged from it; they stay in the log as long "
        "as [retention] keeps them; raise max_hold, or purge earlier"
    )
