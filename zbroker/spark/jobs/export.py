"""The log as Parquet by date and topic, each message once, however often this is run or killed.

    plan units --saved in _progress.json--> write them in parallel --all there--> count them

A run first does what an earlier one left undone, then goes on after it. The directory has to be
seen by the driver and all executors under the same path.

    spark-submit .../zbroker/cli/spark/export.py SOURCE --to DIRECTORY
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from zbroker.client.subscriber.points import since_text
from zbroker.errors import ClientError
from zbroker.ids import Origin
from zbroker.spark.jobs import units
from zbroker.spark.jobs.job_runner import TASK_BYTES, Step, Stretch, collected
from zbroker.spark.jobs.units import (
    Choice,
    ExportProgress,
    ExportUnit,
    FinishedUnit,
    Task,
    write_unit,
    write_whole,
)
from zbroker.spark.log_hold import held
from zbroker.spark.ranges import LogRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PROGRESS: Final = "_progress.json"
LOCK: Final = "_lock"


class ExportReport(NamedTuple):
    """What one run wrote, and how far the export is: everything before `exported` is there."""

    messages: int
    payload_bytes: int
    files: int
    units: int
    exported: int
    total_messages: int
    total_files: int


def export(  # noqa: PLR0913 - a job's arguments
    spark: SparkSession,
    stretch: Stretch,
    to: Path,
    step: Step,
    *,
    since_given: bool = True,
    parts: int = 1,
    unit_bytes: int = TASK_BYTES,
) -> ExportReport:
    """Exports what is not there yet. since_given: else an export that was begun goes on.

    Raises: ZBrokerError, as `plan_ranges` and `replay`; bad_field, if the directory has an export
    of something else, or another one is at work there.
    """
    to = to.absolute()
    with _locked(to):
        shutil.rmtree(to / "_temporary", ignore_errors=True)
        before = _load(to)
        progress = _planned(stretch, before, since_given, parts, unit_bytes)
        if progress is None:
            return ExportReport(0, 0, 0, 0, 0, 0, 0)
        _save(to, progress)
        done = _run(spark, stretch, to, progress, step)
        progress = units.with_done(progress, done)
        _save(to, progress)
    return ExportReport(
        sum(one.messages for one in done), sum(one.payload_bytes for one in done),
        sum(one.files for one in done), len(done), progress.exported, progress.messages,
        progress.files,
    )  # fmt: skip


@contextmanager
def _locked(to: Path) -> Iterator[None]:
    """Raises: ClientError bad_field, while another export is at work there."""
    to.mkdir(parents=True, exist_ok=True)
    with (to / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ClientError("bad_field", f"another export writes to {to}", "wait") from None
        yield


def _load(to: Path) -> ExportProgress | None:
    """The progress as saved, less the units that were finished since then. Raises: ClientError."""
    if not (to / PROGRESS).exists():
        if next(to.glob("date=*"), None) is not None:
            text = f"{to} has Parquet files, but no {PROGRESS}"
            raise ClientError("bad_field", text, "name a directory of its own")
        return None
    progress = units.decode((to / PROGRESS).read_bytes())
    marks = (path.read_bytes() for path in (to / "_done").glob("*.json"))
    done = [msgspec.json.decode(data, type=FinishedUnit) for data in marks]
    return units.with_done(progress, done)


def _save(to: Path, progress: ExportProgress) -> None:
    """Then what it counts as done needs no mark any more."""
    write_whole(to / PROGRESS, units.encode(progress))
    shutil.rmtree(to / "_done", ignore_errors=True)


def _planned(
    stretch: Stretch, known: ExportProgress | None, since_given: bool, parts: int, unit_bytes: int
) -> ExportProgress | None:
    """The progress with units for all that is there now; None if there is nothing."""
    if known is not None:
        ranges = stretch.positions(known.origin, known.end).sized(parts, unit_bytes)
        origin = Origin(ranges[0].instance, ranges[0].generation) if ranges else known.origin
        units.check_same(known.choice, _choice(stretch, origin), since_given=since_given)
    else:
        ranges = stretch.sized(parts, unit_bytes)
        if not ranges:
            return None
        origin = Origin(ranges[0].instance, ranges[0].generation)
        known = ExportProgress(_choice(stretch, origin), ranges[0].first, ranges[0].first)
    return units.with_units(known, [ExportUnit(part.first, part.end) for part in ranges])


def _choice(stretch: Stretch, origin: Origin) -> Choice:
    return Choice(
        f"{origin.instance:016x}", origin.generation, since_text(stretch.since), stretch.topic,
        stretch.regex, stretch.filter, stretch.filter_type,
    )  # fmt: skip


def _run(
    spark: SparkSession, stretch: Stretch, to: Path, progress: ExportProgress, step: Step
) -> list[FinishedUnit]:
    if not progress.units:
        return []
    rest = stretch.positions(progress.origin, progress.exported, progress.end)
    covering = rest.ranges(1)
    tasks = [Task(str(to), unit, clipped(covering, unit)) for unit in progress.units]
    with held(covering):
        return collected(spark, tasks, write_unit, step, "units")


def clipped(ranges: Sequence[LogRange], unit: ExportUnit) -> list[LogRange]:
    """What of `ranges` lies in a unit."""
    return [
        replace(part, first=max(part.first, unit.first), end=min(part.end, unit.end))
        for part in ranges
        if part.first < unit.end and unit.first < part.end
    ]
