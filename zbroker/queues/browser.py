"""Looking into a queue without taking anything: rows of messages, from a position on. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyroaring import BitMap64

from zbroker.filters import Filter
from zbroker.ids import format_bookmark
from zbroker.limits import MIB
from zbroker.queues.effects import InspectedMessage
from zbroker.queues.queue_state import QueueState
from zbroker.queues.shared import QueuesContext
from zbroker.wire.queue_messages import BrowsedRow

SCANNED_MAX: Final = 10_000  # messages of which one request looks at the state
EXAMINED_MAX: Final = 1_000  # messages that one request reads for a filter
SHOWN_BYTES: Final = 8 * MIB  # of the messages of one answer, besides the rest of a batch

#: rows, their payloads, and what to give as `after` for more; None: there is no more
Done = Callable[[list[BrowsedRow], list[bytes], int | None], None]


class Browser:
    """Of the room."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared

    def rows(
        self,
        one: QueueState,
        after: int,
        limit: int,
        wanted: tuple[Filter | None, str | None],
        done: Done,
    ) -> None:
        """wanted: a filter, and a state."""
        content, state = wanted
        part, behind = self._part(one, after, limit, state, content)
        if content is None or not part:
            self._read(one, part, behind, done)
            return

        def examined(matching: BitMap64) -> None:
            hits = matching[:limit]
            last = behind
            if len(matching) > limit:
                last = hits.max()
            self._read(one, hits, last, done)

        self._shared.examine(part, content, examined)

    def _part(
        self, one: QueueState, after: int, limit: int, state: str | None, content: Filter | None
    ) -> tuple[BitMap64, int | None]:
        """The next messages that may be shown, and after what to go on."""
        here = one.queue.here
        first = here.rank(after)
        most = EXAMINED_MAX if content is not None else limit
        if state is None:
            part = here[first : first + most]
            more = first + most < len(here)
            return part, part.max() if more and part else None
        found = BitMap64()
        seen = here[first : first + SCANNED_MAX]
        last = None
        for position in seen:
            if len(found) == most:
                return found, last
            last = position
            if one.queue.where(position).state == state:
                found.add(position)
        return found, last if first + SCANNED_MAX < len(here) else None

    def _read(self, one: QueueState, part: BitMap64, behind: int | None, done: Done) -> None:
        if not part:
            done([], [], behind)
            return

        def seen(rows: list[InspectedMessage], end: int) -> None:
            found = [self._row(one, row) for row in rows]
            cut = end <= part.max()  # the rest is asked for behind the last one that was read
            done(found, [row.data for row in rows], end - 1 if cut else behind)

        self._shared.look(part, seen, SHOWN_BYTES)

    def _row(self, one: QueueState, row: InspectedMessage) -> BrowsedRow:
        standing = one.queue.where(row.position)
        due_ms = standing.due
        if due_ms is not None:
            due_ms = max(0, due_ms - self._shared.now.mono_ms)
        owner = self._shared.consumers.get(standing.consumer or 0)
        return BrowsedRow(
            row.position, format_bookmark(row.publisher, row.sequence), row.topic, row.time_ns,
            len(row.data), standing.state, standing.deliveries, standing.failures,
            owner.client if owner is not None else "", due_ms,
        )  # fmt: skip
