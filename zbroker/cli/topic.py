"""`zbroker-admin topic`: what the log holds, by topic.

zbroker-admin --data-dir /var/lib/zbroker topic ls --match 'orders.*'
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli import show
from zbroker.cli.group import AdminGroup
from zbroker.cli.options import limit_option, text_option
from zbroker.control.target import Target

LIMIT_MAX: Final = 10_000  # of one answer that is read on a terminal

COLUMNS: Final = show.columns(
    "topic:0 recorded messages:0 bytes first_time:4 last_time:2 last_position:3 subscriptions:2",
    sizes="bytes",
)


@click.group(cls=AdminGroup)
def topic() -> None:
    """See what the log holds, by topic."""


@topic.command()
@text_option("--match", "Only topics like this; `*` is any characters.")
@limit_option(1_000, LIMIT_MAX)
def ls(target: Target, match: str, limit: int) -> None:
    """List topics, with what the log holds of each.

    Counted is what is in the log: a topic that is not recorded has no messages here.

    Example: zbroker-admin topic ls --match 'orders.*'
    """
    found = target.ask("/topics", {"match": match, "limit": limit})
    empty = "there is no such topic" if match else "the log holds no topic"
    notes = []
    if not found["complete"]:
        notes.append("the log is still being counted: there may be more of each")
    if found["left_out"]:
        notes.append(f"{found['left_out']} more; see --limit and --match")
    show.listing(target.as_json, found, COLUMNS, found["topics"], empty, notes)
