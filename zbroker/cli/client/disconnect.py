"""`zbroker-admin client disconnect`: ends the sessions of a client on every door.

Tells the running instance (POST /clients/disconnect). Answer: how many connections it were. What it
published and was acknowledged stays; a client of ours that was disconnected does not come back by
itself. Exit code 3: there is no such client.

    zbroker-admin --data-dir /var/lib/zbroker client disconnect pricer --dry-run
"""

from __future__ import annotations

import click

from zbroker.cli import show
from zbroker.cli.client.ls import COLUMNS, connections
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError


@click.command()
@click.argument("name")
@show.dry_run_option
@show.json_option
@click.pass_obj
def disconnect(target: Target, name: str, dry_run: bool, json_here: bool) -> None:
    """End the sessions of the client NAME on every door.

    Nothing that was acknowledged is lost. What it had sent and was not acknowledged, it keeps.

    Example: zbroker-admin client disconnect pricer --dry-run
    """
    in_json = show.wants_json(target, json_here)
    if dry_run:
        rows = connections(target, name)["clients"]
        count = len(rows)
        if rows and not in_json:
            show.table(COLUMNS, rows)
    else:
        count = target.admin().tell("/clients/disconnect", {"client": name})["disconnected"]
    if not count:
        raise ZBrokerError("not_found", f"there is no client {name!r}", "zbroker-admin client ls")
    if in_json:
        show.as_json({"client": name, "dry_run": dry_run, "disconnected": count})
        return
    what = "would be ended" if dry_run else "ended"
    click.echo(f"{name}: {count} connection{'' if count == 1 else 's'} {what}")
