"""Messages of queues are shown without being taken: to clients and operators. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyroaring import BitMap64

from zbroker.filters import Filter
from zbroker.ids import format_bookmark
from zbroker.limits import MIB
from zbroker.queues.context import QueuesContext
from zbroker.queues.effects import Inspect, Inspected, InspectedMessage
from zbroker.queues.queue_state import QueueState
from zbroker.wire import queue_messages as q

SCANNED_MAX: Final = 10_000  # messages of which one request looks at the state
EXAMINED_MAX: Final = 1_000  # messages that one request reads for a filter
SHOWN_BYTES: Final = 8 * MIB  # of the messages of one answer, besides the rest of a batch

#: rows, their payloads, and what to give as `after` for more; None: there is no more
Browsed = Callable[[list[q.BrowsedRow], list[bytes], int | None], None]


class Browser:
    """Shows messages of queues without taking them."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared

    def rows(
        self, one: QueueState, after: int, limit: int, wanted: tuple[Filter | None, str | None],
        done: Browsed,
    ) -> None:  # fmt: skip
        """Messages after a position. wanted: a filter, and a state."""
        content, state = wanted
        part, next_after = self._part(one, after, limit if content is None else EXAMINED_MAX, state)
        if content is None or not part:
            self._read(one, part, next_after, done)
            return

        def examined(matching: BitMap64) -> None:
            hits = matching[:limit]
            self._read(one, hits, hits.max() if len(matching) > limit else next_after, done)

        self._shared.examine(part, content, examined)

    def _part(
        self, one: QueueState, after: int, most: int, state: str | None
    ) -> tuple[BitMap64, int | None]:
        """The next messages that may be shown, and the position to go on after."""
        here = one.queue.here
        first = here.rank(after)
        if state is None:
            part = here[first : first + most]
            more = first + most < len(here)
            return part, part.max() if more and part else None
        found = BitMap64()
        last = None
        for position in here[first : first + SCANNED_MAX]:
            if len(found) == most:
                return found, last
            last = position
            if one.queue.where(position, self._shared.now).state == state:
                found.add(position)
        return found, last if first + SCANNED_MAX < len(here) else None

    def _read(self, one: QueueState, part: BitMap64, next_after: int | None, done: Browsed) -> None:
        if not part:
            done([], [], next_after)
            return

        def inspected(answer: Inspected) -> None:
            found = [self._row(one, row) for row in answer.rows]
            cut = answer.end <= part.max()  # the next question goes on after the last that was read
            after = answer.end - 1 if cut else next_after
            done(found, [row.data for row in answer.rows], after)

        self._shared.read(Inspect, inspected, part, SHOWN_BYTES)

    def _row(self, one: QueueState, row: InspectedMessage) -> q.BrowsedRow:
        standing = one.queue.where(row.position, self._shared.now)
        due_ms = standing.due
        if due_ms is not None:
            due_ms = max(0, due_ms - self._shared.now.mono_ms)
        owner = self._shared.consumers.get(standing.consumer or 0)
        return q.BrowsedRow(
            row.position, format_bookmark(row.publisher, row.sequence), row.topic, row.time_ns,
            len(row.data), standing.state, standing.deliveries, standing.failures,
            owner.client if owner is not None else "", due_ms,
        )  # fmt: skip
