"""`zbroker-admin journal rebuild-index | new-generation`: rare work on a log as a whole.

zbroker-admin --data-dir /var/lib/zbroker journal rebuild-index
zbroker-admin --data-dir /var/lib/zbroker journal new-generation
"""

from __future__ import annotations

import time
from typing import Any

import click

from zbroker.bookmarks.index import Index, Stamp
from zbroker.bookmarks.rebuild import Rebuild, RebuildProgress, batches_of
from zbroker.cli import progress, show
from zbroker.cli.group import AdminCommand
from zbroker.cli.journal import opened
from zbroker.cli.journal.admin_actions import by_admin, check, wait_option
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError
from zbroker.log.generations import CopyMark, write_mark
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Log
from zbroker.log.segments import read_note
from zbroker.paths import Paths


@click.command(cls=AdminCommand)
@wait_option
def rebuild_index(target: Target, no_wait: bool) -> None:
    """Rebuild the bookmark index from the log; the log does not change.

    A running instance does it while it serves: look-ups of bookmarks read the log meanwhile and
    take longer.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal rebuild-index
    """
    admin = target.running()
    with progress.bar("messages") as step:
        if admin is not None:
            found = by_admin(admin, "reindex", {}, step, wait=not no_wait)
        else:
            found = rebuild(opened.find(target), step)
    check(found)
    known = {key: value for key, value in found.items() if value not in ("", None, [])}
    show.answer(target.as_json, found, known)


def rebuild(paths: Paths, step: progress.Step) -> dict[str, Any]:
    """Makes it beside the old one from what is proved to be durable, and puts it in its place.

    The journal process adds the rest when it starts. Raises: StorageError, also where the old index
    proves that messages are missing.
    """
    began = time.monotonic()
    with opened.locked(paths) as places:
        log = Log(places=places)
        first = log.first_position

        def show_step(at: RebuildProgress) -> None:
            step("positions", max(at.position - first, 0), at.until - first)

        old = Index(paths.index, log.instance)
        try:
            old.forget_later_generations(log.end_of)
            made = Rebuild(paths.index, log.instance, log.generation, batches_of(log), show_step)
            old = made.finish(_durable(log, places, old.stamp), old)
        finally:
            old.close()
        made.remove_old()
    took_s = time.monotonic() - began
    return {
        "action": "reindex", "dry_run": False, "id": None, "result": "done", "reason": "",
        "batches": made.batches, "batches_per_s": round(made.batches / max(took_s, 1e-9)),
        "took_s": round(took_s, 3),
    }  # fmt: skip


def _durable(log: Log, places: SegmentPlaces, stamp: Stamp) -> int:
    """Positions below it are proved to be durable, by the note or by the old index.

    A stamp that says more would be taken for proof of a loss at the next start.
    """
    note = read_note(places.journal)
    proved = note.position if note is not None and note.generation >= log.generation else 0
    if stamp.generation == log.generation:
        proved = max(proved, min(stamp.position, log.end()))
    return max(proved, log.first_position)


@click.command(cls=AdminCommand)
def new_generation(target: Target) -> None:
    """Say that the log was put back from a copy: the next start begins a new generation.

    Do this after restoring a copy that `cp`, `rsync` or a snapshot of the disk made, before the
    start. A new generation uses the positions after the copy's end for other messages, so places in
    the lost part are not confused with places in the new one: acknowledgements of the old
    generation are stale_epoch, vectors resume at the end of the copy. What `journal export` made
    needs it not.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal new-generation
    """
    with opened.locked(opened.find(target)) as places:
        log = Log(places=places)
        if not log.instance:
            reason = "there is no segment with a readable header"
            raise ZBrokerError("not_found", reason, "put the copy back first, or see `repair`")
        write_mark(places.journal, CopyMark(log.instance, log.generation))
        found = {
            "instance": f"{log.instance:016x}", "generation": log.generation,
            "position": log.end(),
        }  # fmt: skip
    show.answer(target.as_json, found)
    if not target.as_json:
        click.echo("the next start begins a new generation")
