"""How far an export is: units that were planned, those that are done, where to go on. Pure.

    planned --its files are there--> done --counted in the progress--> gone from the list

A unit is planned before anything of it is written, and keeps its bounds for ever: so doing it
again writes the same files under the same names.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.spark.arrow import grouped
from zbroker.spark.ranges import LogRange
from zbroker.spark.replay import replay_arrow

VERSION: Final = 1


class ExportUnit(NamedTuple):
    """Positions [first, end)."""

    first: int
    end: int

    @property
    def name(self) -> str:
        """Sorts as the log does."""
        return f"{self.first:020d}-{self.end:020d}"


class FinishedUnit(Struct, frozen=True):
    """What became of a unit."""

    first: int
    end: int
    messages: int
    payload_bytes: int
    files: int


class Choice(Struct, frozen=True):
    """What an export takes of the log. It never changes, else parts of it would not fit."""

    instance: str
    generation: int
    since: str
    topic: str | None
    regex: bool
    filter: str
    filter_type: str


class ExportProgress(Struct, frozen=True):
    """`_progress.json`: everything from `begin` to `end` is exported but the `units`."""

    choice: Choice
    begin: int
    end: int
    units: list[ExportUnit] = []
    messages: int = 0
    payload_bytes: int = 0
    files: int = 0
    version: int = VERSION

    @property
    def origin(self) -> Origin:
        """Whose positions these are."""
        return Origin(int(self.choice.instance, 16), self.choice.generation)

    @property
    def exported(self) -> int:
        """Everything before this position is exported."""
        return min((unit.first for unit in self.units), default=self.end)


def with_units(progress: ExportProgress, units: Iterable[ExportUnit]) -> ExportProgress:
    """The same with more of the log planned, which begins where it ended."""
    more = [unit for unit in units if unit.first < unit.end]
    end = more[-1].end if more else progress.end
    return replace(progress, units=[*progress.units, *more], end=end)


def with_done(progress: ExportProgress, done: Iterable[FinishedUnit]) -> ExportProgress:
    """The same once these are done; units that are not planned (any more) are counted already."""
    counted = {ExportUnit(one.first, one.end): one for one in done}
    mine = [counted[unit] for unit in progress.units if unit in counted]
    return replace(
        progress,
        units=[unit for unit in progress.units if unit not in counted],
        messages=progress.messages + sum(one.messages for one in mine),
        payload_bytes=progress.payload_bytes + sum(one.payload_bytes for one in mine),
        files=progress.files + sum(one.files for one in mine),
    )


def check_same(known: Choice, wanted: Choice, *, since_given: bool) -> None:
    """Raises: ClientError bad_field, unless this goes on with what was begun."""
    for name in wanted.__struct_fields__:
        here, asked = getattr(known, name), getattr(wanted, name)
        if here != asked and (name != "since" or since_given):
            text = f"this directory has an export with {name} {here!r}, not {asked!r}"
            raise ClientError("bad_field", text, "choose the same again, or another directory")


def encode(progress: ExportProgress) -> bytes:
    """As it is kept."""
    return msgspec.json.format(msgspec.json.encode(progress), indent=2)


def decode(data: bytes) -> ExportProgress:
    """Raises: ClientError bad_field, for what is none."""
    try:
        found = msgspec.json.decode(data, type=ExportProgress)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ClientError("bad_field", f"_progress.json cannot be read: {error}") from None
    if found.version != VERSION:
        text = f"_progress.json has version {found.version}, this program knows {VERSION}"
        raise ClientError("bad_field", text)
    return found


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
    for day, topic, rows in grouped(batch, _DAY_US):
        yield (day, topic), rows.select(COLUMNS[1:])


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
