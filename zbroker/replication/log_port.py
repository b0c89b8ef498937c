"""Performers of the replication process that read the log: where a link begins, and its blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from zbroker.engine.events import ReadFailed
from zbroker.errors import StorageError
from zbroker.log.format import KIND_STATE
from zbroker.log.reader import Cursor, Gap, Log
from zbroker.replication.effects import FindStart, LinkBlock, ReadLink, StartFound
from zbroker.replication.snapshot_rows import Rows, first_part

HEAD_BATCHES: Final = 1_000  # a snapshot is after the group that began its segment


class LinkLog:
    """One reader of the log for all links. log: opens it, when it is needed first."""

    def __init__(self, log: Callable[[], Log], persisted: Callable[[], int]) -> None:
        self._open, self._persisted = log, persisted
        self._opened: Log | None = None

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
            return StartFound(effect.link, effect.session, first, {})
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

    def read(self, read: ReadLink) -> LinkBlock | ReadFailed:
        """Whole batches, as they are in the log."""
        try:
            items, after = self._log.read(read.cursor, read.limit, read.max_bytes, stored=True)
        except StorageError as error:
            return ReadFailed(read, error)
        return LinkBlock(read, items, after)
