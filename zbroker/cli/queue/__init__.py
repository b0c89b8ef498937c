"""`zbroker-admin queue`: what queues hold, who takes it, why nothing is delivered; changes.

zbroker-admin --data-dir /var/lib/zbroker queue ls
zbroker-admin queue explain work
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup

_HERE: Final = "zbroker.cli.queue"

#: Adding a command is one line here and one file.
COMMANDS: Final = {
    "ls": f"{_HERE}.ls:ls",
    "info": f"{_HERE}.info:info",
    "browse": f"{_HERE}.browse:browse",
    "explain": f"{_HERE}.explain:explain",
    "purge": f"{_HERE}.purge:purge",
    "requeue": f"{_HERE}.requeue:requeue",
    "create": f"{_HERE}.create:create",
    "alter": f"{_HERE}.alter:alter",
    "delete": f"{_HERE}.delete:delete",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def queue() -> None:
    """See what queues hold and why they wait, and change them."""
