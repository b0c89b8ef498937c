"""Small histories for tests of the journal: batches, a simulated log, what is read back."""

from __future__ import annotations

import random
from array import array

from msgspec.structs import replace

from tests.sim.disk import SimDisk
from zbroker.checksums import crc32c
from zbroker.log import references
from zbroker.log.disk import Disk
from zbroker.log.format import COLUMN_ORIGIN_TIME, FLAG_LATE, FLAG_SHOWS, KIND_PUBLISH, Batch
from zbroker.log.reader import Gap, Log
from zbroker.log.recovery import Recovered, recover
from zbroker.log.writer import Writer
from zbroker.wire.internal import Record

INSTANCE = 0xABCD
DRAWN = 1_700_000_000 - 1_577_836_800  # the generation that a start draws: seconds since 2020
SEGMENT_BYTES = 24 * 1024  # room for sixteen small groups


def publish(position: int, body: bytes, count: int = 1, sequence: int = 0) -> Batch:
    """A publish batch; its log time is its position in microseconds."""
    sequence = sequence or position
    return Batch(
        KIND_PUBLISH, position, 77, 5, sequence, sequence - 1, count, position * 1_000,
        ["orders"], body, crc32c(body), len(body),
    )  # fmt: skip


class Clock:
    """A clock that stands still."""

    def wall_ns(self) -> int:
        return 1_700_000_000_000_000_000

    def mono_ms(self) -> int:
        return 0


def start(disk: Disk, **options: object) -> Recovered:
    """`recover` with small segments and known salts."""
    salts = random.Random(repr(sorted(disk.list())))
    given: dict[str, object] = {
        "segment_bytes": SEGMENT_BYTES,
        "clock": Clock(),
        "salt": lambda: salts.getrandbits(64),
        **options,
    }
    return recover(disk, INSTANCE, **given)  # type: ignore[arg-type]


def writer(
    disk: Disk, recovered: Recovered, seed: int = 0, segment_bytes: int = SEGMENT_BYTES
) -> Writer:
    """A Writer with small segments and known salts."""
    salts = random.Random(seed)
    return Writer(
        disk,
        recovered.tail,
        segment_bytes=segment_bytes,
        clock=Clock(),
        salt=lambda: salts.getrandbits(64),
    )


def append(to: Writer, *bodies: bytes, sync: bool = True) -> list[Batch]:
    """One group of one-message batches."""
    batches = [publish(to.position + index, body) for index, body in enumerate(bodies)]
    to.write(batches, batches[-1].log_time)
    if sync:
        to.sync()
    return batches


def history(
    groups: int, batches: int = 2, size: int = 300
) -> tuple[SimDisk, Writer, list[list[Batch]]]:
    """A log of synced groups on a simulated disk; a body says its group and its place in it."""
    disk = SimDisk(random.Random(1))
    disk.lock()
    to = writer(disk, start(disk))
    made = []
    for group in range(groups):
        bodies = [f"{group}.{index};".encode() * (size // 4) for index in range(batches)]
        made.append(append(to, *bodies))
    disk.crash()
    return disk, to, made


def read_all(disk: Disk, limit: int) -> list[Batch | Gap]:
    """Everything below `limit`."""
    log = Log(disk=disk)
    cursor, found = log.seek(log.first_position), []
    while cursor.position < limit:
        items, cursor = log.read(cursor, limit, 4096)
        assert items, "the log must go on up to the limit"
        found += items
    return found


def positions(items: list[Batch | Gap]) -> list[int]:
    """The positions of the batches among `items`."""
    return [item.position for item in items if isinstance(item, Batch)]


def gaps(items: list[Batch | Gap]) -> list[tuple[int, int]]:
    """The bounds of the gaps among `items`."""
    return [(item.first, item.end) for item in items if isinstance(item, Gap)]


def record_of(batch: Batch, after: int, after_crc: int | None = None) -> Record:
    """A batch of the log as it goes to a peer, with the times that it got at its origin."""
    columns, log_time = batch.columns, batch.log_time
    extra = [item for item in batch.extra if item[0] != COLUMN_ORIGIN_TIME]
    original = next((data for tag, data in batch.extra if tag == COLUMN_ORIGIN_TIME), b"")
    if original:
        times = array("q", original)
        log_time = times[-1]
        if columns is not None and columns.time is not None:
            columns = replace(columns, time=original)
    return Record(
        batch.kind, batch.origin_instance, batch.origin_generation, batch.origin_position, after,
        log_time, batch.publisher, batch.session, batch.sequence, batch.prev, batch.count,
        batch.skip, batch.cut, batch.flags & ~FLAG_LATE, batch.body_crc, batch.topics, columns,
        extra, after_crc,
    )  # fmt: skip


def sent(batch: Batch, after: int, after_crc: int | None = None) -> tuple[Record, bytes]:
    """The same with its body; a commit names its parts by identity."""
    record, body = record_of(batch, after, after_crc), bytes(batch.body)
    commit = references.decode(body) if batch.flags & FLAG_SHOWS else None
    if commit is not None:
        body = references.encode(references.by_identity(commit, batch.origin))
        record.crc = crc32c(body)
    return record, body
