"""`zbroker-admin point`: places of the log with a name.

zbroker-admin --data-dir /var/lib/zbroker point set end-of-day
zbroker-admin point ls
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup

#: Adding a command is one line here and one file.
COMMANDS: Final = {
    "set": "zbroker.cli.point.set:set_one",
    "ls": "zbroker.cli.point.ls:ls",
    "rm": "zbroker.cli.point.rm:rm",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def point() -> None:
    """Give places of the log a name."""
