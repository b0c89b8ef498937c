"""`zbroker-admin journal archive | compress | remove`: works on the oldest segments.

The admin of a running instance plans and works; without one this process does, under the lock of
the journal directory. Both say the same, of `remove` with `floor`, `blocked`, `held_by`, and
with numbers as `serials`:

    {action, dry_run, id, serials: [{serial, bytes, why}], skipped: [{serial, reason}],
     result, reason, bytes, took_s}

Exit code 1 if readers still need segments that were to be removed.

    zbroker-admin journal archive --before -7d --dry-run
    zbroker-admin --json journal compress --through 17
    zbroker-admin journal remove --point end-of-day
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

import click

from zbroker.cli import progress, show
from zbroker.cli.group import AdminCommand
from zbroker.cli.journal import offline, opened
from zbroker.cli.journal.admin_actions import Document, by_admin, check, wait_option
from zbroker.cli.journal.offline import Action
from zbroker.cli.journal.selection import Row, SegmentChoice, selection_options
from zbroker.cli.options import dry_run_option
from zbroker.control.target import Admin, Target

PLANNED: Final = show.columns("serial what bytes why", sizes="bytes")
SKIPPED_SHOWN: Final = 20  # in text, unless it is a dry run; JSON has all


def _command(function: Callable[..., None]) -> click.Command:
    """A command with the options of all three."""
    decorated = selection_options(dry_run_option(wait_option(function)))
    return click.command(cls=AdminCommand)(decorated)


@_command
def archive(target: Target, **options: Any) -> None:  # noqa: ANN401 - as `act` names them
    """Move the oldest segments to the archive directory ([journal] archive_directory).

    They are copied, compared, synced, and only then removed from the journal directory. They stay
    part of the log: replays read them from there.

    Example: zbroker-admin journal archive --before -7d --dry-run
    """
    act(target, "archive", **options)


@_command
def compress(target: Target, **options: Any) -> None:  # noqa: ANN401 - likewise
    """Compress the oldest segments where they are, in the journal or the archive directory.

    Each is written as a second file, compared, synced, and only then the first one is removed. They
    stay part of the log: replays read them block by block.

    Example: zbroker-admin journal compress --all-sealed --dry-run
    """
    act(target, "compress", **options)


@_command
def remove(target: Target, **options: Any) -> None:  # noqa: ANN401 - likewise
    """Remove the oldest segments for good, wherever they are.

    Never the open one, never what a replay, an export or a job still needs (see `holders`), never
    without a complete state snapshot in a newer segment. Bookmarks of what is gone get
    bookmark_expired.

    Example: zbroker-admin journal remove --before -30d --dry-run
    """
    act(target, "remove", **options)


def act(
    target: Target, action: Action, *, selection: SegmentChoice, dry_run: bool, no_wait: bool
) -> None:
    """Does it to the chosen segments, and reports. Raises: ZBrokerError."""
    admin = target.running()
    with progress.bar("" if action == "remove" else "bytes") as step:
        if admin is None:
            paths = opened.find(target)
            found, segments = offline.act(paths, action, selection, dry_run=dry_run, step=step)
        else:
            segments = admin.ask("/journal")["segments"]
            through = selection.last(segments, partial(_position_of, admin))
            found = nothing(action, dry_run=dry_run)
            if through:
                body = {"through": through, "dry_run": dry_run}
                found = by_admin(admin, action, body, step, wait=not no_wait)
    show.answer(target.as_json, found, lambda: report(found, segments))
    check(found)


def _position_of(admin: Admin, name: str) -> int:
    """The place of a point of a running instance. Raises: ZBrokerError."""
    [row] = admin.ask(f"/points?{urlencode({'name': name})}")["points"]
    return int(row["position"])


def nothing(action: str, *, dry_run: bool) -> Document:
    """The outcome when no segment is old enough."""
    return {
        "action": action, "dry_run": dry_run, "id": None, "serials": [], "skipped": [],
        "result": "nothing to do",
    }  # fmt: skip


def report(found: Document, segments: Sequence[Row]) -> None:
    """The plan and the outcome, for people."""
    rows = (_removed if found["action"] == "remove" else _rewritten)(found, segments)
    if rows:
        show.table(PLANNED, rows)
    click.echo(summary(found))


def _rewritten(found: Document, _: Sequence[Row]) -> list[Row]:
    """The plan for each segment, and why others are left out."""
    done = [row | {"what": found["action"]} for row in found["serials"]]
    skipped = found.get("skipped", ())
    left = [{"serial": row["serial"], "what": "skip", "why": row["reason"]} for row in skipped]
    if not found["dry_run"] and len(left) > SKIPPED_SHOWN:
        left = []
    return sorted(done + left, key=lambda row: int(row["serial"]))


def _removed(found: Document, segments: Sequence[Row]) -> list[Row]:
    """The segments that go, and the first one that does not."""
    by_serial = {int(row["serial"]): row for row in segments}
    rows = []
    for serial in found["serials"]:
        row = by_serial.get(serial, {})
        last = row.get("last_time")
        why = f"last message {last}" if last else "no messages"
        rows.append({"serial": serial, "what": "remove", "bytes": row.get("bytes"), "why": why})
    if found.get("blocked"):
        after = [serial for serial in by_serial if serial not in found["serials"]]
        rows.append({"serial": min(after, default=None), "what": "keep", "why": found["blocked"]})
    return rows


def summary(found: Document) -> str:
    """One line for people."""
    number, skipped = len(found["serials"]), len(found.get("skipped", ()))
    what = f"{found['action']}: {number} segment{'' if number == 1 else 's'}"
    size = sum(row["bytes"] for row in found["serials"] if isinstance(row, dict))
    if size or found.get("bytes"):
        what += f", {show.size(size or found['bytes'])}"
    if skipped:
        what += f", {skipped} skipped"
    result = found["result"]
    if found.get("took_s"):
        result += f" in {found['took_s']:.1f} s"
    if result == "queued":
        result = f"queued as action {found['id']}; see `action show {found['id']}`"
    return f"{what}: {result}"
