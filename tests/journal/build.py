"""Small histories for tests of the journal: batches, a simulated log, what is read back."""

from __future__ import annotations

import random

from tests.sim.disk import SimDisk
from zbroker.checksums import crc32c
from zbroker.log.disk import Disk
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Gap, Log
from zbroker.log.recovery import Recovered, recover
from zbroker.log.writer import Writer
from zbroker.replication.records import record_of
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


def sent(batch: Batch, after: int, after_crc: int | None = None) -> tuple[Record, bytes]:
    """A batch of the log as it goes to a peer, and its body."""
    record, body = record_of(batch, after, after_crc)
    return record, bytes(body)
