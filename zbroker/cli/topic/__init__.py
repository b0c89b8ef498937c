"""`zbroker-admin topic`: what the log holds, by topic.

zbroker-admin --data-dir /var/lib/zbroker topic ls --match 'orders.*'
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup

#: Adding a command is one line here and one file.
COMMANDS: Final = {"ls": "zbroker.cli.topic.ls:ls"}


@click.group(cls=LazyGroup, table=COMMANDS)
def topic() -> None:
    """See what the log holds, by topic."""
