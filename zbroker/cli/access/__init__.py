"""`zbroker-admin access`: look at an access file. No instance is asked.

zbroker-admin access check /etc/zbroker/access.toml
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup

#: Adding a command is one line here and one file.
COMMANDS: Final = {
    "check": "zbroker.cli.access.check:check",
    "explain": "zbroker.cli.access.explain:explain",
    "example": "zbroker.cli.access.example:example",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def access() -> None:
    """Check an access file, and ask it who may do what."""
