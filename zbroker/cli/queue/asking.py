"""The common part of commands about one queue: its name, its paths, the report of a change."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from zbroker.cli import show
from zbroker.cli.completion import complete_queue
from zbroker.control.target import Target

Document = dict[str, Any]
Wanted = dict[str, str | int]  # of a query

name_argument = click.argument("name", shell_complete=complete_queue)


def path_of(name: str, what: str = "") -> str:
    """Where the admin tells of this queue, or changes it. Raises: UsageError."""
    if not name:
        raise click.UsageError("the name of a queue is not empty")
    return f"/queues/{quote(name, safe='')}" + (f"/{what}" if what else "")


def change(target: Target, name: str, what: str, body: Document) -> Document:
    """Has it changed by the instance; what became of it. Raises: ZBrokerError."""
    return target.admin().tell(path_of(name, what), body)


def say(found: Document, line: str, *, in_json: bool) -> None:
    """The outcome of a change; a dry run is marked, and additions of the instance follow."""
    if in_json:
        show.as_json(found)
        return
    click.echo(f"{found['queue']}: {line}{' (dry run)' if found['dry_run'] else ''}")
    if found.get("text"):
        click.echo(found["text"])


def messages(count: int) -> str:
    """`1 message`, `2 messages`."""
    return f"{count} message{'' if count == 1 else 's'}"
