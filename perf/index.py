"""Walking over the headers of a log of small batches, and making the bookmark index from it."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

from perf.harness import Result, Setup, payloads
from zbroker.bookmarks.rebuild import Rebuild, batches_of
from zbroker.checksums import crc32c
from zbroker.limits import MIB
from zbroker.log.disk import RealDisk
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Log
from zbroker.log.recovery import recover
from zbroker.log.writer import Writer

INSTANCE: Final = 0x1D
BATCHES: Final = 1_000_000  # of one message each: the most headers that a log of its size can have
GROUP: Final = 64
PUBLISHERS: Final = 10
SEGMENT_BYTES: Final = 64 * MIB
READ_BYTES: Final = 1 * MIB


def rebuild(setup: Setup) -> list[Result]:
    """The limit is reading the files."""
    place = Path(tempfile.mkdtemp(prefix="index-", dir=setup.directory))
    try:
        end = _fill(place / "journal")
        walk = partial(_walk, place / "journal", end)
        make = partial(_rebuild, place, end)
        return [
            _measure(setup, "header walk", "", place, walk),
            _measure(setup, "index rebuild", ">= 200,000", place, make),
        ]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _measure(setup: Setup, name: str, target: str, place: Path, work: partial[None]) -> Result:
    ours, limit, cpu, size = [], [], [], 0
    for _ in setup.each_round(name):
        begun, used = time.perf_counter(), time.process_time()
        work()
        cpu.append(BATCHES / (time.process_time() - used))
        ours.append(BATCHES / (time.perf_counter() - begun))
        begun = time.perf_counter()
        size = _read(place / "journal")
        limit.append(BATCHES / (time.perf_counter() - begun))
    notes = {
        "batches": BATCHES,
        "log_mb": round(size / 1e6),
        "per_second_of_processor_time": round(statistics.median(cpu)),
    }
    return Result(name, "batches/s", ours, limit, "reading the files", target, notes=notes)


def _fill(directory: Path) -> int:
    """A log of small batches; the position after its last one. Nothing of it is synced."""
    directory.mkdir()
    disk = RealDisk(directory)
    recovered = recover(disk, INSTANCE, segment_bytes=SEGMENT_BYTES)
    writer = Writer(disk, recovered.tail, segment_bytes=SEGMENT_BYTES)
    bodies = [(body, crc32c(body)) for body in payloads(1_000)]
    sequence = 0
    while writer.position <= BATCHES:
        batches = []
        for position in range(writer.position, min(writer.position + GROUP, BATCHES + 1)):
            body, crc = bodies[position % len(bodies)]
            publisher, sequence = position % PUBLISHERS, position // PUBLISHERS + 1
            batches.append(
                Batch(
                    KIND_PUBLISH, position, publisher, 1, sequence, sequence - 1, 1,
                    position * 1_000, ["orders/eu"], body, crc, len(body),
                )
            )  # fmt: skip
        writer.write(batches, batches[-1].log_time)
    writer.sync()
    disk.close()
    return BATCHES + 1


def _walk(directory: Path, end: int) -> None:
    log = Log(directory)
    found = sum(len(items) for items, _ in log.header_lists(log.seek(1), end))
    log.close()
    assert found == BATCHES


def _rebuild(place: Path, end: int) -> None:
    log = Log(place / "journal")
    made = Rebuild(place / "index", INSTANCE, 1, batches_of(log))
    index = made.finish(end)
    assert (made.batches, index.stamp.position) == (BATCHES, end)
    index.close()
    log.close()


def _read(directory: Path) -> int:
    size = 0
    for path in sorted(directory.glob("*.journal")):
        handle = os.open(path, os.O_RDONLY)
        try:
            while data := os.read(handle, READ_BYTES):
                size += len(data)
        finally:
            os.close(handle)
    return size
