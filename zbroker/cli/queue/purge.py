"""`zbroker-admin queue purge`: messages leave a queue; in the log they stay.

Answer: `queue`, `dry_run`, `count`, `text`, `position` (the place of the purge); with --archive or
--remove `journal`: the answer of that command. On a terminal it says how many and asks; elsewhere
it wants --yes. Exit code 1: purged, but readers still need segments that were to be removed.

A log of segments gives up whole segments, the oldest first, of all topics: those that end before
the place of the purge. The journal decides which may be removed; the readers that hold them back
are named.

    zbroker-admin --data-dir /var/lib/zbroker queue purge work --before 1234 --dry-run
    zbroker-admin queue purge work --point end-of-day --archive --yes
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import click

from zbroker.cli import progress, show
from zbroker.cli.completion import complete_point
from zbroker.cli.group import AdminCommand
from zbroker.cli.journal import segment_actions
from zbroker.cli.journal.admin_actions import by_admin, check
from zbroker.cli.journal.selection import Row, ending_before
from zbroker.cli.options import POSITION, dry_run_option, flag_option, text_option
from zbroker.cli.queue.changes import Document, change, messages, report
from zbroker.cli.queue.queries import name_argument
from zbroker.control.target import Admin, Target

LET_GO_S: Final = 10.0  # queues report to the journal each second what they need
POLL_S: Final = 0.2

_THEN: Final = {
    "": "",
    "archive": ", then the journal's segments before that place are archived",
    "remove": ", then the journal's segments before that place are removed for good",
}


@click.command(cls=AdminCommand)
@name_argument
@click.option("--before", type=POSITION, help="All messages before this position.")
@text_option("--point", "All messages before this point.", shell_complete=complete_point)
@flag_option("--all", "All that it holds now.")
@flag_option("--leased", "Also messages that consumers have.")
@flag_option("--dead-letter", "They go to the dead letter topic: `forced`.", "dead_letters")
@flag_option("--archive", "Then archive the segments that end before that place.")
@flag_option("--remove", "Then remove their segments for good, if no reader needs them.")
@dry_run_option
@flag_option("--yes", "Do not ask.")
def purge(
    target: Target,
    name: str,
    archive: bool,
    remove: bool,
    dry_run: bool,
    yes: bool,
    **body: Any,  # noqa: ANN401 - what is left is named as in the request
) -> None:
    """Have messages leave the queue NAME: those before a place, or all.

    In the log they stay, and other queues and subscriptions are not touched. What consumers have
    stays in the queue, unless --leased. With --dead-letter they go to the dead letter topic.

    --archive and --remove go on, once the purge is durable, with the oldest segments of the journal
    up to that place: whole ones, of all topics. What others still need is not removed.

    Example: zbroker-admin queue purge work --before 1234 --dry-run
    """
    if archive and remove:
        raise click.UsageError("give one of --archive and --remove")
    action = "archive" if archive else "remove" if remove else ""
    places = {key: body.pop(key) for key in ("before", "point", "all")}
    body |= {key: place for key, place in places.items() if place}
    if sum(map(bool, places.values())) != 1:
        raise click.UsageError("give one of --before, --point and --all")
    if dry_run or not yes:
        if not dry_run and (target.as_json or not sys.stdin.isatty()):
            raise click.UsageError("this takes messages away: give --yes, or --dry-run first")
        planned = change(target, name, "purge", body | {"dry_run": True})
        if dry_run:
            _report(target, planned, action, f"{messages(planned['count'])} would be purged")
            return
        leave = f"{messages(planned['count'])} leave {name}{_THEN[action]}"
        click.confirm(f"{leave}; go on?", abort=True)
    found = change(target, name, "purge", body)
    _report(target, found, action, f"{messages(found['count'])} purged")


def _report(target: Target, purged: Document, action: str, line: str) -> None:
    """The purge, then the segments: they are begun with when the purge is durable, never before."""
    if not action or not target.as_json:
        report(target, purged, line)
    if not action:
        return
    admin = target.admin()
    segments = [row for row in admin.ask("/journal")["segments"] if not row["open"]]
    found = _give_up_segments(admin, action, purged, segments)
    document = purged | {"journal": found}
    show.answer(target.as_json, document, lambda: segment_actions.report(found, segments))
    check(found)


def _give_up_segments(
    admin: Admin, action: str, purged: Document, segments: Sequence[Row]
) -> Document:
    """The outcome for the segments before the place of a purge. Raises: ZBrokerError.

    purged: the answer of the instance to the purge, which is durable unless it was a dry run.
    """
    dry_run, queue = bool(purged["dry_run"]), purged["queue"]
    through = ending_before(segments, purged["position"])
    if not through:
        return segment_actions.nothing(action, dry_run=dry_run)
    body: dict[str, Any] = {"through": through, "dry_run": dry_run}
    if action == "remove" and dry_run:
        body["without"] = queue
    elif action == "remove":
        _wait(admin, through, queue)
    with progress.bar("bytes" if action == "archive" else "") as step:
        return by_admin(admin, action, body, step)


def _wait(admin: Admin, through: int, queue: str) -> None:
    """Until the journal heard that the queue let go, for a while: leased messages may hold on."""
    for _ in range(int(LET_GO_S / POLL_S)):
        planned = admin.tell("/journal/remove", {"through": through, "dry_run": True})
        if not any((one["who"], one["what"]) == ("queues", queue) for one in planned["held_by"]):
            return
        time.sleep(POLL_S)
