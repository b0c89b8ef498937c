"""`zbroker-admin subscription`: the subscribers, their lag, and what they wait for.

zbroker-admin --data-dir /var/lib/zbroker subscription ls --client spark --limit 10
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.cli.group import AdminGroup
from zbroker.cli.options import limit_option, text_option
from zbroker.control.target import Target

LIMIT_MAX: Final = 1_000  # of one answer of the admin

COLUMNS: Final = show.columns(
    "client:0 sid:4 topic:0 filter:5 options:5 state position:3 lag:0 lag_s in_hand:2 credit:3 "
    "sent_messages:4 sent_bytes:5 since:4 worker:5",
    sizes="credit sent_bytes",
)


@click.group(cls=AdminGroup)
def subscription() -> None:
    """List the subscribers, their lag, and what they wait for."""


@subscription.command()
@text_option("--client", "Only those of the client with this name.")
@text_option("--topic", "Only those on this topic or pattern, as it was asked.")
@limit_option(100, LIMIT_MAX, "Those with the largest lag.")
def ls(target: Target, client: str, topic: str, limit: int) -> None:
    """List subscriptions, the largest lag first.

    `lag` counts messages that its program has not handled: those not sent yet, and the `in_hand`
    that were, as long as their credit has not come back. `lag_s` is about the same in log time.
    `state` is why it waits: `sending`, `in hand` (all is sent, not all handled), `caught up`,
    `no credit` (its reader is slow), `paused`, `rate`, `future start`, `locating`,
    `not replicated` (a synchronous destination lacks what is next). A pattern of topics is shown
    between slashes.

    Example: zbroker-admin subscription ls --client spark --limit 10
    """
    found = target.ask("/subscriptions", {"client": client, "topic": topic, "limit": limit})
    rows = [shown(row) for row in found["subscriptions"]]
    empty = "there is no such subscription" if client or topic else "no client is subscribed"
    text = "{} does not answer: its subscriptions are not among these"
    notes = list(map(text.format, found["silent"]))
    if found["left_out"]:
        notes.append(f"{found['left_out']} more have a smaller lag; see --limit, --client, --topic")
    show.listing(target.as_json, found, COLUMNS, rows, empty, notes)


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table: patterns marked, waiting explained."""
    topic = f"/{row['topic']}/" if row["regex"] else row["topic"]
    state = row["state"]
    if row["due_ms"] is not None:
        state = f"{state}, next in {row['due_ms']} ms"
    elif row["starts"] is not None:
        state = f"{state}, {row['starts']}"
    return row | {"topic": topic, "state": state, "options": row["options"] or None}
