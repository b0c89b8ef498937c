"""`zbroker-admin subscription ls`: every subscription, the largest lag first.

Asks the running instance (GET /subscriptions). Answer: per subscription the client, the topic, the
position, the lag, and why it waits; how many were left out; delivery workers that did not answer.
Without an instance there are none: exit code 3.

    zbroker-admin --data-dir /var/lib/zbroker subscription ls --client spark --limit 10
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.control.target import Target

LIMIT_MAX: Final = 1_000  # of one answer of the admin

COLUMNS: Final = (
    show.text("client", 0),
    show.text("sid", 4),
    show.text("topic", 0),
    show.text("filter", 5),
    show.text("options", 5),
    show.TableColumn("state"),
    show.number("position", 3),
    show.number("lag", 0),
    show.number("lag_s"),
    show.number("in_hand", 2),
    show.byte_size("credit", 3),
    show.number("sent_messages", 4),
    show.byte_size("sent_bytes", 5),
    show.text("since", 4),
    show.text("worker", 5),
)


@click.command()
@click.option("--client", default="", help="Only those of the client with this name.")
@click.option("--topic", default="", help="Only those on this topic or pattern, as it was asked.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=LIMIT_MAX),
    default=100,
    show_default=True,
    help="Those with the largest lag.",
)
@show.json_option
@click.pass_obj
def ls(target: Target, client: str, topic: str, limit: int, json_here: bool) -> None:
    """List subscriptions, the largest lag first.

    `lag` counts messages that its program has not handled: those not sent yet, and the `in_hand`
    that were, as long as their credit has not come back. `lag_s` is about the same in log time.
    `state` is why it waits: `sending`, `in hand` (all is sent, not all handled), `caught up`,
    `no credit` (its reader is slow), `paused`, `rate`, `future start`, `locating`. A
    pattern of topics is shown between slashes.

    Example: zbroker-admin subscription ls --client spark --limit 10
    """
    found = target.ask("/subscriptions", {"client": client, "topic": topic, "limit": limit})
    if show.wants_json(target, json_here):
        show.as_json(found)
        return
    rows = found["subscriptions"]
    if rows:
        show.table(COLUMNS, [shown(row) for row in rows])
    else:
        click.echo(
            "there is no such subscription" if client or topic else "no client is subscribed"
        )
    for worker in found["silent"]:
        show.warn(f"{worker} does not answer: its subscriptions are not among these")
    if found["left_out"]:
        show.warn(f"{found['left_out']} more have a smaller lag; see --limit, --client, --topic")


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table: patterns marked, waiting explained."""
    topic = f"/{row['topic']}/" if row["regex"] else row["topic"]
    state = row["state"]
    if row["due_ms"] is not None:
        state = f"{state}, next in {row['due_ms']} ms"
    elif row["starts"] is not None:
        state = f"{state}, {row['starts']}"
    return row | {"topic": topic, "state": state, "options": row["options"] or None}
