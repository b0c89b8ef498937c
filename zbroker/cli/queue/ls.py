"""`zbroker-admin queue ls`: every queue, with what it holds and what is done.

Asks the running instance (GET /queues). Answer: per queue what it is, how many messages are ready,
leased and delayed, how old the oldest one is, who consumes, how much happens, dead letters. Without
an instance: exit code 3.

    zbroker-admin --data-dir /var/lib/zbroker queue ls
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.control.target import Target

COLUMNS: Final = (
    show.text("name", 0),
    show.text("kind", 4),
    show.text("topic", 2),
    show.TableColumn("state"),
    show.number("depth", 0),
    show.number("ready", 3),
    show.number("leased", 3),
    show.number("delayed", 5),
    show.number("oldest_s", 3),
    show.number("consumers"),
    show.number("entered_s", 6),
    show.number("delivered_s", 6),
    show.number("acked_s", 4),
    show.number("dead"),
    show.byte_size("bytes", 2),
)


@click.command()
@show.json_option
@click.pass_obj
def ls(target: Target, json_here: bool) -> None:
    """List queues, with what each of them holds.

    `depth` is all that a queue holds; `ready` of it could be delivered now. `bytes` are those of
    the log that is kept for it. Rates are means of the last seconds; `dead` counts dead letters
    since the queues process started. A pattern of topics is shown between slashes.

    Example: zbroker-admin queue ls
    """
    found = target.ask("/queues")
    if show.wants_json(target, json_here):
        show.as_json(found)
    elif found["queues"]:
        show.table(COLUMNS, [shown(row) for row in found["queues"]])
    else:
        click.echo("there is no queue; see [[queue]] in the config, and queue create")


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table: patterns marked, rates beside the rest."""
    topic = f"/{row['topic']}/" if row["regex"] else row["topic"]
    return {**row, **row["rates"], "topic": topic}
