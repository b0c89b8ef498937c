"""`zbroker-admin queue`: what queues hold, who takes it, why nothing is delivered; changes.

A running instance answers and does it. Exit code 3: there is none, or no such queue.

    zbroker-admin --data-dir /var/lib/zbroker queue ls
    zbroker-admin queue explain work
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup

_QUERIES: Final = "zbroker.cli.queue.queries"
_CHANGES: Final = "zbroker.cli.queue.changes"
COMMANDS: Final = {
    "ls": f"{_QUERIES}:ls",
    "info": f"{_QUERIES}:info",
    "browse": f"{_QUERIES}:browse",
    "explain": f"{_QUERIES}:explain",
    "purge": "zbroker.cli.queue.purge:purge",
    "requeue": f"{_CHANGES}:requeue",
    "create": f"{_CHANGES}:create",
    "alter": f"{_CHANGES}:alter",
    "delete": f"{_CHANGES}:delete",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def queue() -> None:
    """See what queues hold and why they wait, and change them."""
