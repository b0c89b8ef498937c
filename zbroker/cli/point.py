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

COLUMNS: Final = show.columns("name position vector set_at")


@click.group(cls=AdminGroup)
def point() -> None:
    """Give places of the log a name."""


@point.command("set")
@click.argument("name", shell_complete=complete_point)
@click.option("--at", type=POSITION, help="This position, in place of the end of the log.")
@click.option("--vector", help="What a point of another instance covers, as that one shows it.")
def set_one(target: Target, name: str, at: int | None, vector: str | None) -> None:
    """Call the end of the log, or a position, NAME.

    Consumers of replayable queues begin there, and queue purge ends there.

    A point is of one instance. With --vector the same messages are before it as before that point,
    for replayable queues that are on both; for others it is before the first message that the
    vector does not cover. A point that was set with --at has a vector of its own log alone.

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
def ls(target: Target) -> None:
    """List points, by name.

    Messages before `position` are before the point; `vector` says the same for every instance.
    `set_at` is the position of the record that set it.

    Example: zbroker-admin point ls
    """
    found = target.ask("/points")
    empty = "no place of the log has a name; see point set"
    show.listing(target.as_json, found, COLUMNS, found["points"], empty)


@point.command()
@click.argument("name", shell_complete=complete_point)
@dry_run_option
def rm(target: Target, name: str, dry_run: bool) -> None:
    """Remove the point NAME. No message is removed, and NAME can be set again.

    What began or ends at the point goes on as it is. A replay, purge or consumer that names the
    point from now on gets unknown_point.

    Example: zbroker-admin point rm end-of-day --dry-run
    """
    found = target.admin().tell("/points/remove", {"name": name, "dry_run": dry_run})
    done = "would be removed (dry run)" if found["dry_run"] else "removed"
    text = f"{found['name']}: {done}; it was position {found['position']}"
    show.answer(target.as_json, found, text)
