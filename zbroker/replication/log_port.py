"""Performers of the replication process that read the log: where a link begins, and its blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from typing import Final, cast

from zbroker.engine.events import ReadFailed
from zbroker.errors import StorageError
from zbroker.ids import Origin
from zbroker.log.format import KIND_STATE, STAYS, Batch
from zbroker.log.reader import Cursor, Gap, Log
from zbroker.replication.effects import FindStart, LinkBlock, ReadLink, StartFound, is_unsent
from zbroker.replication.snapshot_rows import HeadRows, Rows, first_part, head

#: up to where each origin is
Ends = dict[Origin, int]

_STATE: Final = "state"  # why a range is missing: the log began after it
HEAD_BATCHES: Final = 1_000  # a snapshot is after the group that began its segment
HEADERS_MAX: Final = 1_000  # of one read, roughly


class LinkLog:
    """One reader of the log for all links. log: opens it, when it is needed first."""

    def __init__(self, log: Callable[[], Log], persisted: Callable[[], int]) -> None:
        self._open, self._persisted = log, persisted
        self._opened: Log | None = None
        self._removed: dict[tuple[int, int], tuple[Ends, Ends]] = {}  # by log start and end

    @property
    def _log(self) -> Log:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def find(self, effect: FindStart) -> StartFound | ReadFailed:
        """The newest place whose origins the destination covers; else the log start."""
        try:
            self._log.refresh()
            for cursor, rows in self._heads(self._persisted()):
                if all(effect.held.get(origin, 0) >= at for origin, (at, _) in rows.items()):
                    return StartFound(effect.link, effect.session, cursor, rows)
            first = self._log.seek(self._log.first_position)
            return StartFound(effect.link, effect.session, first, {}, *self._below())
        except StorageError as error:
            return ReadFailed(effect, error)

    def _heads(self, limit: int) -> Iterator[tuple[Cursor, Rows]]:
        """Where state snapshots begin, newest first, and what they say of origins."""
        end = limit
        for start in reversed(self._log.starts):
            if start.position < limit:
                heads = islice(self._log.headers(start, end), HEAD_BATCHES)
                for item in heads:
                    if not isinstance(item, Gap) and item[0].kind == KIND_STATE:
                        rows = first_part(self._log.body(*item) or b"")
                        if rows is not None:
                            yield item[1], rows
                        break
            end = min(end, start.position)

    def _below(self) -> tuple[Ends, Ends]:
        """Up to where messages of each origin are not in this log, and all records: its beginning
        was removed, it began with the state of another instance, or a person gave them up."""
        log, limit = self._log, self._persisted()
        if (log.first_position, limit) in self._removed:
            return self._removed[log.first_position, limit]
        found = self._look_below(log, limit)
        self._removed = {(log.first_position, limit): found}
        return found

    def _look_below(self, log: Log, limit: int) -> tuple[Ends, Ends]:
        first = log.first_position
        starts = [start for start in log.starts if start.position < limit]
        ends = [*(start.position for start in starts), limit][1:]
        for start, end in zip(starts, ends, strict=True):
            oldest = self._head(start, end)
            if oldest is None:
                continue
            position, said = oldest
            below = {
                one: at for one, at, why, where in said.missing if why == _STATE or where < first
            }
            if first <= 1:
                return below, said.records if said.is_taken else {}
            begun = said.begun if start.position <= first else None
            before = begun if begun is not None else self._before(said.messages, position)
            below = {one: max(below.get(one, 0), before.get(one, 0)) for one in {*below, *before}}
            return below, said.records
        return {}, {}

    def _head(self, start: Cursor, end: int) -> tuple[int, HeadRows] | None:
        for item in islice(self._log.headers(start, end), HEAD_BATCHES):
            if not isinstance(item, Gap) and item[0].kind == KIND_STATE:
                said = head(self._log.body(*item) or b"", start.position)
                if said is not None:
                    return item[0].position, said
        return None

    def _before(self, messages: Ends, position: int) -> Ends:
        """The same where no segment says how it began: rather too much."""
        first: Ends = {}
        for item in self._log.headers(self._log.seek(self._log.first_position), position):
            if not isinstance(item, Gap) and item[0].kind not in STAYS:
                first.setdefault(item[0].origin, item[0].origin_position)
        return {one: min(at, first.get(one, at + 1) - 1) for one, at in messages.items()}

    def read(self, read: ReadLink) -> LinkBlock | ReadFailed:
        """Batches, as they are in the log."""
        try:
            if read.unsent and (headers := self._headers(read)) is not None:
                return headers
            items, after = self._log.read(
                read.cursor, read.limit, read.max_bytes, stored=read.stored, newest=read.newest
            )
        except StorageError as error:
            return ReadFailed(read, error)
        return LinkBlock(read, items, after)

    def _headers(self, read: ReadLink) -> LinkBlock | None:
        """Those of batches that are not sent; None: the first one may be."""
        items, after = list[Batch | Gap](), read.cursor
        for found, serial in self._log.header_lists(read.cursor, read.limit, read.newest):
            unsent = [*takewhile(lambda item: is_unsent(item, read.unsent), found)]
            if unsent:
                last = cast("Batch", unsent[-1])
                items += unsent
                after = Cursor(serial, last.end_offset, last.end_position)
            if len(unsent) < len(found) or len(items) >= HEADERS_MAX:
                break
        return LinkBlock(read, items, after, only_headers=True) if items else None
