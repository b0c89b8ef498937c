"""`zbroker-admin queue`: what queues hold, who takes it, why nothing is delivered; changes.

A running instance answers and does it. Exit code 3: there is none, or no such queue.

    zbroker-admin --data-dir /var/lib/zbroker queue ls
    zbroker-admin queue explain work
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup, commands

COMMANDS: Final = {
    **commands("zbroker.cli.queue.queries:*", "ls info browse explain"),
    **commands("zbroker.cli.queue.purge:*", "purge"),
    **commands("zbroker.cli.queue.changes:*", "requeue create alter delete"),
    **commands("zbroker.cli.queue.takeover:*", "takeover"),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def queue() -> None:
    """See what queues hold and why they wait, and change them."""
