"""`zbroker-admin point ls`: every named place of the log.

Asks the running instance (GET /points). Answer: `points`: `name`, `position`, `vector`, `set_at`.
Without an instance: exit code 3.

    zbroker-admin --data-dir /var/lib/zbroker point ls
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli import show
from zbroker.control.target import Target

COLUMNS: Final = (
    show.TableColumn("name"),
    show.number("position"),
    show.TableColumn("vector"),
    show.number("set_at"),
)


@click.command()
@show.json_option
@click.pass_obj
def ls(target: Target, json_here: bool) -> None:
    """List points, by name.

    Messages before `position` are before the point; `vector` says the same for every instance.
    `set_at` is the position of the record that set it.

    Example: zbroker-admin point ls
    """
    found = target.ask("/points")
    if show.wants_json(target, json_here):
        show.as_json(found)
    elif found["points"]:
        show.table(COLUMNS, found["points"])
    else:
        click.echo("no place of the log has a name; see point set")
