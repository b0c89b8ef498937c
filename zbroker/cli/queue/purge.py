"""`zbroker-admin queue purge`: messages leave a queue; in the log they stay.

Tells the running instance (POST /queues/NAME/purge). Answer: `queue`, `dry_run`, `count`, `text`,
`position` (the place of the purge); with --archive or --remove `journal`: the answer of that
command. On a terminal it says how many and asks; elsewhere it wants --yes. Exit code 3: no such
queue or point; 1: purged, but somebody still needs segments that were to be removed.

    zbroker-admin --data-dir /var/lib/zbroker queue purge work --before 1234 --dry-run
    zbroker-admin queue purge work --point end-of-day --archive --yes
"""

from __future__ import annotations

import sys
from typing import Final

import click

from zbroker.cli import show
from zbroker.cli.completion import complete_point
from zbroker.cli.journal import managing
from zbroker.cli.journal.remove import check_held
from zbroker.cli.queue import purged_segments
from zbroker.cli.queue.asking import Document, change, messages, name_argument, say
from zbroker.control.target import Target
from zbroker.limits import U63_MAX

_THEN: Final[dict[purged_segments.Action | None, str]] = {
    None: "",
    "archive": ", then the journal's segments before that place are archived",
    "remove": ", then the journal's segments before that place are removed for good",
}


@click.command()
@name_argument
@click.option(
    "--before",
    type=click.IntRange(min=1, max=U63_MAX),
    help="All messages before this position.",
)
@click.option(
    "--point", default="", help="All messages before this point.", shell_complete=complete_point
)
@click.option("--all", "all_of_it", is_flag=True, help="All that it holds now.")
@click.option("--leased", is_flag=True, help="Also messages that consumers have.")
@click.option("--dead-letter", is_flag=True, help="They go to the dead letter topic: `forced`.")
@click.option(
    "--archive", is_flag=True, help="Then archive the segments that end before that place."
)
@click.option(
    "--remove", is_flag=True, help="Then remove their segments for good, if no reader needs them."
)
@show.dry_run_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@show.json_option
@click.pass_obj
def purge(  # noqa: PLR0913 - click passes each option by itself
    target: Target,
    name: str,
    before: int | None,
    point: str,
    all_of_it: bool,
    leased: bool,
    dead_letter: bool,
    archive: bool,
    remove: bool,
    dry_run: bool,
    yes: bool,
    json_here: bool,
) -> None:
    """Have messages leave the queue NAME: those before a place, or all.

    In the log they stay, and other queues and subscriptions are not touched. What consumers have
    stays in the queue, unless --leased. With --dead-letter they go to the dead letter topic.

    --archive and --remove go on, once the purge is durable, with the oldest segments of the journal
    up to that place: whole ones, of all topics. What others still need is not removed.

    Example: zbroker-admin queue purge work --before 1234 --dry-run
    """
    action = _action(archive=archive, remove=remove)
    body = _what(before, point, all_of_it) | {"leased": leased, "dead_letters": dead_letter}
    in_json = show.wants_json(target, json_here)
    if dry_run or not yes:
        may_ask = sys.stdin.isatty() and not in_json
        if not dry_run and not may_ask:
            raise click.UsageError("this takes messages away: give --yes, or --dry-run first")
        planned = change(target, name, "purge", body | {"dry_run": True})
        if dry_run:
            _tell(target, planned, action, f"{messages(planned['count'])} would be purged", in_json)
            return
        leave = f"{messages(planned['count'])} leave {name}{_THEN[action]}"
        click.confirm(f"{leave}; go on?", abort=True)
    found = change(target, name, "purge", body)
    _tell(target, found, action, f"{messages(found['count'])} purged", in_json)


def _tell(
    target: Target, found: Document, action: purged_segments.Action | None, line: str, in_json: bool
) -> None:
    """The purge, then the segments: they are begun with when the purge is durable, never before."""
    if action is None:
        say(found, line, in_json=in_json)
        return
    if not in_json:
        say(found, line, in_json=False)
    segments = purged_segments.after(target.admin(), action, found)
    if in_json:
        show.as_json(found | {"journal": segments.document})
    else:
        managing.say(segments.document, segments.rows, in_json=False)
    managing.check(segments.document)
    check_held(segments.document)


def _action(*, archive: bool, remove: bool) -> purged_segments.Action | None:
    """Raises: UsageError, if both are given."""
    if archive and remove:
        raise click.UsageError("give one of --archive and --remove")
    return "archive" if archive else "remove" if remove else None


def _what(before: int | None, point: str, all_of_it: bool) -> Document:
    """Raises: UsageError, unless exactly one of them is given."""
    given: Document = {"before": before, "point": point, "all": all_of_it}
    given = {key: value for key, value in given.items() if value}
    if len(given) != 1:
        raise click.UsageError("give one of --before, --point and --all")
    return given
