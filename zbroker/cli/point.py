"""`zbroker-admin point`: places of the log with a name.

zbroker-admin --data-dir /var/lib/zbroker point set end-of-day
zbroker-admin --json point set before-the-crash --at 123456
zbroker-admin point rm end-of-day --dry-run
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.cli.completion import complete_point
from zbroker.cli.group import AdminGroup
from zbroker.cli.options import POSITION, dry_run_option
from zbroker.control.target import Target

COLUMNS: Final = show.columns("name scope position vector set_at")


@click.group(cls=AdminGroup)
def point() -> None:
    """Give places of the log a name."""


@point.command("set")
@click.argument("name", shell_complete=complete_point)
@click.option("--at", type=POSITION, help="This position, in place of the end of the log.")
@click.option("--vector", help="The messages that are to be before it, as point ls shows them.")
def set_one(target: Target, name: str, at: int | None, vector: str | None) -> None:
    """Call the end of the log, or a position, NAME.

    Consumers of replayable queues begin there, and queue purge ends there.

    An instance with links sets it for all: every instance that has links to it knows NAME, and has
    the same messages before it. A point that was set with --at is a place in the log of this
    instance alone.

    Example: zbroker-admin point set end-of-day
    """
    if at is not None and vector is not None:
        raise click.UsageError("give --at or --vector")
    body: dict[str, Any] = {"name": name} | ({} if at is None else {"at": at})
    body |= {} if vector is None else {"vector": vector}
    found = target.admin().tell("/points", body)
    text = f"{found['name']}: position {found['position']}, vector {found['vector']}"
    show.answer(target.as_json, found, text)


@point.command()
@click.argument("name", default="", shell_complete=complete_point)
def ls(target: Target, name: str) -> None:
    """List points, by name; or the point NAME alone.

    `scope` is distributed if the point is the same on every instance, else local. Messages before
    `position` are before it; `vector` says the same for every instance. The place of a distributed
    one in this log is looked up for NAME alone. `set_at` is the position of the record that set it.

    Example: zbroker-admin point ls
    """
    found = target.ask("/points", {"name": name})
    empty = "no place of the log has a name; see point set"
    show.listing(target.as_json, found, COLUMNS, found["points"], empty)


@point.command()
@click.argument("name", shell_complete=complete_point)
@dry_run_option
def rm(target: Target, name: str, dry_run: bool) -> None:
    """Remove the point NAME, a distributed one on every instance. No message is removed, and NAME
    can be set again.

    What began or ends at the point goes on as it is. A replay, purge or consumer that names the
    point from now on gets unknown_point.

    Example: zbroker-admin point rm end-of-day --dry-run
    """
    found = target.admin().tell("/points/remove", {"name": name, "dry_run": dry_run})
    done = "would be removed (dry run)" if found["dry_run"] else "removed"
    what = "vector" if found["position"] is None else "position"
    text = f"{found['name']}: {done}; it was {what} {found[what]}"
    show.answer(target.as_json, found, text)
