"""Makes the data directory of tests/data/v1: one small journal with everything that format 1 has.

    python -m tools.golden tests/data/v1

Salts, clock and contents are fixed. What is in expected.json is what was given to the writer,
not what a reader made of it. Run it only while version 1 is not released, or for a new version into
a new directory: later releases must read these very bytes.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
import sys
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import zstandard

from zbroker.admin.history import History, HistoryEntry
from zbroker.checksums import crc32c
from zbroker.ids import format_bookmark, publisher_id
from zbroker.journal import snapshot
from zbroker.journal.conflicts import encode
from zbroker.journal.fold import LogFold
from zbroker.journal.group_builder import Conflict
from zbroker.log import archive, records
from zbroker.log import format as f
from zbroker.log.disk import RealDisk
from zbroker.log.format import Batch
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Log
from zbroker.log.recovery import recover
from zbroker.log.writer import Writer
from zbroker.wire.messages import Columns

INSTANCE: Final = 0x60_1D_E2_00_00_00_00_01
OTHER: Final = 0x07_E2_00_00_00_00_00_02
SEGMENT_BYTES: Final = 12 * 1024  # 4 KiB of groups; the config allows 1 MiB and more
BEGUN_NS: Final = 1_700_000_000_000_000_000
OLDEST: Final = 2  # the first segment was removed
SEGMENTS: Final = 5
SESSION: Final = 42
ORDERS: Final = publisher_id("orders")
TRADES: Final = publisher_id("trades")


class Clock:
    """It does not move."""

    def wall_ns(self) -> int:
        """Always the same."""
        return BEGUN_NS

    def mono_ms(self) -> int:
        """Always the same."""
        return 0


class Maker:
    """Writes batches; `made` are (serial, batch) of all of them."""

    def __init__(self, journal: Path) -> None:
        salts = random.Random(1)
        self.disk = RealDisk(journal)
        self.disk.lock()
        options: dict[str, Any] = {
            "segment_bytes": SEGMENT_BYTES, "clock": Clock(), "salt": lambda: salts.getrandbits(64)
        }  # fmt: skip
        tail = recover(self.disk, INSTANCE, **options).tail
        self.writer = Writer(self.disk, tail, **options)
        self.fold = LogFold(INSTANCE)
        self.made: list[tuple[int, Batch]] = []
        self.high = {ORDERS: 0, TRADES: 0}

    def put(self, *batches: Batch) -> None:
        """One group; after a roll-over the next one is a state snapshot."""
        serial = self.writer.serial
        self._write(*batches)
        if self.writer.serial != serial:
            cutter = snapshot.Cutter(snapshot.folds(self.fold.sessions), self.writer.position, 600)
            while not cutter.done:
                self._write(control(f.KIND_STATE, cutter.cut()))

    def _write(self, *batches: Batch) -> None:
        position = self.writer.position
        for batch in batches:
            batch.position = position
            if batch.origin_position == 0:
                batch.origin_instance, batch.origin_generation = INSTANCE, 1
                batch.origin_position = position
            batch.log_time = BEGUN_NS + position * 1_000_000
            position = batch.end_position
        self.writer.write(list(batches), batches[-1].log_time)
        self.writer.sync()
        for batch in batches:
            self.made.append((self.writer.serial, batch))
            self.fold(batch, self.writer.serial)

    def publish(
        self, publisher: int, *payloads: str, topic: str = "orders", hole: int = 0
    ) -> Batch:
        """The publisher's next messages."""
        body = msgspec.msgpack.encode([payload.encode() for payload in payloads])
        prev = self.high[publisher] + hole
        self.high[publisher] = prev + len(payloads)
        return Batch(
            f.KIND_PUBLISH, 0, publisher, SESSION, prev + 1, prev, len(payloads), 0, [topic], body,
            crc32c(body), len(body),
        )  # fmt: skip


def control(kind: int, body: bytes, publisher: int = 0) -> Batch:
    """A control record, which takes one position."""
    return Batch(kind, 0, publisher, 0, 0, 0, 1, 0, [], body, crc32c(body), len(body))


def times(count: int) -> bytes:
    """A time column."""
    return array("q", [BEGUN_NS + number for number in range(count)]).tobytes()


def everything(maker: Maker) -> Iterator[list[Batch]]:
    """Groups with everything that the format has."""
    publish = maker.publish
    yield [publish(ORDERS, "one")]
    yield [publish(ORDERS, "two", "three"), publish(TRADES, "price", topic="trades/größe/価格")]
    several = publish(ORDERS, "a", "b", "c")
    several.topics = ["orders", "orders/eu", ""]
    several.columns = Columns(index=array("H", [0, 1, 2]).tobytes(), time=times(3))
    yield [several]
    packed = publish(ORDERS, *["the same again"] * 20)
    packed.body = zstandard.ZstdCompressor(level=3).compress(bytes(packed.body))
    packed.body_crc, packed.body_length = crc32c(packed.body), len(packed.body)
    packed.flags = f.FLAG_ZSTD
    yield [packed]
    overlap = publish(ORDERS, "seen", "new", "newer")
    overlap.skip, overlap.sequence = 1, overlap.sequence + 1
    yield [overlap]
    yield [publish(TRADES, "behind a hole", hole=4)]
    late = publish(TRADES, "late", "later")
    late.sequence, late.prev, late.flags = late.sequence - 5, late.sequence - 6, f.FLAG_LATE
    maker.high[TRADES] -= 2
    yield [late]
    ended = publish(ORDERS, "counts", "does not")
    ended.cut, maker.high[ORDERS] = 1, maker.high[ORDERS] - 1
    yield [ended]
    yield from _from_elsewhere(maker)
    yield [control(f.KIND_POINT, records.encode(records.PointRecord("end-of-day", "")))]
    yield [control(f.KIND_PURGE, records.encode(records.PurgeRecord("work", "")))]
    yield [control(f.KIND_NOOP, b""), control(f.STEP_OVER | 900, b"of a later release")]


def _names() -> Iterator[list[Batch]]:
    """They are in the segment that is removed: after that only the snapshots have them."""
    for name, number in (("orders", ORDERS), ("trades", TRADES)):
        record = records.PublisherRecord(name, f"{name}@example.com")
        yield [control(f.KIND_PUBLISHER, records.encode(record), number)]


def _from_elsewhere(maker: Maker) -> Iterator[list[Batch]]:
    """Columns that are carried along, among them the times at the origin."""
    foreign = maker.publish(TRADES, "from elsewhere", "and another")
    foreign.origin_instance, foreign.origin_generation, foreign.origin_position = OTHER, 3, 500
    foreign.extra = [(f.COLUMN_ORIGIN_TIME, times(2)), (900, b"unknown")]
    yield [foreign]
    tie = control(f.KIND_TIE, b"", ORDERS)
    tie.sequence, tie.prev = 1, 0
    tie.origin_instance, tie.origin_generation, tie.origin_position = OTHER, 3, 502
    yield [tie]


def make(target: Path) -> None:
    """The directory, with expected.json in it."""
    shutil.rmtree(target, ignore_errors=True)
    for name in ("journal", "archive"):
        (target / name).mkdir(parents=True)
    maker = Maker(target / "journal")
    for group in _names():
        maker.put(*group)
    _fill(maker, OLDEST)
    for group in everything(maker):
        maker.put(*group)
    _fill(maker, SEGMENTS)
    maker.writer.keep_from(OLDEST)
    places = SegmentPlaces(maker.disk, RealDisk(target / "archive"))
    _tend(places)
    places.close()
    (target / "instance.json").write_text(json.dumps({"instance": f"{INSTANCE:016x}"}) + "\n")
    expected = {
        **_expected(maker),
        "conflicts": _conflicts(target / "conflicts", maker),
        "actions": _actions(target / "actions"),
    }
    text = json.dumps(expected, indent=1, ensure_ascii=False)
    (target / "expected.json").write_text(text + "\n", encoding="utf-8")


def _fill(maker: Maker, serial: int) -> None:
    """Goes on until that segment is begun."""
    while maker.writer.serial < serial:
        for publisher in (ORDERS, TRADES):
            maker.put(maker.publish(publisher, f"message {maker.writer.position} " + "." * 200))


def _tend(places: SegmentPlaces) -> None:
    """2 is archived, 3 packed, 4 raw, 5 open; 1 was removed."""
    retire: Callable[[int], None] = lambda serial: places.journal.unlink(  # noqa: E731
        f"{serial:010d}.journal"
    )
    for serial in (2, 3, 4):
        archive.summary(Log(places=places), serial, keep=True)
    retire(1)
    list(archive.copy(places, 2))
    retire(2)
    list(archive.pack(places, 3))
    retire(3)


def _expected(maker: Maker) -> dict[str, Any]:
    kept = [(serial, batch) for serial, batch in maker.made if serial >= OLDEST]
    known = (maker.fold.sessions.get(number) for number in (ORDERS, TRADES))
    return {
        "instance": INSTANCE,
        "oldest": OLDEST,
        "first_position": kept[0][1].position,
        "end": maker.writer.position,
        "publishers": [
            {"name": one.name, "principal": one.principal, "high": one.high,
             "session": one.session, "high_position": one.high_position}
            for one in known if one is not None
        ],
        "bookmarks": {
            format_bookmark(batch.publisher, batch.sequence): batch.position
            for _, batch in kept if batch.kind == f.KIND_PUBLISH
        },
        "batches": [row(serial, batch) for serial, batch in kept],
    }  # fmt: skip


def row(serial: int, batch: Batch) -> dict[str, Any]:
    """A batch as JSON has it."""
    columns = batch.columns
    plain = {name: getattr(batch, name) for name in batch.__struct_fields__}
    return plain | {
        "serial": serial,
        "body": bytes(batch.body).hex(),
        "columns": {
            name: value.hex() for name in ("index", "time")
            if columns is not None and (value := getattr(columns, name)) is not None
        },
        "extra": [[tag, data.hex()] for tag, data in batch.extra],
    }  # fmt: skip


def _conflicts(path: Path, maker: Maker) -> list[dict[str, Any]]:
    batch = maker.made[-1][1]
    conflict = Conflict(
        time_ns=BEGUN_NS, publisher=ORDERS, name="orders", session=SESSION, seq=1, count=1,
        crc=crc32c(b"other"), original_position=batch.position, topics=["orders"], body=b"other",
    )  # fmt: skip
    path.write_bytes(encode(conflict) * 2)
    plain = msgspec.structs.asdict(conflict) | {"body": "other"}
    return [plain, plain]


def _actions(path: Path) -> list[dict[str, Any]]:
    history = History(path, logging.getLogger("golden"))
    begun = history.new(
        HistoryEntry(
            0, "20231114T221320Z", "archive", "policy", "older than 1d", [2], result="running"
        )
    )
    ended = msgspec.structs.replace(begun, result="done", bytes=SEGMENT_BYTES, took_s=0.5)
    history.add(ended)
    return [msgspec.to_builtins(ended)]


if __name__ == "__main__":
    make(Path(sys.argv[1]))
