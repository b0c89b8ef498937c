"""Archives, compresses and removes segments where no instance runs, under the journal's lock.

The same rules as with one: a copy is compared and durable before the other one is removed; only the
oldest segments are removed, with a complete state snapshot after them, and both slots of the note
record it before the first file is removed. Actions are recorded in <data>/actions, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from zbroker.admin.history import History, HistoryEntry
from zbroker.admin.retention import Copy, RetentionView, SegmentView, by_hand
from zbroker.cli.journal import opened, points
from zbroker.cli.journal.admin_actions import Document
from zbroker.cli.journal.description import newest_snapshot, segment_rows
from zbroker.cli.journal.selection import Row, SegmentChoice
from zbroker.cli.progress import Step
from zbroker.clock import SystemClock, format_time
from zbroker.errors import StorageError, ZBrokerError
from zbroker.journal.retention import Kept, LogStart, RemovalLimits
from zbroker.journal.segment_removal import remove_through, replaces
from zbroker.log.archive import CopyResult, Steps, copy, pack, tidy
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Log
from zbroker.log.segments import NOTE_FILE, give_up, read_note
from zbroker.paths import Paths

Rewrite = Literal["archive", "compress"]
Action = Literal["archive", "compress", "remove"]

_WHY: Final = "by hand, while no instance ran"


class ActionPlan(NamedTuple):
    """The segments, their size, and the plan as it is reported."""

    serials: list[int]
    bytes: int
    document: Document


def act(
    paths: Paths, action: Action, selection: SegmentChoice, *, dry_run: bool, step: Step
) -> tuple[Document, list[Row]]:
    """Archives, compresses or removes; the outcome, and a row for each segment before it.

    Raises: ZBrokerError, StorageError second_writer.
    """
    with opened.locked(paths) as places:
        log = Log(places=places)
        rows = segment_rows(log)
        through = selection.last(rows, partial(points.named, log))
        plan = _removal(log, through) if action == "remove" else _rewrite(places, action, through)
        found = {"action": action, "dry_run": dry_run, "id": None} | plan.document
        if dry_run or not plan.serials:
            return found | {"result": "dry run" if dry_run else "nothing to do"}, rows

        def work() -> None:
            if action == "remove":
                _remove(places, plan.serials)
            else:
                _copy_all(places, action, plan.serials, step)

        return found | _recorded(paths, action, plan, work), rows


# -- archive and compress ---------------------------------------------------------------------


def _rewrite(places: SegmentPlaces, action: Rewrite, through: int) -> ActionPlan:
    """By the rules of the admin for what is done by hand."""
    segments = tuple(
        SegmentView(serial, tuple(Copy(one.archived, one.packed, one.file_bytes) for one in copies),
                    size=0, end=None, last_time=None)
        for serial, copies in places.by_serial().items()
    )  # fmt: skip
    state = RetentionView(segments, now_ns=0, stated=0, free_bytes=0)
    taken, skipped = by_hand(action, state, None, through)
    found = {
        "serials": [{"serial": one.serial, "bytes": one.bytes, "why": _WHY} for one in taken],
        "skipped": [one._asdict() for one in skipped],
    }
    return ActionPlan([one.serial for one in taken], sum(one.bytes for one in taken), found)


def _copy_all(places: SegmentPlaces, action: Rewrite, serials: list[int], step: Step) -> None:
    tidy(places)
    for number, serial in enumerate(serials, 1):
        _copy_one(places, action, serial, step, f"{number} of {len(serials)}")


def _copy_one(places: SegmentPlaces, action: str, serial: int, step: Step, which: str) -> None:
    """A new copy, then the others go. An archiving that was interrupted is finished first."""
    copies = places.by_serial()[serial]
    halfway = any(place.archived for place in copies) and not all(p.archived for p in copies)
    if action == "compress" and halfway:
        _copy_one(places, "archive", serial, step, which)
    steps = (copy if action == "archive" else pack)(places, serial)
    made = _watched(steps, partial(step, f"{action} {which}"), places.size(copies[0]))
    for place in places.by_serial()[serial]:
        redundant = not place.archived if action == "archive" else not place.packed
        if redundant and place != made.place:
            if not replaces(places, made.place, place):
                reason = f"{places.name(made.place)} is not another whole copy of segment {serial}"
                raise StorageError("copy_differs", reason, "the original stays; see `verify`")
            places.unlink(place)
            places.disk(place).sync_dir()


def _watched(steps: Steps, step: Callable[[int, int], None], size: int) -> CopyResult:
    """Does all steps, and shows how far it is."""
    while True:
        try:
            step(next(steps), size)
        except StopIteration as stop:
            made: CopyResult = stop.value
            return made


# -- remove -----------------------------------------------------------------------------------


def _removal(log: Log, through: int) -> ActionPlan:
    """Follows the rules of the journal process; if none runs, there are no holders.

    Raises: StorageError segments_missing.
    """
    if log.missing:
        names = f"{log.missing.start} to {log.missing.stop - 1}"
        reason = f"segments {names} are not there although they were not removed"
        raise StorageError("segments_missing", reason, "is the archive directory mounted?")
    by_serial, end = log.places.by_serial(), log.end()
    firsts = {cursor.serial: cursor.position for cursor in log.starts}
    kept: list[Kept] = []
    for serial, copies in reversed(by_serial.items()):
        after = kept[-1].first if kept else end
        first = firsts.get(serial, after)
        kept.append(Kept(serial, first, after, sum(place.file_bytes for place in copies)))
    limits = RemovalLimits(through, newest_snapshot(log, end) or 0, max(by_serial, default=0))
    plan = LogStart(log.first_position, readers=()).plan(kept[::-1], limits)
    serials = [one.serial for one in plan.segments]
    found = {"serials": serials, "floor": plan.log_start, "blocked": plan.blocked, "held_by": []}
    return ActionPlan(serials, sum(one.bytes for one in plan.segments), found)


def _remove(places: SegmentPlaces, serials: list[int]) -> None:
    """The note first, everywhere, so that a start finishes what a crash interrupts."""
    note = read_note(places.journal)
    if note is None:
        raise StorageError("damaged", f"{NOTE_FILE} is damaged", "start the instance once")
    give_up(places.journal, note._replace(oldest=serials[-1] + 1))
    remove_through(places, serials[-1])


# -- its record -------------------------------------------------------------------------------


def _recorded(paths: Paths, action: str, plan: ActionPlan, work: Callable[[], None]) -> Document:
    """Does it, and writes it into the history of actions. Raises: what `work` does."""
    history = History(paths.actions, logging.getLogger("zbroker-admin"))
    now = format_time(SystemClock().wall_ns())
    entry = HistoryEntry(0, now, action, "hand", _WHY, plan.serials, plan.bytes, "running")
    entry = history.new(entry)
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
        "id": entry.id, "result": entry.result, "reason": entry.reason, "bytes": plan.bytes,
        "took_s": entry.took_s,
    }  # fmt: skip
