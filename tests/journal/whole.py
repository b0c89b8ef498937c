"""A whole journal on a simulated disk: fold, recovery, core and writer, with small segments."""

from __future__ import annotations

import random

import msgspec
from google_crc32c import value as crc32c

from tests.journal import build
from tests.sim.disk import SimDisk
from zbroker.ids import publisher_id
from zbroker.journal import snapshot
from zbroker.journal.core import JournalCore, Send, Settings
from zbroker.journal.fold import Fold
from zbroker.journal.format import KIND_STATE, Batch
from zbroker.journal.reader import Gap, Log
from zbroker.journal.recover import Recovered
from zbroker.journal.segments import segment_name
from zbroker.journal.sessions import Sessions
from zbroker.wire import internal as m
from zbroker.wire.record import Record

DOOR, LINK, MINE, WALL = b"\0door", b"\0link", 77, 1_000


class Whole:
    """One instance; `restart` begins its next life."""

    def __init__(self) -> None:
        self.disk = SimDisk(random.Random(1))
        self.ordinal = 1
        self.gone: list[Batch] = []  # removed
        self._start()

    def _start(self) -> None:
        self.disk.lock()
        self.fold = Fold(build.INSTANCE)
        self.recovered: Recovered = build.start(
            self.disk, on_batch=self.fold, begin=self.fold.begin
        )
        found = self.recovered
        self.core = JournalCore(
            Settings(build.INSTANCE, MINE), self.fold.sessions, found.generation,
            found.next_position, found.last_log_time,
        )  # fmt: skip
        self.writer = build.writer(self.disk, found)
        self.core.serial, self.core.state_serial = self.writer.serial, self.fold.state_serial
        self.core.receive(DOOR, m.Hello("ingest", 1), [])
        self.core.receive(LINK, m.Hello("replication", 1), [])
        self.log = Log(disk=self.disk)

    def restart(self) -> None:
        self.disk.crash()
        self._start()

    def commit(self) -> list[Send]:
        """Everything that waits, group by group."""
        sends: list[Send] = []
        while self.core.backlog:
            group = self.core.group(WALL)
            if group is not None:
                self.writer.write(group.batches, group.log_time)
                self.core.serial = self.writer.serial
                self.core.written_to(group.end_position)
                self.writer.sync()
            sends += self.core.synced(self.writer.synced)
        self.core.check()
        return sends

    def publish(self, name: str, seq: int, count: int = 1, size: int = 10) -> None:
        """A batch of a new session of `name`."""
        self.core.receive(DOOR, m.Open(1, MINE, name, "alice"), [])
        self.commit()
        known = self.core.sessions.get(publisher_id(name))
        assert known is not None
        body = msgspec.msgpack.encode([b"x" * size] * count)
        entry = m.Entry(known.id, known.session, seq, count, None, crc32c(body), None, ["t"])
        self.core.receive(DOOR, m.Append(MINE, self.ordinal, 0, [entry]), [body])
        self.ordinal += 1
        self.commit()

    def give(self, record: Record, body: bytes) -> None:
        """A record of a peer."""
        self.core.receive(LINK, m.Replicate(MINE, self.ordinal, 0, [record]), [body])
        self.ordinal += 1
        self.commit()

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
        self.core.want_state()
        self.commit()

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
    origins = [msgspec.structs.replace(row, begun=0) for row in sessions.origins.rows()]
    return (
        msgspec.to_builtins(rows),
        sorted(msgspec.to_builtins(origins)),
        msgspec.to_builtins(list(sessions.origins.tie_rows())),
    )


def cut(sessions: Sessions, through: int, part_bytes: int) -> list[bytes]:
    """A whole snapshot."""
    cutter = snapshot.Cutter(snapshot.folds(sessions), through, part_bytes)
    bodies = []
    while not cutter.done:
        bodies.append(cutter.cut())
    return bodies
