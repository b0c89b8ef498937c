"""The fold: blocks of the log go into the state of queues, and decide which units landed. Pure.

A block costs what is in it, not how many queues there are: queues are found by topic, and how far
one was folded is where its walk is. A queue that was ahead of the walk that it joined takes nothing
twice. While units are in doubt, a walk of its own reads what may hold them, also where no queue
reads the log.

All queues follow the end of the log, new ones catch up by themselves first:

    new queue --a walk of its own--> reaches another walk --> one walk for both

    origin of a replicated queue that was stopped --a walk alone--> reaches the queue: it goes on
    names of what is in a local queue             --a walk alone--> reaches the queue: with it

Each walk reads blocks in turn. A queue takes nothing twice, so two walks may be merged wherever one
has passed the other. Where no queue has taken anything for a while, headers alone are read:

    no body of some blocks was used --> the next one is of headers, as far as that goes on
    a queue takes one, or a record  --> the same is read again, whole
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import DecodeError, ValidationError
from msgspec.msgpack import Decoder

from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import Read
from zbroker.exchanges.exchange_rows import RECORD as EXCHANGE_RECORD
from zbroker.ids import Origin
from zbroker.log import records as r
from zbroker.log.format import (
    FLAG_SHOWS,
    KIND_BRANCH,
    KIND_CLOSED,
    KIND_DEFINITION,
    KIND_EXCHANGE,
    KIND_ORIGIN,
    KIND_POINT,
    KIND_PUBLISH,
    KIND_PURGE,
    KIND_QUEUE,
    KIND_SHARED_POINT,
    KIND_STATE,
    KIND_TIE,
    KIND_TRANSACTION,
    KIND_WIRING,
    OF_QUEUES,
    Batch,
)
from zbroker.log.headers import Item
from zbroker.log.point_records import SHARED_POINT
from zbroker.log.queue_records import DEFINITION, OUTCOMES
from zbroker.log.records import POINT, PURGE
from zbroker.queues.queue_index import RouteIndex, TopicIndex
from zbroker.queues.queue_state import QueueState, Walk
from zbroker.queues.replayable import Replayable
from zbroker.queues.replicated.origin_scan import OriginScan
from zbroker.queues.replicated.replicated_replayable import ReplicatedReplayable
from zbroker.queues.timed_sessions import begun
from zbroker.queues.work.locks import unlock
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Branch
from zbroker.transaction_tokens import token_of

if TYPE_CHECKING:
    from zbroker.queues.registry import QueueRegistry

Record = TypeVar("Record")

#: records that say more about origins than where they are themselves
SAY_ORIGINS: Final = frozenset({KIND_TIE, KIND_STATE, KIND_ORIGIN, KIND_CLOSED})
#: records of this process that nothing is folded from here, and how they are decoded
_NAMED: Final[dict[int, Decoder[Any]]] = {
    KIND_WIRING: r.WIRING, KIND_POINT: POINT, KIND_EXCHANGE: EXCHANGE_RECORD,
    KIND_TRANSACTION: r.TRANSACTION, KIND_BRANCH: r.BRANCH, KIND_SHARED_POINT: SHARED_POINT,
}  # fmt: skip
_FOLDED: Final = frozenset({KIND_QUEUE, KIND_PURGE, KIND_DEFINITION, *_NAMED, *OF_QUEUES})
DOUBT: Final = ""  # no queue's name: reads what decides which units landed


class QueueFold:
    """Folds the log into the queues of a registry."""

    def __init__(self, manager: QueueRegistry) -> None:
        self._manager = manager
        self._following, self._commits = manager.following, manager.commits
        self.index = TopicIndex()
        self.bound = RouteIndex()
        #: by queue: branches whose decision was read, and whether locks of them may come after it
        self._unlocks: dict[str, dict[Branch, bool]] = {}
        self.awaited: dict[str, int] = {}  # by queue: something is to be done when it was read
        self.replicated: dict[str, QueueState] = {}
        self._listening: dict[str, QueueState] = {}  # facts about messages that come later are here
        self._stopped: dict[str, QueueState] = {}  # records of some origin wait in the log
        self._alone: dict[int, str] = {}  # walks of origins that are read again, for which queue
        self.scans: dict[
            str, OriginScan
        ] = {}  # of local queues that are to be on several instances

    def read(self, read: Read, block: Block) -> None:
        """A block for one walk; its queues take what is new to them."""
        if not self._suffices(read, block):
            return  # it is read again, with bodies
        moved = self._following.read(read.key, block)
        if moved is None:
            return
        walk, joined = moved
        touched: dict[str, QueueState] = {}
        if walk.alone is None:
            self._fold(block, walk, touched)
        else:
            self._read_alone(block, walk, *walk.alone, touched)
        if joined is not walk:
            self._join(walk, joined)
        if self.replicated:
            self._catch_up(walk)
        if self._unlocks:
            self._unlock(touched)
        self._touched(touched)
        self._look_who_waits(walk.members)
        self.settle_doubts()

    def _fold(self, block: Block, walk: Walk, touched: dict[str, QueueState]) -> None:
        scans = self._following_scans(walk)
        for at, item in enumerate(block.items):
            if not isinstance(item, Batch):
                continue
            if item.kind == KIND_PUBLISH:
                for one in self._takers(item):
                    mine = one.walk is walk and item.end_position > one.ahead
                    if mine and one.fold(item, lambda at=at: block.unpacked(at)):  # type: ignore[misc]
                        touched[one.name] = one
            else:
                self._record(item, walk, touched)
            if self.replicated:
                self._track(item, walk, touched)
            for one, scan in scans:
                if item.end_position > one.ahead:
                    scan.add(item, one.queue.here)

    def _suffices(self, read: Read, block: Block) -> bool:
        """Whether the bodies that are looked at are there; notes how long none was."""
        walk = self._following.walks.get(read.key)
        if walk is None or walk.alone is not None:
            return True
        walk.unused = 0 if any(map(self._looks_into, block.items)) else walk.unused + 1
        return walk.unused > 0 or not read.headers

    def _looks_into(self, item: Item) -> bool:
        """Whether a body is of any use: of messages that queues take, and of records of queues;
        also of those of origins, if a queue is on several instances or is to be."""
        if not isinstance(item, Batch):
            return False
        if item.kind == KIND_PUBLISH:
            return bool(item.flags & FLAG_SHOWS or self._takers(item))
        return item.kind in _FOLDED or bool(self.replicated or self.scans)

    def _takers(self, item: Batch) -> Sequence[QueueState]:
        """The queues that messages of a batch may enter."""
        takers = self.index.of(item.topics)
        if item.extra and (bound := self.bound.of(item)):
            return [*takers, *bound]
        return takers

    # -- names of a local queue ---------------------------------------------------------------

    def begin_scan(self, one: QueueState, scan: OriginScan) -> None:
        """The log is read from its start for it, until it is where the queue is; then with that."""
        self.scans[one.name] = scan
        self._following.begin_alone(one.name, None, self._manager.log_start)

    def end_scan(self, name: str) -> None:
        """It is over."""
        if self.scans.pop(name, None) is not None:
            walks = self._following.walks
            for key in [key for key, walk in walks.items() if walk.alone == (name, None)]:
                del walks[key]

    def _read_alone(
        self, block: Block, walk: Walk, name: str, origin: Origin | None,
        touched: dict[str, QueueState],
    ) -> None:  # fmt: skip
        if origin is None:
            self._scan(block, walk, name)
            return
        for item in block.items:
            if isinstance(item, Batch):
                self._again(item, walk, name, origin, touched)

    def _following_scans(self, walk: Walk) -> list[tuple[QueueState, OriginScan]]:
        """Those that read with the queues of a walk."""
        found = []
        for name, scan in self.scans.items():
            one = self._manager.running.get(name)
            if scan.following and one is not None and one.walk is walk:
                found.append((one, scan))
        return found

    def _scan(self, block: Block, walk: Walk, name: str) -> None:
        """A block that is read for names alone."""
        one, scan = self._manager.running.get(name), self.scans.get(name)
        if one is None or scan is None:
            self._following.walks.pop(walk.key, None)
            return
        for item in block.items:
            if isinstance(item, Batch) and item.position < one.folded:
                scan.add(item, one.queue.here)
        if walk.position >= one.folded:
            scan.following = True
            del self._following.walks[walk.key]

    def _track(self, item: Batch, walk: Walk, touched: dict[str, QueueState]) -> None:
        """Replicated queues have to know how far each origin was read."""
        if item.kind in SAY_ORIGINS:
            listening = [*self.replicated.values()]
        else:
            listening = [*self._listening.values()] if self._listening else []
        for one in listening:
            new = one.walk is walk and item.end_position > one.ahead
            if new and one.replicated.read(item):  # type: ignore[union-attr]
                touched[one.name] = one
            self._look(one)
        walk.origins.add(item)

    def _look(self, one: QueueState) -> None:
        """Whether a replicated queue waits for messages, or for room."""
        replicated = one.replicated
        assert replicated is not None
        for many, waits in ((self._listening, replicated.listens),
                            (self._stopped, bool(replicated.stopped))):  # fmt: skip
            if waits:
                many[one.name] = one
            else:
                many.pop(one.name, None)

    def _touched(self, touched: dict[str, QueueState]) -> None:
        """Something became of messages of these queues."""
        for one in touched.values():
            if one.waiters:
                one.waited()
            one.write_again()
            self._manager.look_overtaken(one)
            self._manager.changed(one)

    def _again(
        self, item: Batch, walk: Walk, name: str, origin: Origin, touched: dict[str, QueueState]
    ) -> None:
        """A record of an origin that was stopped, as far as the queue was read."""
        one = self.replicated.get(name)
        if one is None or one.replicated is None or item.kind not in OF_QUEUES:
            return
        if item.origin != origin or item.position >= one.folded or walk.key not in self._alone:
            return
        record = _decoded(OUTCOMES, item) if item.kind != KIND_DEFINITION else None
        if record is None or record.queue != name:
            return
        touched[name] = one
        if not one.replicated.record(item, record, again=True):
            self._end_alone(walk.key)
        self._look(one)

    def _catch_up(self, walk: Walk) -> None:
        """Origins that were stopped are read again, when there is room for what may wait."""
        if walk.alone is not None and walk.alone[1] is not None and walk.key in self._alone:
            one = self.replicated.get(walk.alone[0])
            if one is not None and one.replicated is not None and walk.position >= one.folded:
                one.replicated.caught_up(walk.alone[1])
                self._look(one)
                one = None
            if one is None:
                self._end_alone(walk.key)
        for one in self._stopped.values():
            found = one.replicated.catch_up() if one.replicated is not None else None
            if found is not None and one.name not in self._alone.values():
                begun = self._following.begin_alone(one.name, *found)
                self._alone[begun.key] = one.name

    def _end_alone(self, key: int) -> None:
        del self._alone[key]
        self._following.walks.pop(key, None)

    def begin(self, one: QueueState) -> None:
        """It reads the log from where it was folded to."""
        one.walk = self._following.begin(one.name, one.ahead)
        self._index(one).add(one)
        if one.replicated is not None:
            self.replicated[one.name] = one
            if isinstance(one.queue, Queue) and (left := one.queue.places.locks.still_to_unlock()):
                self._unlocks[one.name] = dict.fromkeys(left, True)  # tables end within their units
            one.replicated.read_along(one.walk.origins)
            self._look(one)
            one.write_again()
        if not self._begin_to_offer(one):
            self.awaited[one.name] = one.ready_at
        self._manager.changed(one)

    def end(self, one: QueueState) -> None:
        """It reads no more."""
        self._following.end(one.name)
        self._index(one).remove(one)
        self.scans.pop(one.name, None)
        self.awaited.pop(one.name, None)
        self._unlocks.pop(one.name, None)
        for many in (self.replicated, self._listening, self._stopped):
            many.pop(one.name, None)
        self._alone = {key: name for key, name in self._alone.items() if name != one.name}

    def _index(self, one: QueueState) -> TopicIndex | RouteIndex:
        return self.bound if one.definition.config.bound else self.index

    def _join(self, walk: Walk, joined: Walk) -> None:
        for name in walk.members:
            one = self._manager.running.get(name)
            if one is not None:
                one.ahead, one.walk = walk.position, joined
                if one.replicated is not None:
                    one.replicated.read_along(joined.origins)

    def await_position(self, one: QueueState, position: int) -> None:
        """A queue offers when the log was read that far."""
        self.awaited[one.name] = max(position, self.awaited.get(one.name, 0))
        self._look_who_waits({one.name})

    def _look_who_waits(self, members: Set[str]) -> None:
        """Touches those of these who wait until the log was read up to some position."""
        for name in sorted(self.awaited.keys() & members):
            position, one = self.awaited[name], self._manager.running.get(name)
            if one is None or one.folded >= position:
                del self.awaited[name]
            if one is not None and one.folded >= position:
                self._begin_to_offer(one)
                self._manager.changed(one)

    def _begin_to_offer(self, one: QueueState) -> bool:
        was_ready = one.ready
        one.begin_to_offer()
        if one.ready and not was_ready:
            self._manager.began.append(one)
        return one.ready

    def _record(self, batch: Batch, walk: Walk, touched: dict[str, QueueState]) -> None:
        if batch.kind == KIND_QUEUE:
            self._facts(batch, walk, touched)
        elif batch.kind == KIND_PURGE:
            self._purged(batch, walk, touched)
        elif batch.kind in _NAMED:
            if self._commits.doubtful_from is not None and self._manager.is_own(batch):
                self._found(batch)
            if batch.kind == KIND_TRANSACTION and self._manager.sessions:
                self._began(batch)
            if batch.kind == KIND_BRANCH and self.replicated:
                self._decided(batch, walk)
        elif batch.kind == KIND_DEFINITION:
            self._defined(batch)
        elif batch.kind in OF_QUEUES:
            self._outcomes(batch, walk, touched)

    def welcomed(self, journal: int, written: int) -> None:
        """A journal whose log ends at `written`: units under way are looked for there."""
        self._commits.welcomed(journal, written)
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
        """A definition, point, transaction, rows of exchanges: one of ours may be in doubt."""
        record = _decoded(_NAMED[batch.kind], batch)
        if record is not None:
            self._commits.found(record.by, record.unit, batch.position)

    def _began(self, batch: Batch) -> None:
        """A session began, here or elsewhere, or ended."""
        record = _decoded(r.TRANSACTION, batch)
        if record is not None and not record.number:
            self._manager.sessions.learn(
                begun(record, batch.origin_instance), begins=bool(record.to)
            )

    def _decided(self, batch: Batch, walk: Walk) -> None:
        """A branch. Its unit is about what the instance that decided knew to be locked; here it may
        be more, or will be: of messages that come later, or if it was decided by force."""
        record = _decoded(r.BRANCH, batch)
        if record is None or record.state not in ("committed", "rolled_back"):
            return
        branch = record.principal, token_of(record.session, record.epoch, record.number)
        for name in sorted(self.replicated.keys() & record.queues):
            one = self._mine(name, batch, walk)
            if one is not None and isinstance(one.queue, Queue) and one.replicated is not None:
                late = record.forced or one.replicated.waits
                self._unlocks.setdefault(name, {})[branch] = late
                one.queue.places.locks.end(branch)

    def _unlock(self, touched: dict[str, QueueState]) -> None:
        """What branches have locked that were decided, once the whole units were read."""
        for name, branches in [*self._unlocks.items()]:
            one = self._manager.running.get(name)
            if one is not None and one.in_unit:
                continue
            del self._unlocks[name]
            if one is not None and isinstance(one.queue, Queue):
                for branch, late in branches.items():
                    unlock(one.queue, branch)
                    if not late:
                        one.queue.places.locks.forget(branch)
                touched[name] = one

    def _defined(self, batch: Batch) -> None:
        """A replicated queue, here or at a peer. A record that is known changes nothing."""
        record = _decoded(DEFINITION, batch)
        if record is not None:
            if self._manager.is_own(batch):
                self._commits.found(record.by, record.unit, batch.position)
            self._manager.replicated.learn(record, batch.position)

    def _outcomes(self, batch: Batch, walk: Walk, touched: dict[str, QueueState]) -> None:
        record = _decoded(OUTCOMES, batch)
        if record is None:
            return
        if self._manager.is_own(batch):
            self._commits.found(record.by, record.unit, batch.position)
        one = self._mine(record.queue, batch, walk)
        if one is None or one.replicated is None:
            return
        one.replicated.record(batch, record)
        self._look(one)
        touched[one.name] = one

    def _mine(self, name: str, batch: Batch, walk: Walk) -> QueueState | None:
        """The queue with this name, if the record is new to it."""
        one = self._manager.running.get(name)
        return one if one and one.walk is walk and batch.position >= one.ahead else None

    def _facts(self, batch: Batch, walk: Walk, touched: dict[str, QueueState]) -> None:
        record = _decoded(r.QUEUE, batch)
        if record is None or not self._manager.is_own(batch):
            return  # its positions are not those of this log
        self._commits.found(record.by, record.unit, batch.position)
        one = self._mine(record.queue, batch, walk)
        if one is not None and one.records_of_life(record.life):
            touched[one.name] = one
            for fact in record.facts:
                if isinstance(fact, r.StandIn):
                    one.stand_ins.apply(fact, batch.position)
                else:
                    one.apply(fact)

    def _purged(self, batch: Batch, walk: Walk, touched: dict[str, QueueState]) -> None:
        record = _decoded(PURGE, batch)
        if record is None:
            return
        self._commits.found(record.by, record.unit, batch.position)
        one = self._mine(record.queue, batch, walk)
        if one is None or batch.position < one.definition.created:
            return
        touched[one.name] = one
        before = self._manager.position_of(record.vector)
        if isinstance(one.replicated, ReplicatedReplayable):
            if one.records_of_life(record.life):
                one.replicated.release(before)
        elif isinstance(one.queue, Replayable) and one.queue.purged(before):
            self._manager.overtaken.append(one)


def _decoded(decoder: Decoder[Record], batch: Batch) -> Record | None:
    """None: a newer release wrote it, or it is damaged and checked as such; it is stepped over."""
    try:
        return decoder.decode(batch.body)
    except (DecodeError, ValidationError, UnicodeDecodeError):
        return None
