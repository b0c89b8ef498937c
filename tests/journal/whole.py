"""A whole journal on a simulated disk: fold, recovery, core and writer, with small segments."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from tests.journal import build
from tests.sim.disk import SimDisk
from tests.sim.journal_process import JournalProcess, Start
from zbroker.checksums import crc32c
from zbroker.engine.contract import Now
from zbroker.engine.effects import Answer
from zbroker.ids import Origin, publisher_id
from zbroker.journal import snapshot
from zbroker.journal.core import JournalCore, JournalSettings
from zbroker.journal.events import Reserved
from zbroker.journal.group_builder import Body
from zbroker.journal.sessions import Sessions
from zbroker.limits import U63_MAX
from zbroker.log import records
from zbroker.log import records as q
from zbroker.log.format import KIND_POINT, KIND_PUBLISH, KIND_QUEUE, KIND_STATE, KIND_WIRING, Batch
from zbroker.log.reader import Gap, Log
from zbroker.log.segments import segment_name
from zbroker.wire import internal as m
from zbroker.wire.internal import Record
from zbroker.wire.stages import AbortStages, CommitStages, StagedBy, StagesDone
from zbroker.wire.units import AskNamed, CommitUnits, NamedRows, UnitPart

LISTENER, LINK, PROCESS, MINE, WALL = b"\0door", b"\0link", b"\0room", 77, 1_000
Sent = tuple[UnitPart, bytes]


class _Process(JournalProcess):
    """Time stands still, and a snapshot is written only when a test wants one."""

    def plant_core(self, core: JournalCore) -> None:
        snapshots = core.commit._snapshots
        self.want_state, snapshots._wanted = snapshots.want, False
        snapshots.want = lambda: None  # type: ignore[method-assign]

    def now(self) -> Now:
        return Now(0, WALL)


class Whole:
    """One instance; `restart` begins its next life."""

    def __init__(self, instance: int = build.INSTANCE) -> None:
        self.instance = instance
        self.disk = SimDisk(random.Random(1))
        self.ordinal = 1
        self.gone: list[Batch] = []  # removed
        self._start()

    def _start(self) -> None:
        salts = random.Random(repr(sorted(self.disk.list())))
        start = Start(build.Clock(), build.SEGMENT_BYTES, lambda: salts.getrandbits(64))
        self.process = _Process(self.disk, JournalSettings(self.instance, MINE), start)
        self.fold, self.recovered = self.process.fold, self.process.recovered
        self.core, self.writer = self.process.core.commit, self.process.writer
        for rid, name in ((LISTENER, "ingest"), (LINK, "replication"), (PROCESS, "queues")):
            self.process.hear(rid, m.Hello(name, 1))
        self.process.hear(LINK, m.OpenLink(1, MINE, 8, 1, [".*"], [".*"]))
        self.process.turn()
        self.process.taken()
        self.log = Log(disk=self.disk)

    def restart(self) -> None:
        self.disk.crash()
        self._start()

    def hear(self, rid: bytes, message: m.InternalMessage, bodies: Sequence[Body] = ()) -> None:
        """Another process says something."""
        self.process.hear(rid, message, bodies)

    def commit(self) -> list[Answer]:
        """Everything that waits, group by group; what was answered."""
        return self.process.commit()

    def publish(self, name: str, seq: int, count: int = 1, size: int = 10) -> None:
        """A batch of a new session of `name`."""
        self.hear(LISTENER, m.Open(1, MINE, name, "alice"), [])
        self.commit()
        known = self.core.sessions.get(publisher_id(name))
        assert known is not None
        body = msgspec.msgpack.encode([b"x" * size] * count)
        entry = m.Entry(known.id, known.session, seq, count, None, crc32c(body), None, ["t"])
        self.hear(LISTENER, m.Append(MINE, self.ordinal, 0, [entry]), [body])
        self.ordinal += 1
        self.commit()

    def stage(
        self, token: str, *payloads: bytes, topic: str = "t", name: str = "task",
        owner: str = "alice",
    ) -> None:  # fmt: skip
        """A batch of a publisher that goes on where it was, staged."""
        known = self.core.sessions.get(publisher_id(name))
        if known is None or not known.session:
            self.hear(LISTENER, m.Open(1, MINE, name, owner), [])
            self.commit()
            known = self.core.sessions.get(publisher_id(name))
        assert known is not None
        body = msgspec.msgpack.encode(list(payloads))
        entry = m.Entry(
            known.id, known.session, known.high + 1, len(payloads), known.high, crc32c(body), None,
            [topic], stage=token,
        )  # fmt: skip
        self.hear(LISTENER, m.Append(MINE, self.ordinal, 0, [entry]), [body])
        self.ordinal += 1
        self.commit()

    def commit_stages(self, app: str, batch: int, **stages: int) -> StagesDone:
        """What becomes of a commit of these tokens, with so many messages each."""
        return self.commit_of("alice", app, batch, **stages)

    def commit_of(self, owner: str, app: str, batch: int, **stages: int) -> StagesDone:
        """The same for another principal."""
        wanted = [StagedBy(token, messages) for token, messages in stages.items()]
        self.hear(LISTENER, CommitStages(MINE, 1, app, batch, wanted, owner), [])
        [answer] = [s.message for s in self.commit() if isinstance(s.message, StagesDone)]
        return answer

    def abort_stages(self, *tokens: str, owner: str = "alice") -> StagesDone:
        """What becomes of an abort."""
        self.hear(LISTENER, AbortStages(MINE, 5, list(tokens), owner), [])
        [answer] = [s.message for s in self.commit() if isinstance(s.message, StagesDone)]
        return answer

    def give(self, record: Record, body: bytes) -> None:
        """A record of a peer, which is the next one that it has of its origin; it is taken."""
        assert not (item := self.offer(record, body)).code, item

    def offer(self, record: Record, body: bytes) -> m.ReceiptItem:
        """The same; what becomes of it."""
        here = self.core.sessions.origins.high(Origin(record.instance, record.generation))
        if record.position > here:
            record.after = here
        self.hear(LINK, m.Replicate(MINE, self.ordinal, 0, [record], 1), [body])
        self.ordinal += 1
        [item] = [
            item
            for send in self.commit()
            if send.rid == LINK and isinstance(send.message, m.JournalReceipt)
            for item in send.message.items
            if item.ordinal == self.ordinal - 1
        ]
        return item

    def units(self, *units: list[Sent]) -> list[m.ReceiptItem]:
        """What the queues process commits at once; what became of it."""
        sent = [[part for part, _ in unit] for unit in units]
        bodies: list[Body] = [body for unit in units for _, body in unit]
        self.hear(PROCESS, CommitUnits(MINE, self.ordinal, self.ordinal - 1, sent), bodies)
        self.ordinal += len(units)
        return [
            item
            for send in self.commit()
            if send.rid == PROCESS and isinstance(send.message, m.JournalReceipt)
            for item in send.message.items
        ]

    def named(self) -> NamedRows:
        """What the queues process is informed of names."""
        self.hear(PROCESS, AskNamed(1, MINE), [])
        [answer] = [s.message for s in self.commit() if isinstance(s.message, NamedRows)]
        return answer

    def roll_over(self) -> None:
        """Fills the open segment, so that the next group begins another one."""
        serial = self.writer.serial
        filler = 1
        while self.writer.serial == serial:
            known = self.core.sessions.get(publisher_id("filler"))
            filler = known.high + 1 if known is not None else 1
            self.publish("filler", filler, size=6_000)

    def state(self) -> None:
        """A snapshot, written now."""
        self.process.want_state()
        self.commit()

    def space(self, *, accepting: bool, state_fits: bool = True, left_bytes: int = U63_MAX) -> None:
        """What the disk has for groups from now on."""
        self.process.port.space_is = Reserved(accepting, state_fits, left_bytes)

    def remove_oldest(self) -> None:
        oldest, after = self.log.starts[0].serial, self.log.starts[1].position
        self.gone += [batch for batch in self.batches() if batch.position < after]
        self.writer.keep_from(oldest + 1)
        self.disk.unlink(segment_name(oldest))
        self.disk.sync_dir()
        self.log.refresh()

    def batches(self) -> list[Batch]:
        items = build.read_all(self.disk, self.core.persisted)
        return [item for item in items if not isinstance(item, Gap)]

    def states(self) -> list[Batch]:
        return [batch for batch in self.batches() if batch.kind == KIND_STATE]

    def damage(self, batch: Batch) -> None:
        """A bit of its body rots; by the serial of the segment that holds it."""
        serial = max(s.serial for s in self.log.starts if s.position <= batch.position)
        self.disk.flip(segment_name(serial), batch.offset + batch.header_length)


def table(sessions: Sessions) -> tuple[object, ...]:
    """All that a snapshot tells."""
    rows = sorted(sessions.rows(sessions.ids()), key=lambda row: row.id)
    origins = [
        msgspec.structs.replace(row, begun=0, stored_begun=0) for row in sessions.origins.rows()
    ]
    return (
        msgspec.to_builtins(rows),
        sorted(msgspec.to_builtins(origins)),
        msgspec.to_builtins(sessions.origins.ties),
        msgspec.to_builtins(list(sessions.named.wiring.rows())),
        msgspec.to_builtins(list(sessions.named.points.rows())),
        msgspec.to_builtins(list(sessions.stages.rows())),
        msgspec.to_builtins(list(sessions.stages.app_rows())),
        msgspec.to_builtins(list(sessions.stages.link_rows())),
    )


def cut(sessions: Sessions, through: int, part_bytes: int) -> list[bytes]:
    """A whole snapshot."""
    cutter = snapshot.Cutter(snapshot.folds(sessions), through, part_bytes)
    bodies = []
    while not cutter.done:
        bodies.append(cutter.cut())
    return bodies


# -- parts of units, each with its body -----------------------------------------------------------


def control(kind: int, body: bytes) -> Sent:
    return UnitPart(kind, crc32c(body)), body


def fact(queue: str = "work", unit: int = 1) -> Sent:
    return control(KIND_QUEUE, q.encode(q.QueueRecord(queue, 1, 5, unit, [q.Horizon(10)])))


def wiring(name: str = "work", life: int = 1) -> Sent:
    return control(KIND_WIRING, q.encode(q.DefinitionRecord(name, life, definition={"topic": "t"})))


def deleted(name: str = "work", life: int = 1) -> Sent:
    return control(KIND_WIRING, q.encode(q.DefinitionRecord(name, life)))


def point(name: str = "end-of-day", vector: str = "", *, removed: bool = False) -> Sent:
    record = records.PointRecord(name, vector, removed=removed)
    return control(KIND_POINT, records.encode(record))


def letters(*payloads: bytes, topic: str = "dead") -> Sent:
    body = msgspec.msgpack.encode(list(payloads))
    return UnitPart(KIND_PUBLISH, crc32c(body), [topic], len(payloads)), body
