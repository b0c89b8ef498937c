"""`zbroker-admin key`: keys of brokers and clients, and hashes of passwords. No instance is asked.

zbroker-admin key new /etc/zbroker/broker
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup

#: Adding a command is one line here and one file.
COMMANDS: Final = {
    "new": "zbroker.cli.key.new:new",
    "show": "zbroker.cli.key.show:show",
    "password": "zbroker.cli.key.password:password",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def key() -> None:
    """Make and show keys, and hashes of passwords."""
