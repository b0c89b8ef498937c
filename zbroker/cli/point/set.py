"""`zbroker-admin point set`: names the place after the last durable message.

Tells the running instance (POST /points). Answer: `name`, `position` (messages before it are before
the point), `vector`. A name that is known already means the new place from then on.

    zbroker-admin --data-dir /var/lib/zbroker point set end-of-day
    zbroker-admin --json point set before-the-crash --at 123456
"""

from __future__ import annotations

from typing import Any

import click

from zbroker.cli import show
from zbroker.cli.completion import complete_point
from zbroker.control.target import Target
from zbroker.limits import U63_MAX


@click.command("set")
@click.argument("name", shell_complete=complete_point)
@click.option(
    "--at",
    type=click.IntRange(min=1, max=U63_MAX),
    help="This position, in place of the end of the log.",
)
@show.json_option
@click.pass_obj
def set_one(target: Target, name: str, at: int | None, json_here: bool) -> None:
    """Call the end of the log, or a position, NAME.

    Consumers of replayable queues begin there, and queue purge ends there.

    Example: zbroker-admin point set end-of-day
    """
    body: dict[str, Any] = {"name": name} | ({} if at is None else {"at": at})
    found = target.admin().tell("/points", body)
    if show.wants_json(target, json_here):
        show.as_json(found)
    else:
        click.echo(f"{found['name']}: position {found['position']}, vector {found['vector']}")
