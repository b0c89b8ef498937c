"""`zbroker-admin action`: the actions on segments, by the policy or by hand, and why.

zbroker-admin --data-dir /var/lib/zbroker action ls --limit 10
zbroker-admin action show 42
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup

#: Adding a command is one line here and one file.
COMMANDS: Final = {
    "ls": "zbroker.cli.action.ls:ls",
    "show": "zbroker.cli.action.show:show_one",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def action() -> None:
    """See what was archived, compressed and removed, and why."""
