"""`zbroker-admin subscription`: the subscribers, their lag, and what they wait for.

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
    """List the subscribers, their lag, and what they wait for."""
