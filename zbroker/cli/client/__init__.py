"""`zbroker-admin client`: the connected clients.

zbroker-admin --data-dir /var/lib/zbroker client ls
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup

#: Adding a command is one line here and one file.
COMMANDS: Final = {
    "ls": "zbroker.cli.client.ls:ls",
    "disconnect": "zbroker.cli.client.disconnect:disconnect",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def client() -> None:
    """See who is connected, and end a client's sessions."""
