"""`zbroker-admin queue purge`: messages leave a queue; in the log they stay.

Tells the running instance (POST /queues/NAME/purge). Answer: `queue`, `dry_run`, `count`, `text`.
On a terminal it says how many and asks; elsewhere it wants --yes. Exit code 3: no such queue or
point.

    zbroker-admin --data-dir /var/lib/zbroker queue purge work --before 1234 --dry-run
    zbroker-admin queue purge work --point end-of-day --yes
"""

from __future__ import annotations

import sys

import click

from zbroker.cli import show
from zbroker.cli.completion import complete_point
from zbroker.cli.queue.asking import Document, change, messages, name_argument, say
from zbroker.cli.target import Target
from zbroker.limits import U63_MAX


@click.command()
@name_argument
@click.option(
    "--before",
    type=click.IntRange(min=1, max=U63_MAX),
    help="What stands before this position.",
)
@click.option(
    "--point", default="", help="What stands before this point.", shell_complete=complete_point
)
@click.option("--all", "all_of_it", is_flag=True, help="All that it holds now.")
@click.option("--leased", is_flag=True, help="Also messages that consumers have.")
@click.option("--dead-letter", is_flag=True, help="They go to the dead letter topic: `forced`.")
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
    dry_run: bool,
    yes: bool,
    json_here: bool,
) -> None:
    """Have messages leave the queue NAME: those before a place, or all.

    In the log they stay, and other queues and subscriptions are not touched. What consumers have
    stays in the queue, unless --leased. With --dead-letter they go to the dead letter topic.

    Example: zbroker-admin queue purge work --before 1234 --dry-run
    """
    body = _what(before, point, all_of_it) | {"leased": leased, "dead_letters": dead_letter}
    in_json = show.wants_json(target, json_here)
    if dry_run or not yes:
        may_ask = sys.stdin.isatty() and not in_json
        if not dry_run and not may_ask:
            raise click.UsageError("this takes messages away: give --yes, or --dry-run first")
        planned = change(target, name, "purge", body | {"dry_run": True})
        if dry_run:
            say(planned, f"{messages(planned['count'])} would be purged", in_json=in_json)
            return
        click.confirm(f"{messages(planned['count'])} leave {name}; go on?", abort=True)
    found = change(target, name, "purge", body)
    say(found, f"{messages(found['count'])} purged", in_json=in_json)


def _what(before: int | None, point: str, all_of_it: bool) -> Document:
    """Raises: UsageError, unless exactly one of them is given."""
    given: Document = {"before": before, "point": point, "all": all_of_it}
    given = {key: value for key, value in given.items() if value}
    if len(given) != 1:
        raise click.UsageError("give one of --before, --point and --all")
    return given
