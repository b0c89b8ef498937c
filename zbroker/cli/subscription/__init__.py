"""`zbroker-admin subscription`: who reads, how far behind, and what it waits for.

zbroker-admin --data-dir /var/lib/zbroker subscription ls --limit 10
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup

#: Adding a command is one line here and one file.
COMMANDS: Final = {"ls": "zbroker.cli.subscription.ls:ls"}


@click.group(cls=LazyGroup, table=COMMANDS)
def subscription() -> None:
    """See who reads, how far behind, and what it waits for."""
