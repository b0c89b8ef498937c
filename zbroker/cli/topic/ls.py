"""`zbroker-admin topic ls`: every topic, with what the log holds of it.

Asks the running instance (GET /topics). Answer: per topic whether it is recorded, messages, bytes,
first and last time, last position, open subscriptions; how many were left out; whether all of the
log was counted. Without an instance: exit code 3.

    zbroker-admin --data-dir /var/lib/zbroker topic ls --match 'orders.*'
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli import show
from zbroker.control.target import Target

LIMIT_MAX: Final = 10_000  # of one answer that is read on a terminal

COLUMNS: Final = (
    show.text("topic", 0),
    show.TableColumn("recorded"),
    show.number("messages", 0),
    show.byte_size("bytes"),
    show.text("first_time", 4),
    show.text("last_time", 2),
    show.number("last_position", 3),
    show.number("subscriptions", 2),
)


@click.command()
@click.option("--match", default="", help="Only topics like this; `*` is any characters.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=LIMIT_MAX),
    default=1_000,
    show_default=True,
    help="So many at most.",
)
@show.json_option
@click.pass_obj
def ls(target: Target, match: str, limit: int, json_here: bool) -> None:
    """List topics, with what the log holds of each.

    Counted is what is in the log: a topic that is not recorded has no messages here.

    Example: zbroker-admin topic ls --match 'orders.*'
    """
    found = target.ask("/topics", {"match": match, "limit": limit})
    if show.wants_json(target, json_here):
        show.as_json(found)
        return
    if found["topics"]:
        show.table(COLUMNS, found["topics"])
    else:
        click.echo("there is no such topic" if match else "the log holds no topic")
    if not found["complete"]:
        show.warn("the log is still being counted: there may be more of each")
    if found["left_out"]:
        show.warn(f"{found['left_out']} more; see --limit and --match")
