"""`zbroker-admin point rm`: a place of the log loses its name; the messages stay.

Tells the running instance (POST /points/remove). Answer: `name`, `dry_run`, `position`, `vector`:
where it was. Exit code 3: no such point.

    zbroker-admin --data-dir /var/lib/zbroker point rm end-of-day --dry-run
"""

from __future__ import annotations

import click

from zbroker.cli import show
from zbroker.cli.completion import complete_point
from zbroker.control.target import Target


@click.command()
@click.argument("name", shell_complete=complete_point)
@show.dry_run_option
@show.json_option
@click.pass_obj
def rm(target: Target, name: str, dry_run: bool, json_here: bool) -> None:
    """Remove the point NAME. No message is removed, and NAME can be set again.

    What began or ends at the point goes on as it is. A replay, purge or consumer that names the
    point from now on gets unknown_point.

    Example: zbroker-admin point rm end-of-day --dry-run
    """
    found = target.admin().tell("/points/remove", {"name": name, "dry_run": dry_run})
    if show.wants_json(target, json_here):
        show.as_json(found)
        return
    what = "would be removed (dry run)" if found["dry_run"] else "removed"
    click.echo(f"{found['name']}: {what}; it was position {found['position']}")
