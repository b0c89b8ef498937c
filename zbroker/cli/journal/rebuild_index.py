"""`zbroker-admin journal rebuild-index`: rebuild the bookmark index from the log.

Asks the running instance (POST /journal/reindex), which serves meanwhile; without one it is made
here, under the lock of the journal directory. (The index may also simply be deleted: the next start
makes it.) Answer: {action, id, result, took_s}, and made here {batches, batches_per_s}, too.

    zbroker-admin --data-dir /var/lib/zbroker journal rebuild-index
"""

from __future__ import annotations

import time
from typing import Any

import click

from zbroker.bookmarks.index import Index, Stamp
from zbroker.bookmarks.rebuild import Rebuild, RebuildProgress, batches_of
from zbroker.cli import progress, show
from zbroker.cli.journal import managing, opened
from zbroker.cli.journal.following import wait_option
from zbroker.control.target import Target
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Log
from zbroker.log.segments import read_note
from zbroker.paths import Paths


@click.command("rebuild-index")
@wait_option
@show.json_option
@click.pass_obj
def rebuild_index(target: Target, no_wait: bool, json_here: bool) -> None:
    """Rebuild the bookmark index from the log; the log does not change.

    A running instance does it while it serves: look-ups of bookmarks read the log meanwhile and
    take longer.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal rebuild-index
    """
    admin = target.running()
    with progress.bar("messages") as step:
        if admin is not None:
            found = managing.by_admin(admin, "reindex", {}, step, wait=not no_wait)
        else:
            found = rebuild(opened.find(target), step)
    managing.check(found)
    if show.wants_json(target, json_here):
        show.as_json(found)
    else:
        show.facts({key: value for key, value in found.items() if value not in ("", None, [])})


def rebuild(paths: Paths, step: progress.Step) -> dict[str, Any]:
    """Makes it beside the old one from what is proved to be durable, and puts it in its place.

    The journal process adds the rest when it starts. Raises: StorageError, also where the old index
    proves that messages are missing.
    """
    began = time.monotonic()
    with opened.locked(paths) as places:
        log = Log(places=places)
        first = log.first_position

        def told(at: RebuildProgress) -> None:
            step("positions", max(at.position - first, 0), at.until - first)

        old = Index(paths.index, log.instance)
        try:
            old.forget_later_generations(log.end_of)
            made = Rebuild(paths.index, log.instance, log.generation, batches_of(log), told)
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
