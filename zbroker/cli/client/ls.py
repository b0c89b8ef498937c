"""`zbroker-admin client ls`: a row per connection of a client.

Asks the running instance (GET /clients). Answer: per connection the door, client, principal,
address, how long it has been there, and what it did; rooms that did not answer; how many were left
out. Without an instance there are none: exit code 3.

    zbroker-admin --data-dir /var/lib/zbroker client ls --client pricer
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.control.target import Target

LIMIT_MAX: Final = 1_000  # of one answer of the admin

COLUMNS: Final = (
    show.text("client", 0),
    show.text("principal", 3),
    show.text("door", 0),
    show.TableColumn("address"),
    show.number("connected_s", 2),
    show.number("acked", 3),
    show.byte_size("window_bytes", 4),
    show.number("messages"),
    show.number("subscriptions", 2),
    show.number("heartbeat_s", 5),
    show.text("room", 4),
)


@click.command()
@click.option("--client", default="", help="Only connections of the client with this name.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=LIMIT_MAX),
    default=LIMIT_MAX,
    show_default=True,
    help="So many at most.",
)
@show.json_option
@click.pass_obj
def ls(target: Target, client: str, limit: int, json_here: bool) -> None:
    """List connections, those of one client together.

    A client that publishes and reads has one at the ingest door and one at a delivery door for
    each line of subscriptions. `acked` is the sequence up to which it was acknowledged,
    `window_bytes` what it sent and was not acknowledged yet.

    Example: zbroker-admin client ls --client pricer
    """
    found = connections(target, client, limit)
    if show.wants_json(target, json_here):
        show.as_json(found)
        return
    rows = sorted(found["clients"], key=lambda row: (row["client"], row["door"]))
    if rows:
        show.table(COLUMNS, rows)
    else:
        click.echo("there is no such client" if client else "no client is connected")
    for room in found["silent"]:
        show.warn(f"{room} does not answer: its clients are not among these")
    if found["left_out"]:
        show.warn(f"{found['left_out']} more; see --limit and --client")


def connections(target: Target, client: str = "", limit: int = LIMIT_MAX) -> dict[str, Any]:
    """What the admin says of them. Raises: ZBrokerError."""
    return target.ask("/clients", {"client": client, "limit": limit})
