"""The fold: blocks of the log go into the state of queues, and decide which units landed. Pure.

A queue takes nothing twice: it knows how far it was folded. While units are in doubt, a walk of its
own reads what may hold them, also where no queue reads the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, ValidationError

from zbroker.blocks.making import Block
from zbroker.journal import queue_records as r
from zbroker.journal.format import (
    KIND_POINT,
    KIND_PUBLISH,
    KIND_PURGE,
    KIND_QUEUE,
    KIND_WIRING,
    Batch,
)
from zbroker.journal.records import POINT, PURGE
from zbroker.queues.replayable import Replayable
from zbroker.queues.running import Running

if TYPE_CHECKING:
    from zbroker.queues.manager import Manager

DOUBT: Final = ""  # no queue's name: reads what decides which units landed


class Folding:
    """Of a manager."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._following, self._commits = manager.following, manager.commits

    def read(self, key: int, block: Block) -> None:
        """A block for one walk; its queues take what is new to them."""
        read = self._following.read(key, block)
        members = [self._manager.running[name] for name in read if name != DOUBT]
        for at, item in enumerate(block.items):
            if not isinstance(item, Batch):
                continue
            if item.kind == KIND_PUBLISH:
                for one in members:
                    if item.end_position > one.folded:
                        one.fold(item, lambda at=at: block.unpacked(at))  # type: ignore[misc]
            else:
                self._record(item, members)
        for one in members:
            one.read_to(block.next.position)
            if one.waiters:
                one.waited()
            self._manager.changed(one)
        self.settle_doubts()

    def _record(self, batch: Batch, members: list[Running]) -> None:
        if batch.kind == KIND_QUEUE:
            self._facts(batch, members)
        elif batch.kind == KIND_PURGE:
            self._purged(batch, members)
        elif batch.kind in (KIND_WIRING, KIND_POINT) and self._commits.doubtful_from is not None:
            self._found(batch)

    def welcomed(self, journal: int, persisted: int) -> None:
        """A journal whose log ends at `persisted`: what was under way is looked for there."""
        self._commits.welcomed(journal, persisted)
        self._following.look_again()
        begin = self._commits.doubtful_from
        if begin is not None:
            self._following.end(DOUBT)
            self._following.begin(DOUBT, begin)
            self.settle_doubts()

    def settle_doubts(self) -> None:
        """How far the log was read since decides which units landed."""
        if self._commits.doubtful_from is None:
            return
        if self._commits.read(self._following.position_of(DOUBT)):
            self._following.end(DOUBT)

    def _found(self, batch: Batch) -> None:
        """A definition or a point: one of ours may be in doubt."""
        record = (r.WIRING if batch.kind == KIND_WIRING else POINT).decode(batch.body)
        self._commits.found(record.by, record.unit, batch.position)

    def _facts(self, batch: Batch, members: list[Running]) -> None:
        try:
            record = r.QUEUE.decode(batch.body)
        except (DecodeError, ValidationError, UnicodeDecodeError):
            return  # of a newer release, or damaged and checked as such: it is stepped over
        if self._manager.here is None or batch.origin_instance != self._manager.here.instance:
            return  # its positions are those of another instance
        self._commits.found(record.by, record.unit, batch.position)
        for one in members:
            mine = (one.name, one.definition.life) == (record.queue, record.life)
            if mine and batch.position >= one.folded:
                for fact in record.facts:
                    one.apply(fact)

    def _purged(self, batch: Batch, members: list[Running]) -> None:
        try:
            record = PURGE.decode(batch.body)
        except (DecodeError, ValidationError, UnicodeDecodeError):
            return  # as with facts
        self._commits.found(record.by, record.unit, batch.position)
        for one in members:
            mine = one.name == record.queue and batch.position >= max(
                one.folded, one.definition.created
            )
            if not mine or not isinstance(one.queue, Replayable):
                continue
            if one.queue.purged(self._manager.position_of(record.vector)):
                self._manager.overtaken.append(one)
