"""The journal of the queues world: the core and turn that ship, over a log that is a list.

A group is written whole, and a sync may take a while. When the process dies, the group that was not
synced is there or not; the next life folds what is there. Segments of a few batches are removed for
good when the queues process has said that it needs them no more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from tests.sim.journal_process import Inbox, SimJournal
from tests.sim.net import Listener
from tests.sim.ports import WatermarksPublisher, draw
from zbroker.blocks.frame_builder import Block
from zbroker.blocks.read_request import Read
from zbroker.checksums import crc32c
from zbroker.clock import is_time, parse_time
from zbroker.engine import effects as e
from zbroker.engine.contract import Limit, Ready
from zbroker.engine.events import Gone, Synced
from zbroker.ids import EPOCH, NOW, format_bookmark, is_vector, parse_bookmark, parse_vector
from zbroker.journal import effects as je
from zbroker.journal import events as ev
from zbroker.journal.core import JournalCore, JournalSettings, LogEnd, RetentionSettings
from zbroker.journal.fold import LogFold
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Cursor
from zbroker.wire import codec
from zbroker.wire import internal as i
from zbroker.wire.messages import Columns

if TYPE_CHECKING:
    from tests.sim.queues_world import World

INSTANCE = 9
JOURNAL, WATERMARKS_AT = "ipc-journal", "ipc-marks"
LISTENER, ADMIN = b"\0door", b"\0admin"
READERS = ("queues",)
PUBLISHER = "pub"
TURN_MS = 4
SYNC_MS = (1, 5, 20)  # of a slow one
UNDER_WAY_MS = 20  # a message to the journal, at the longest
SEGMENT = 6  # batches, at least


class SimLog:
    """What is on the disk: `batches` of all times, those from `first` on can be read."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.batches: list[Batch] = []
        self.ends: list[int] = []  # end positions of them
        self.starts = [0]  # index of the first batch of each segment
        self.synced = 0  # so many are durable
        self.first = 0  # index of the oldest one that is kept

    @property
    def oldest(self) -> int:
        """The oldest position that is kept."""
        return self.batches[self.first].position if self.batches else 1

    @property
    def next_position(self) -> int:
        return self.ends[-1] if self.ends else 1

    @property
    def serial(self) -> int:
        """Of the open segment."""
        return len(self.starts)

    def write(self, batches: list[Batch]) -> None:
        if len(self.batches) - self.starts[-1] >= SEGMENT:
            self.starts.append(len(self.batches))
        self.batches += batches
        self.ends += [batch.end_position for batch in batches]

    def sync(self) -> list[Batch]:
        """What became durable."""
        found = self.batches[self.synced :]
        self.synced = len(self.batches)
        return found

    def crash(self) -> list[Batch]:
        """A whole group survives or not; recovery makes it durable."""
        kept = self._world.rng.choice([self.synced, len(self.batches)])
        del self.batches[kept:], self.ends[kept:]
        self.starts = [start for start in self.starts if start < kept] or [0]
        return self.sync()

    def serial_of(self, index: int) -> int:
        """The segment of the batch with this index."""
        return bisect_right(self.starts, index)

    def sizes(self) -> list[ev.SegmentSize]:
        """The segments that are kept; each is as large as another."""
        return [
            ev.SegmentSize(serial, self.batches[start].position, 1)
            for serial, start in enumerate(self.starts, 1)
            if start >= self.first and start < len(self.batches)
        ]

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
            items.append(_header(batch) if read.headers else batch)
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


class ListPort:
    """Performs the steps of a commit on a list."""

    def __init__(self, node: JournalNode) -> None:
        self._node, self._world, self._log = node, node.world, node.world.log
        self.performers: dict[type, Callable[[Any], Any]] = {
            je.Reserve: self._reserve,
            je.LookForSpace: lambda _: ev.SpaceFound(not self._world.disk_full, True),
            je.WriteGroup: self._write,
            e.Sync: self._sync,
            je.KeepFrom: lambda _: None,
            je.MeasureSegments: self._measure,
            je.Unlink: self._unlink,
        }

    def _reserve(self, _effect: je.Reserve) -> ev.Reserved:
        world = self._world
        process = 0 if world.disk_full > 1 else world.rng.choice((0, 1_200, 2_500))
        return ev.Reserved(not world.disk_full, True, process)

    def _write(self, effect: je.WriteGroup) -> ev.Written:
        self._log.write(effect.batches)
        return ev.Written(self._log.serial)

    def _sync(self, effect: e.Sync) -> Synced | None:
        if self._world.rng.random() >= self._world.slow_sync:
            self._world.judge.durable(self._log.sync())
            return Synced(effect.position)

        def ended() -> None:
            if self._node.alive:
                self._world.judge.durable(self._log.sync())
                self._node.done.put(Synced(effect.position))

        self._world.at.after(self._world.rng.choice(SYNC_MS), ended)
        return None

    def _measure(self, effect: je.MeasureSegments) -> ev.SegmentsMeasured:
        return ev.SegmentsMeasured(effect.rid, effect.ask, self._log.sizes())

    def _unlink(self, effect: je.Unlink) -> ev.Unlinked:
        first = self._log.starts[effect.through]
        self._world.judge.removing(self._log.batches[first].position)
        self._log.first = first
        self._world.faults.append("log removed")
        return ev.Unlinked(effect.through, 0)


class NodeInbox(Inbox):
    """node: knows when the queues process was heard to say what it holds."""

    node: JournalNode

    def events(self, ready: Ready, limit: Limit) -> Iterator[ev.Requested]:
        for event in super().events(ready, limit):
            yield event
            self.node.heard(event)


class WorldClock:
    """Time as the journal sees it."""

    def __init__(self, world: World) -> None:
        self.wall_ns = world.wall_ns
        self._at = world.at

    def mono_ms(self) -> int:
        return self._at.now_ms


class JournalNode(SimJournal):
    """One life of the journal process."""

    def __init__(self, world: World) -> None:
        self.world, self.log = world, world.log
        self.alive = True
        self._holds_ms = 0
        fold, log = self.folded(), world.log
        log_time = max((batch.log_time for batch in log.batches[-1:]), default=0)
        settings = JournalSettings(INSTANCE, next(world.incarnations))
        end = LogEnd(1, log.next_position, log_time, log.oldest, log.serial, fold.state_serial)
        core = JournalCore(settings, RetentionSettings(READERS, 1 << 40), fold.sessions, end)
        super().__init__(core, ListPort(self), WorldClock(world))
        self.listener = world.net.bind(JOURNAL, self._receive)
        self.watermarks = WatermarksPublisher(
            world.net, WATERMARKS_AT, lambda: self.done.put(ev.Subscribed())
        )
        self.hear(LISTENER, i.Hello("ingest", 1))
        self.hear(ADMIN, i.Hello("admin", 1))
        known = core.commit.sessions.open(PUBLISHER, "", world.wall_ns())
        assert known is not None
        self._publisher, self._ordinal = known, 1
        self._waiting: list[tuple[list[str], list[bytes], Columns | None]] = []
        world.at.after(world.rng.randint(0, TURN_MS), self._next_turn)

    def folded(self) -> LogFold:
        """What the log says of everything."""
        fold, log = LogFold(INSTANCE), self.log
        fold.sessions.origins.meet([(1, 1)])
        for index, batch in enumerate(log.batches):
            fold(batch, log.serial_of(index))
        return fold

    def plant_core(self, core: JournalCore) -> None:
        """Some units are refused for good, for a reason that their sender cannot foresee. It lies
        in the unit alone: one that comes again is judged as it was before, by the next journal
        too."""
        units, rng, unfit = core.commit._units, self.world.rng, self.world.unfit
        place = units.place

        def refusing(ordinal: int, unit: Any, *, fits: bool) -> i.ReceiptItem:
            what = tuple(part.crc for part in unit.parts)
            if what not in unfit:
                unfit[what] = rng.random() < self.world.refusals
            if unfit[what]:
                return i.ReceiptItem(ordinal, 0, 0, 0, "too_large", "there is no reason")
            return place(ordinal, unit, fits=fits)

        units.place = refusing  # type: ignore[method-assign]

    def inbox_of(self) -> NodeInbox:
        inbox = NodeInbox()
        inbox.node = self
        return inbox

    def performers(self) -> dict[type, Callable[[Any], Any]]:
        return {**super().performers(), je.LocatePoint: self._locate}

    # -- what arrives -------------------------------------------------------------------------

    def _receive(self, rid: bytes, frame: tuple[bytes, list[bytes]]) -> None:
        self.inbox.put(ev.Incoming(rid, codec.TO_JOURNAL.decode(frame[0]), list(frame[1])))

    def heard(self, event: ev.Requested) -> None:
        """The core knows it now."""
        commit = self.core.commit
        for rid, message, _ in event.messages:
            mine = getattr(message, "incarnation", 0) == commit.settings.incarnation
            if isinstance(message, i.Holds) and mine and commit.process_of(rid):
                self._holds_ms = self.world.at.now_ms

    def publish(self, topics: list[str], payloads: list[bytes], columns: Columns | None) -> None:
        """A batch of messages; `columns.index` if there are several topics."""
        self._waiting.append((topics, payloads, columns))

    def _take_published(self) -> None:
        """What is numbered goes into the next group: nothing waits, and it is not refused."""
        core = self.core
        if self.world.disk_full or core.commit.backlog or core._group is not None:
            return
        sequence = self._publisher.high + 1
        waiting, self._waiting = self._waiting, []
        for topics, payloads, columns in waiting:
            body = msgspec.msgpack.encode(payloads)
            entry = i.Entry(
                self._publisher.id, self._publisher.session, sequence, len(payloads), sequence - 1,
                crc32c(body), None, topics, None, columns,
            )  # fmt: skip
            incarnation, ordinal = core.commit.settings.incarnation, self._ordinal
            self.hear(LISTENER, i.Append(incarnation, ordinal, ordinal - 1, [entry]), [body])
            self._ordinal += 1
            sequence += len(payloads)

    # -- turns --------------------------------------------------------------------------------

    def _next_turn(self) -> None:
        if not self.alive:
            return
        rng = self.world.rng
        draw(self.plan, rng)
        self._take_published()
        wait_ms = self.turn()
        busy = wait_ms == 0 or bool(self._waiting)
        self.world.at.after(rng.choice((0, TURN_MS)) if busy else TURN_MS, self._next_turn)

    def raise_log_start(self) -> None:
        """The admin asks that the oldest segment goes, as soon as that is safe to judge."""
        # sent before a new queue was run, it knows nothing of it
        stale = self._holds_ms <= self.world.judge.begun_ms + UNDER_WAY_MS
        if stale or self.core.retention.log_start.going or not self.log.sizes():
            return
        serial, before = self.log.sizes()[0].serial, self.core.commit.log_start
        self.hear(ADMIN, i.Remove(1, self.core.commit.settings.incarnation, serial))
        if self.core.commit.log_start > before:
            self.world.judge.raised(self.core.commit.log_start)

    # -- sending ------------------------------------------------------------------------------

    def _locate(self, effect: je.LocatePoint) -> Gone | None:
        if self.world.rng.random() < self.world.receipt_loss:
            return None
        located = self.log.locate(effect.ask, effect.where.persisted)
        return self._send(self.listener, effect.rid, located)

    def answer(self, effect: e.Answer) -> Gone | None:
        if effect.rid in (LISTENER, ADMIN):
            return None
        return self._send(self.listener, effect.rid, effect.message)

    def publish_all(self, effect: je.PublishWatermarks) -> None:
        for rid in self.watermarks.readers(effect):
            self._send(self.watermarks.listener, rid, effect.message)

    def _send(self, listener: Listener, rid: bytes, message: Any) -> Gone | None:
        lossy = isinstance(message, i.JournalReceipt | i.Watermarks)
        if lossy and self.world.rng.random() < self.world.receipt_loss:
            return None
        sent = self.world.net.answer(listener, rid, codec.encode(message))
        return None if sent else Gone(rid)

    def die(self) -> None:
        self.alive = False
        self.world.net.die(self.listener)
        self.world.net.die(self.watermarks.listener)
        self.world.judge.durable(self.log.crash())


def _header(batch: Batch) -> Batch:
    """It without its body."""
    return msgspec.structs.replace(batch, body=b"")
