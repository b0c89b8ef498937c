"""Reads one consistent state out of this log, for a destination whose log is empty.

It is the state at the end of the first complete snapshot of the log, folded as a start of the
journal does it; from there on the destination gets the log itself. Where a stage is open, its parts
are before that place, so it goes on to the first one where none is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from zbroker.engine.events import ReadFailed
from zbroker.errors import StorageError
from zbroker.journal import snapshot
from zbroker.journal.fold import LogFold
from zbroker.log.format import FLAG_SHOWS, FLAG_UNIT, KIND_STATE, SEQUENCED, Batch
from zbroker.log.reader import Cursor, Gap, Log
from zbroker.replication.effects import ReadState, StateBlock

SLICE_BATCHES: Final = 500  # of one read: beats have to pass
TRAVELS: Final = (
    "origins", "closed", "apps", "definitions", "shared_points", "exchanges", "transactions",
    "publishers",
)  # fmt: skip
_NO_PLACE: Final = (
    "no place of the log has a complete state and no open stage; commit or abort what is staged, "
    "or wait for the next segment"
)


class StateReader:
    """One reader for all links; each reads for itself. instance: of this log."""

    def __init__(self, log: Callable[[], Log], persisted: Callable[[], int], instance: int) -> None:
        self._open, self._persisted, self._instance = log, persisted, instance
        self._running: dict[str, tuple[int, Iterator[StateBlock]]] = {}  # by link: its session

    def read(self, read: ReadState) -> StateBlock | ReadFailed:
        """The next part, or a slice of the way to it."""
        session, parts = self._running.get(read.link, (0, iter(())))
        if session != read.session:
            parts = self._parts(read)
            self._running[read.link] = read.session, parts
        try:
            block = next(parts)
        except StorageError as error:
            del self._running[read.link]
            return ReadFailed(read, error)
        if block.last or block.problem:
            del self._running[read.link]
        return block

    def _parts(self, read: ReadState) -> Iterator[StateBlock]:
        log = self._open()
        log.refresh()
        fold: LogFold | None = None
        items = log.headers(log.seek(log.first_position), self._persisted())
        for number, item in enumerate(items, 1):
            if number % SLICE_BATCHES == 0:
                yield StateBlock(read)
            fold = None if isinstance(item, Gap) else self._folded(fold, log, *item)
            if fold is not None and self._is_place(fold, item):
                yield from _cut(read, fold)
                return
        yield StateBlock(read, problem=_NO_PLACE)

    def _folded(self, fold: LogFold | None, log: Log, batch: Batch, at: Cursor) -> LogFold | None:
        """A fold begins with the first part of a snapshot, and again while none is complete."""
        state = batch.kind == KIND_STATE
        if fold is None and not state:
            return None
        if batch.kind not in SEQUENCED or batch.flags & FLAG_SHOWS:
            batch.body = log.body(batch, at) or b""
        if state and (fold is None or not fold.complete):
            part = snapshot.decode(batch.body)
            if part is not None and part.part == 0:
                fold = LogFold(self._instance)
                fold.sessions.origins.meet(log.history.begins)
        if fold is not None:
            fold(batch, at.serial)
        return fold

    @staticmethod
    def _is_place(fold: LogFold, item: Gap | tuple[Batch, Cursor]) -> bool:
        if not fold.complete or isinstance(item, Gap) or item[0].flags & FLAG_UNIT:
            return False
        return not len(fold.sessions.stages)


def _cut(read: ReadState, fold: LogFold) -> Iterator[StateBlock]:
    codecs = [codec for codec in snapshot.folds(fold.sessions) if codec.name in TRAVELS]
    cutter = snapshot.Cutter(codecs, fold.complete)
    while not cutter.done:
        body = cutter.cut()
        yield StateBlock(read, body, cutter.done)
