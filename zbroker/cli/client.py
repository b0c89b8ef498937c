"""`zbroker-admin client`: the connected clients.

Without an instance there are none: exit code 3.

    zbroker-admin --data-dir /var/lib/zbroker client ls --client pricer
    zbroker-admin client disconnect pricer --dry-run
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.cli.group import AdminGroup
from zbroker.cli.options import dry_run_option, limit_option, text_option
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError

LIMIT_MAX: Final = 1_000  # of one answer of the admin

COLUMNS: Final = show.columns(
    "client:0 principal:3 door:0 address connected_s:2 acked:3 window_bytes:4 messages "
    "subscriptions:2 heartbeat_s:5 room:4",
    sizes="window_bytes",
)


@click.group(cls=AdminGroup)
def client() -> None:
    """See who is connected, and end a client's sessions."""


@client.command()
@text_option("--client", "Only connections of the client with this name.")
@limit_option(LIMIT_MAX, LIMIT_MAX)
def ls(target: Target, client: str, limit: int) -> None:
    """List connections, those of one client together.

    A client that publishes and reads has one at the ingest listener and one at a delivery listener
    for each line of subscriptions. `acked` is the sequence up to which it was acknowledged,
    `window_bytes` what it sent and was not acknowledged yet.

    Example: zbroker-admin client ls --client pricer
    """
    found = connections(target, client, limit)
    rows = sorted(found["clients"], key=lambda row: (row["client"], row["door"]))
    empty = "there is no such client" if client else "no client is connected"
    notes = [f"{name} does not answer: its clients are not among these" for name in found["silent"]]
    if found["left_out"]:
        notes.append(f"{found['left_out']} more; see --limit and --client")
    show.listing(target.as_json, found, COLUMNS, rows, empty, notes)


@client.command()
@click.argument("name")
@dry_run_option
def disconnect(target: Target, name: str, dry_run: bool) -> None:
    """End the sessions of the client NAME on every listener.

    Nothing that was acknowledged is lost. What it had sent and was not acknowledged, it keeps.

    Example: zbroker-admin client disconnect pricer --dry-run
    """
    if dry_run:
        rows = connections(target, name)["clients"]
        count = len(rows)
        if rows and not target.as_json:
            show.table(COLUMNS, rows)
    else:
        count = target.admin().tell("/clients/disconnect", {"client": name})["disconnected"]
    if not count:
        raise ZBrokerError("not_found", f"there is no client {name!r}", "zbroker-admin client ls")
    done = "would be ended" if dry_run else "ended"
    text = f"{name}: {count} connection{'' if count == 1 else 's'} {done}"
    document = {"client": name, "dry_run": dry_run, "disconnected": count}
    show.answer(target.as_json, document, text)


def connections(target: Target, client: str = "", limit: int = LIMIT_MAX) -> dict[str, Any]:
    """A row for each connection, as the admin reports them. Raises: ZBrokerError."""
    return target.ask("/clients", {"client": client, "limit": limit})
