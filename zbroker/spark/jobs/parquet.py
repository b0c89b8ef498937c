"""Writes one unit of an export as Parquet, a file for each date and topic in it.

    <to>/_temporary/<unit>-<token>/...           while it is written
    <to>/date=2026-11-22/topic=orders/<log>-<unit>.parquet
    <to>/_done/<unit>.json                       once all files of the unit are durable

Readers of Parquet pass over names that begin with `_`. Done again, a unit gives the same files.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zbroker.errors import ClientError
from zbroker.spark.jobs.units import ExportUnit, FinishedUnit
from zbroker.spark.ranges import LogRange
from zbroker.spark.replay import replay_arrow

TEMPORARY: Final = "_temporary"
DONE: Final = "_done"
COLUMNS: Final = (
    "topic", "bookmark", "publisher", "sequence", "position", "timestamp", "key", "payload",
)  # fmt: skip
#: as Spark escapes names of partitions; it reads each %XX as one character, so only ASCII is
_ESCAPED: Final = {
    ord(char): f"%{ord(char):02X}" for char in [*map(chr, range(1, 32)), *"\"#%'*/:=?\\{[]^\x7f"]
}
_NAME_MAX_BYTES: Final = 255  # of one name in a file system
_DAY_US: Final = 86_400_000_000
_EPOCH: Final = date(1970, 1, 1)

Group = tuple[int, str]  # days since 1970 UTC, topic


class Task(NamedTuple):
    """A unit, and the ranges that it is read from."""

    to: str
    unit: ExportUnit
    ranges: list[LogRange]


def write_unit(task: Task) -> FinishedUnit:
    """In an executor; the unit is there when this returns. Raises: ZBrokerError, OSError."""
    to, unit = Path(task.to), task.unit
    scratch = to / TEMPORARY / f"{unit.name}-{secrets.token_hex(4)}"
    scratch.mkdir(parents=True)
    try:
        groups = _gathered(task.ranges)
        log = f"{task.ranges[0].instance:016x}-{task.ranges[0].generation}"
        for number, (group, batches) in enumerate(groups.items()):
            _write(scratch / str(number), batches)
            _publish(scratch / str(number), to / folder(group) / f"{log}-{unit.name}.parquet")
        return _finish(to, unit, groups)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _gathered(ranges: Iterable[LogRange]) -> dict[Group, list[pa.RecordBatch]]:
    groups: dict[Group, list[pa.RecordBatch]] = defaultdict(list)
    for part in ranges:
        for batch in replay_arrow(part, COLUMNS):
            for group, rows in split(batch):
                groups[group].append(rows)
    return groups


def split(batch: pa.RecordBatch) -> Iterator[tuple[Group, pa.RecordBatch]]:
    """Its rows by date and topic, in their order, without the topic, which the folder tells."""
    if not batch.num_rows:
        return
    topics = batch.column(0).dictionary_encode()
    days = batch.column("timestamp").cast(pa.int64()).to_numpy() // _DAY_US
    names, rows = topics.dictionary.to_pylist(), batch.select(COLUMNS[1:])
    keys = days * len(names) + topics.indices.to_numpy()
    if (keys != keys[0]).any():
        order = np.argsort(keys, kind="stable")
        keys, rows = keys[order], rows.take(pa.array(order))
    starts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(keys)]
    for first, end in pairwise(starts):
        day, code = divmod(int(keys[first]), len(names))
        yield (day, names[code]), rows.slice(first, end - first)


def folder(group: Group) -> Path:
    """Where files of this date and topic go. Raises: ClientError bad_topic."""
    topic = f"topic={group[1].translate(_ESCAPED)}"
    if len(os.fsencode(topic)) > _NAME_MAX_BYTES:
        text = f"the topic {group[1][:40]!r}... is too long for the name of a directory"
        raise ClientError("bad_topic", text, "leave it out with --regex")
    return Path(f"date={_EPOCH + timedelta(days=group[0])}") / topic


def _write(path: Path, batches: list[pa.RecordBatch]) -> None:
    # where hardly any value comes twice, a dictionary takes time and room
    table = pa.Table.from_batches(batches)
    pq.write_table(table, path, compression="zstd", use_dictionary=["publisher"])
    sync(path)


def _publish(written: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    written.replace(path)
    for directory in (path.parent, path.parent.parent, path.parent.parent.parent):
        sync(directory)


def _finish(to: Path, unit: ExportUnit, groups: dict[Group, list[pa.RecordBatch]]) -> FinishedUnit:
    batches = [batch for some in groups.values() for batch in some]
    sizes = (pc.sum(pc.binary_length(batch.column("payload"))).as_py() or 0 for batch in batches)
    messages = sum(batch.num_rows for batch in batches)
    done = FinishedUnit(unit.first, unit.end, messages, sum(sizes), len(groups))
    write_whole(to / DONE / f"{unit.name}.json", msgspec.json.encode(done))
    return done


def write_whole(path: Path, data: bytes) -> None:
    """All of it or nothing, durable when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    scratch.write_bytes(data)
    sync(scratch)
    scratch.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Makes a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
