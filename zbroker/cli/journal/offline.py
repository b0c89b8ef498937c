"""Archives, compresses and removes segments where no instance runs, under the journal's lock.

The same rules as with one: a copy is compared and durable before the other one is removed; only the
oldest segments are removed, with a complete state snapshot after them, and both slots of the note
record it before the first file is removed. Actions are recorded in <data>/actions, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from zbroker.admin.history import History, HistoryEntry
from zbroker.cli.journal import opened, points
from zbroker.cli.journal.listing import segment_rows
from zbroker.cli.journal.selecting import Selection
from zbroker.cli.progress import Step
from zbroker.clock import SystemClock, format_time
from zbroker.errors import StorageError, ZBrokerError
from zbroker.journal import snapshot_finder
from zbroker.journal.retention import Kept, LogStart, RemovalLimits, RemovalPlan
from zbroker.journal.segment_removal import stands_for
from zbroker.log.archive.archiver import copy
from zbroker.log.archive.cleanup import tidy
from zbroker.log.archive.packer import pack
from zbroker.log.archive.segment_copy import CopyResult, Steps
from zbroker.log.places import SegmentPlace, SegmentPlaces
from zbroker.log.reader import Log
from zbroker.log.segments import NOTE_FILE, discard, give_up, read_note, summary_name
from zbroker.paths import Paths

_WHY: Final = "by hand, while no instance ran"

Document = dict[str, Any]


def rewrite(
    paths: Paths, action: Literal["archive", "compress"], selection: Selection, *,
    dry_run: bool, step: Step,
) -> Document:  # fmt: skip
    """Archives or compresses. Raises: ZBrokerError, StorageError second_writer."""
    with opened.locked(paths) as places:
        log = Log(places=places)
        through = selection.last(segment_rows(log), partial(points.named, log))
        found: Document = {"action": action, "dry_run": dry_run, "id": None} | _plan(
            places, action, through
        )
        serials = [row["serial"] for row in found["serials"]]
        if dry_run or not serials:
            return found | {"result": "dry run" if dry_run else "nothing to do"}
        tidy(places)

        def work() -> None:
            for number, serial in enumerate(serials, 1):
                _one(places, action, serial, _Part(step, number, len(serials)))

        return found | _done(
            paths, action, serials, sum(r["bytes"] for r in found["serials"]), work
        )


def _plan(places: SegmentPlaces, action: str, through: int) -> Document:
    by_serial = places.by_serial()
    newest = max(by_serial, default=0)
    planned: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for serial, copies in by_serial.items():
        if serial > through:
            break
        reason = _why_not(action, copies, is_open=serial == newest)
        if reason:
            skipped.append({"serial": serial, "reason": reason})
        else:
            size = sum(place.file_bytes for place in copies)
            planned.append({"serial": serial, "bytes": size, "why": _WHY})
    return {"serials": planned, "skipped": skipped}


def _why_not(action: str, copies: list[SegmentPlace], *, is_open: bool) -> str:
    if is_open:
        return "it is the open one, which is written to"
    if action == "archive" and all(place.archived for place in copies):
        return "it is in the archive directory"
    if action == "compress" and all(place.packed for place in copies):
        return "it is compressed"
    return ""


class _Part(NamedTuple):
    """Shows how far the work on one of several segments is."""

    step: Step
    number: int
    of: int

    def watch(self, what: str, steps: Steps, size: int) -> CopyResult:
        """Does all steps."""
        name = f"{what} {self.number} of {self.of}"
        while True:
            try:
                self.step(name, next(steps), size)
            except StopIteration as stop:
                made: CopyResult = stop.value
                return made


def _one(places: SegmentPlaces, action: str, serial: int, part: _Part) -> None:
    """A new copy, then the others go. An archiving that was interrupted is finished first."""
    copies = places.by_serial()[serial]
    halfway = any(place.archived for place in copies) and not all(p.archived for p in copies)
    if action == "compress" and halfway:
        _one(places, "archive", serial, part)
    make = copy if action == "archive" else pack
    made = part.watch(action, make(places, serial), places.size(copies[0]))
    for place in places.by_serial()[serial]:
        redundant = not place.archived if action == "archive" else not place.packed
        if redundant and place != made.place:
            if not stands_for(places, made.place, place):
                reason = f"{places.name(made.place)} is not another whole copy of segment {serial}"
                raise StorageError("copy_differs", reason, "the original stays; see `verify`")
            places.unlink(place)
            places.disk(place).sync_dir()


# -- removal ----------------------------------------------------------------------------------


def remove(paths: Paths, through: int, *, dry_run: bool, step: Step) -> Document:
    """Removes the oldest segments up to `through`. Raises: ZBrokerError, StorageError."""
    with opened.locked(paths) as places:
        log = Log(places=places)
        if log.missing:
            names = f"{log.missing.start} to {log.missing.stop - 1}"
            reason = f"segments {names} are not there although they were not removed"
            raise StorageError("segments_missing", reason, "is the archive directory mounted?")
        plan = _removable(log, through)
        serials = [one.serial for one in plan.segments]
        found: Document = {
            "action": "remove", "dry_run": dry_run, "id": None, "serials": serials,
            "floor": plan.floor, "blocked": plan.blocked, "held_by": [],
        }  # fmt: skip
        if dry_run or not serials:
            return found | {"result": "dry run" if dry_run else "nothing to do"}
        size = sum(one.bytes for one in plan.segments)
        return found | _done(paths, "remove", serials, size, lambda: _unlink(places, serials, step))


def _removable(log: Log, through: int) -> RemovalPlan:
    """Follows the rules of the journal process; if none runs, there are no holders."""
    by_serial, end = log.places.by_serial(), log.end()
    start = snapshot_finder.newest(log, end)
    ends = {cursor.serial: cursor.position for cursor in log.starts}
    kept: list[Kept] = []
    for serial, copies in reversed(by_serial.items()):
        behind = kept[-1].first if kept else end
        first = ends.get(serial, behind)
        kept.append(Kept(serial, first, behind, sum(place.file_bytes for place in copies)))
    limits = RemovalLimits(through, start.serial if start else 0, max(by_serial, default=0))
    return LogStart(log.first_position, readers=()).plan(kept[::-1], limits)


def _unlink(places: SegmentPlaces, serials: list[int], step: Step) -> None:
    """The note first, everywhere, so that a start finishes what a crash interrupts."""
    note = read_note(places.journal)
    if note is None:
        raise StorageError("damaged", f"{NOTE_FILE} is damaged", "start the instance once")
    give_up(places.journal, note._replace(oldest=serials[-1] + 1))
    by_serial = places.by_serial()
    for done, serial in enumerate(serials, 1):
        for place in by_serial[serial]:
            places.unlink(place)
        for disk in (places.journal, places.archive):
            if disk is not None:
                with suppress(StorageError):  # a summary that stays is thrown away later
                    discard(disk, summary_name(serial))
        step("remove", done, len(serials))
    places.journal.sync_dir()
    if any(place.archived for serial in serials for place in by_serial[serial]):
        assert places.archive is not None, "archived copies are in the archive directory"
        places.archive.sync_dir()


# -- what is kept of it -----------------------------------------------------------------------


def _done(
    paths: Paths, action: str, serials: list[int], size: int, work: Callable[[], None]
) -> Document:
    """Does it, and writes it into the history of actions. Raises: what `work` does."""
    history = History(paths.actions, logging.getLogger("zbroker-admin"))
    now = format_time(SystemClock().wall_ns())
    entry = history.new(HistoryEntry(0, now, action, "hand", _WHY, serials, size, "running"))
    began = time.monotonic()
    try:
        work()
        entry = replace(entry, result="done")
    except ZBrokerError as error:
        entry = replace(entry, result="failed", reason=str(error))
        raise
    finally:
        entry = replace(entry, took_s=round(time.monotonic() - began, 3))
        if entry.result != "running":  # else it was interrupted, and the next start will say so
            history.add(entry)
    return {
        "id": entry.id, "result": entry.result, "reason": entry.reason, "bytes": size,
        "took_s": entry.took_s,
    }  # fmt: skip
