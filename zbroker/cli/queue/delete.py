"""`zbroker-admin queue delete`: a queue goes, with what it knows of its messages.

Tells the running instance (POST /queues/NAME/delete). Answer: `queue`, `dry_run`, `count`, `text`.
On a terminal it says what is lost and asks; elsewhere it wants --yes. Exit code 3: no such queue.

    zbroker-admin --data-dir /var/lib/zbroker queue delete work --dry-run
    zbroker-admin queue delete work --yes
"""

from __future__ import annotations

import sys

import click

from zbroker.cli import show
from zbroker.cli.queue.asking import change, messages, name_argument, path_of, say
from zbroker.control.target import Target


@click.command()
@name_argument
@show.dry_run_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@show.json_option
@click.pass_obj
def delete(target: Target, name: str, dry_run: bool, yes: bool, json_here: bool) -> None:
    """Delete the queue NAME. The messages stay in the log, which is not kept for it any more.

    A queue that is created again with this name is another one: acknowledgements of this one do
    not apply to it. A queue of the config is deleted there.

    Example: zbroker-admin queue delete work --dry-run
    """
    in_json = show.wants_json(target, json_here)
    if dry_run:
        lost = _lost(target, name)
        found = change(target, name, "delete", {"dry_run": True})
        say(found, f"it would be deleted, with {lost}", in_json=in_json)
        return
    if not yes:
        if in_json or not sys.stdin.isatty():
            raise click.UsageError("this deletes a queue for good: give --yes, or --dry-run first")
        click.confirm(f"{name} is deleted for good, with {_lost(target, name)}; go on?", abort=True)
    say(change(target, name, "delete", {"dry_run": False}), "deleted", in_json=in_json)


def _lost(target: Target, name: str) -> str:
    """What the queue knows and nothing else does."""
    row = target.ask(path_of(name))
    taken = f", {row['leased']} of them with consumers," if row["leased"] else ""
    return (
        f"{messages(row['depth'])} that are not done yet{taken} and every acknowledgement that "
        "was given here; the messages stay in the log"
    )
