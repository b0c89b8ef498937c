"""`zbroker-admin journal remove`: remove the oldest segments for good.

Asks the running instance (POST /journal/remove), which raises the log start and waits until no
reader needs them; without one it works on the files, under the lock of the journal directory and by
the
same rules: oldest first, only with a complete state snapshot after them, the note first. Answer:
the plan, and its result. Exit code 1 if readers still need segments that were to be removed.

    zbroker-admin journal remove --before -30d --dry-run
    zbroker-admin --json journal remove --through 17
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from zbroker.cli import progress, show
from zbroker.cli.journal import managing, offline, opened, points
from zbroker.cli.journal.following import wait_option
from zbroker.cli.journal.listing import segment_rows
from zbroker.cli.journal.managing import ActionOptions, Document
from zbroker.cli.journal.selecting import Selection, selection_options
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError


@click.command()
@selection_options
@show.dry_run_option
@wait_option
@show.json_option
@click.pass_obj
def remove(  # noqa: PLR0913 - click passes each option by itself
    target: Target,
    through: int | None,
    before: str | None,
    point: str | None,
    all_sealed: bool,
    dry_run: bool,
    no_wait: bool,
    json_here: bool,
) -> None:
    """Remove the oldest segments for good, wherever they are.

    Never the open one, never what a replay, an export or a job still needs (see `holders`), never
    without a complete state snapshot in a newer segment. Bookmarks of what is gone get
    bookmark_expired.

    Example: zbroker-admin journal remove --before -30d --dry-run
    """
    selection = Selection(through, before, point, all_sealed)
    how = ActionOptions(dry_run, wait=not no_wait, in_json=show.wants_json(target, json_here))
    admin = target.running()
    with progress.bar() as step:
        if admin is not None:
            segments = admin.ask("/journal")["segments"]
            last = selection.last(segments, managing.places_of(admin))
            body = {"through": last, "dry_run": dry_run}
            found = (
                managing.by_admin(admin, "remove", body, step, wait=how.wait)
                if body["through"]
                else managing.nothing("remove")
            )
        else:
            paths = opened.find(target)
            with opened.log(target) as log:
                segments = segment_rows(log)
                last = selection.last(segments, partial(points.named, log))
            found = offline.remove(paths, last, dry_run=dry_run, step=step)
    managing.say(found, plan_rows(found, segments), in_json=how.in_json)
    check_held(found)


def plan_rows(found: Document, segments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What goes, and the first one that does not."""
    by_serial = {int(row["serial"]): row for row in segments}
    rows = []
    for serial in found["serials"]:
        row = by_serial.get(serial, {})
        last = row.get("last_time")
        why = f"last message {last}" if last else "no messages"
        rows.append({"serial": serial, "what": "remove", "bytes": row.get("bytes"), "why": why})
    if found.get("blocked"):
        after = [serial for serial in by_serial if serial not in found["serials"]]
        kept = {"serial": min(after, default=None), "what": "keep", "why": found["blocked"]}
        rows.append(kept)
    return rows


def check_held(found: Document) -> None:
    """A removal that is held back is an error, unless only a plan was asked for.

    Raises: ZBrokerError segment_held, blocked.
    """
    if not found.get("blocked") or found["dry_run"]:
        return
    if found["held_by"]:
        who = ", ".join(
            f"{one['who']} ({one['what']}) from position {one['position']}"
            for one in found["held_by"]
        )
        raise ZBrokerError("segment_held", f"{found['blocked']}: {who}")
    hint = "one is written when the next segment is begun" if "snapshot" in found["blocked"] else ""
    raise ZBrokerError("blocked", found["blocked"], hint)
