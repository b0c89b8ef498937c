"""The journal of the queues world: the product's core over a log that is a list.

A group is written whole, several may be written before a sync. When the process dies, a random
number of the groups that were not synced yet is kept; the next life folds what is there. Old
batches are removed for good as soon as the queues room has said that it needs them no more.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import msgspec
from google_crc32c import value as crc32c

from tests.sim.net import Listener
from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import Read
from zbroker.clock import is_time, parse_time
from zbroker.ids import EPOCH, NOW, format_bookmark, is_vector, parse_bookmark, parse_vector
from zbroker.journal.core import JournalCore, Settings
from zbroker.journal.fold import Fold
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Cursor
from zbroker.wire import codec
from zbroker.wire import internal as i
from zbroker.wire.messages import Columns

if TYPE_CHECKING:
    from tests.sim.queues_world import World

INSTANCE = 9
JOURNAL, MARKS = "ipc-journal", "ipc-marks"
DOOR = b"\0door"
PUBLISHER = "pub"
TURN_MS = 4
BEAT_MS = 50
UNSYNCED_MAX = 4  # groups
UNDER_WAY_MS = 20  # a message to the journal, at the longest
SEGMENT = 6  # batches that are removed together


class SimLog:
    """What is on the disk: `batches` of all times, those from `first` on can be read."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.batches: list[Batch] = []
        self.ends: list[int] = []  # end positions of them
        self.groups: list[int] = []  # of those not synced: how many batches there are then
        self.synced = 0  # so many are durable
        self.first = 0  # index of the oldest one that is kept

    @property
    def oldest(self) -> int:
        """The oldest position that is kept."""
        return self.batches[self.first].position if self.batches else 1

    @property
    def next_position(self) -> int:
        return self.ends[-1] if self.ends else 1

    def write(self, batches: list[Batch]) -> None:
        self.batches += batches
        self.ends += [batch.end_position for batch in batches]
        self.groups.append(len(self.batches))

    def sync(self) -> list[Batch]:
        """What became durable."""
        found = self.batches[self.synced :]
        self.synced = len(self.batches)
        self.groups.clear()
        return found

    def crash(self) -> list[Batch]:
        """Whole groups survive, from the first on; recovery makes them durable."""
        kept = self._world.rng.choice([self.synced, *self.groups])
        del self.batches[kept:], self.ends[kept:]
        return self.sync()

    def at(self, position: int) -> int:
        """The index of the batch that holds it, or of the next one."""
        return max(self.first, bisect_right(self.ends, position))

    def bookmark(self, position: int) -> str:
        """Of a message, whether it can be read or not."""
        batch = self.batches[bisect_right(self.ends, position)]
        return format_bookmark(batch.publisher, batch.sequence + position - batch.position)

    def read(self, read: Read) -> Block:
        """As `zbroker.blocks.block_reader.BlockReader`; how much at a time is left to chance."""
        first = self.at(read.cursor.position)
        items: list[Batch] = []
        most = self._world.rng.choice((1, 2, 5, 20))
        for batch in self.batches[first : first + most]:
            if batch.end_position > read.limit:
                break
            items.append(batch)
        if not items:
            return Block(read.cursor, [], read.cursor)
        start = Cursor(1, items[0].position, items[0].position)
        end = items[-1].end_position
        return Block(start, items, Cursor(1, end, end))

    def locate(self, ask: i.Locate, limit: int) -> i.Located:
        """Where a point is, in what can be read."""
        value, cut = ask.value, ask.cut
        kept = self.batches[self.first : self.at(limit)]
        if value in (EPOCH, NOW, "now"):
            return i.Located(ask.cid, self.oldest if value == EPOCH else limit)
        if is_time(value):
            wanted = parse_time(value)
            found = next((batch.position for batch in kept if batch.log_time >= wanted), limit)
            return i.Located(ask.cid, found)
        if is_vector(value):
            return i.Located(ask.cid, max(parse_vector(value).values()) + 1)
        publisher, sequence = parse_bookmark(value)
        for batch in kept:
            ahead = sequence - batch.sequence
            mine = batch.kind == KIND_PUBLISH and batch.publisher == publisher
            if mine and 0 <= ahead < batch.taken:
                return i.Located(ask.cid, batch.position + ahead + (cut != "at"))
        return i.Located(ask.cid, code="bookmark_not_found", reason="it is not here")


class JournalNode:
    """One life of the journal process."""

    def __init__(self, world: World) -> None:
        self.world, self.log = world, world.log
        self.alive = True
        fold = Fold(INSTANCE)
        for batch in self.log.batches:
            fold(batch, 1)
        log_time = max((batch.log_time for batch in self.log.batches[-1:]), default=0)
        settings = Settings(INSTANCE, next(world.incarnations))
        self.core = JournalCore(settings, fold.sessions, 1, self.log.next_position, log_time)
        self.core.floor = self.floor = self.log.oldest
        self.holds: i.Holds | None = None
        self._holds_ms = 0
        self._refuse_some()
        self.listener = world.net.bind(JOURNAL, self._receive)
        self.marks = world.net.bind(MARKS, self._subscribed)
        self.core.receive(DOOR, i.Hello("ingest", 1), [])
        known = self.core.sessions.open(PUBLISHER, "", world.wall_ns())
        assert known is not None
        self._publisher, self._ordinal = known, 1
        self._waiting: list[tuple[list[str], list[bytes], Columns | None]] = []
        self._beat_ms = 0
        self._sync_ms = 0
        world.at.after(world.rng.randint(0, TURN_MS), self._turn)

    def _refuse_some(self) -> None:
        """Some units are refused for good, for a reason that the room cannot foresee. It lies in
        the unit alone: one that comes again, since nobody knows, is judged as it was before, by
        the next journal too."""
        units, rng, unfit = self.core._units, self.world.rng, self.world.unfit
        place = units.place

        def refusing(ordinal: int, unit: Any, *, fits: bool) -> i.ReceiptItem:
            what = tuple(part.crc for part in unit.parts)
            if what not in unfit:
                unfit[what] = rng.random() < self.world.refusals
            if unfit[what]:
                return i.ReceiptItem(ordinal, 0, 0, 0, "too_large", "there is no reason")
            return place(ordinal, unit, fits=fits)

        units.place = refusing  # type: ignore[method-assign]

    def _subscribed(self, rid: bytes, frame: Any) -> None:
        self._send(self.marks, rid, self.core.marks().message)

    def _receive(self, rid: bytes, frame: tuple[bytes, list[bytes]]) -> None:
        message: Any = codec.TO_JOURNAL.decode(frame[0])
        if isinstance(message, i.Hello):
            self.holds = None
        elif isinstance(message, i.Holds):
            if message.incarnation == self.core.settings.incarnation and self.core.room_of(rid):
                self.holds, self._holds_ms = message, self.world.at.now_ms
                self._remove()
            return
        elif isinstance(message, i.Locate):
            if self.world.rng.random() >= self.world.receipt_loss:
                self._send(self.listener, rid, self.log.locate(message, self.core.persisted))
            return
        for send in self.core.receive(rid, message, list(frame[1])):
            self._emit(send)

    def publish(self, topics: list[str], payloads: list[bytes], columns: Columns | None) -> None:
        """A batch of messages; `columns.index` if there are several topics."""
        self._waiting.append((topics, payloads, columns))

    def _take_published(self) -> None:
        if not self.core.accepting:
            return
        sequence = self._publisher.high + 1
        waiting, self._waiting = self._waiting, []
        for topics, payloads, columns in waiting:
            body = msgspec.msgpack.encode(payloads)
            entry = i.Entry(
                self._publisher.id, self._publisher.session, sequence, len(payloads), sequence - 1,
                crc32c(body), None, topics, None, columns,
            )  # fmt: skip
            incarnation = self.core.settings.incarnation
            self.core.receive(DOOR, i.Append(incarnation, self._ordinal, 0, [entry]), [body])
            self._ordinal += 1
            sequence += len(payloads)

    def _turn(self) -> None:
        if not self.alive:
            return
        world, core, rng = self.world, self.core, self.world.rng
        core.accepting = not world.disk_full
        core.room = 0 if world.disk_full > 1 else rng.choice((0, 1_200, 2_500))
        self._take_published()
        if core.backlog:
            group = core.group(world.wall_ns())
            if group is not None:
                self.log.write(group.batches)
                core.written_to(group.end_position)
        if len(self.log.groups) >= UNSYNCED_MAX or rng.random() >= world.slow_sync:
            self._sync()
        if world.at.now_ms >= self._beat_ms:
            self._beat_ms = world.at.now_ms + BEAT_MS
            core.receive(DOOR, i.Confirm(core.settings.incarnation, self._ordinal), [])
            for send in core.beat():
                self._emit(send)
        core.check()
        world.at.after(TURN_MS if core.backlog or self._waiting else 3 * TURN_MS, self._turn)

    def _sync(self) -> None:
        self.world.judge.durable(self.log.sync())
        for send in self.core.synced(self.core.written):
            if send.rid != DOOR:
                self._emit(send)

    # -- removal ------------------------------------------------------------------------------

    def raise_floor(self) -> None:
        """What nobody needs is removed, as soon as the room has said that it knows."""
        # sent before a new queue was run, it knows nothing of it
        stale = self._holds_ms <= self.world.judge.begun_ms + UNDER_WAY_MS
        if self.holds is None or stale or self.floor > self.log.oldest:
            return
        index = self.log.first + SEGMENT
        if index >= self.log.synced or self.log.ends[index - 1] > self.holds.lowest:
            return
        self.floor = self.core.floor = self.log.ends[index - 1]
        self.world.judge.raised(self.floor)
        self._emit(self.core.marks())

    def _remove(self) -> None:
        holds = self.holds
        assert holds is not None
        if self.floor > self.log.oldest and min(holds.floor, holds.lowest) >= self.floor:
            self.world.judge.removing(self.floor)
            self.log.first = self.log.at(self.floor)
            self.world.faults.append("log removed")

    # -- sending ------------------------------------------------------------------------------

    def _emit(self, send: Any) -> None:
        if send.rid is not None:
            self._send(self.listener, send.rid, send.message)
            return
        for rid in list(self.marks.pipes):
            self._send(self.marks, rid, send.message)

    def _send(self, listener: Listener, rid: bytes, message: Any) -> None:
        lossy = isinstance(message, i.JournalReceipt | i.Watermarks)
        if lossy and self.world.rng.random() < self.world.receipt_loss:
            return
        self.world.net.answer(listener, rid, codec.encode(message))

    def die(self) -> None:
        self.alive = False
        self.world.net.die(self.listener)
        self.world.net.die(self.marks)
        self.world.judge.durable(self.log.crash())
