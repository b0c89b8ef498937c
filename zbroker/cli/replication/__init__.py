"""`zbroker-admin replication`: the links to other instances and from them, and changes to them.

A running instance answers and does it. Exit code 3: there is none, or no such link.

    zbroker-admin --data-dir /var/lib/zbroker replication ls
    zbroker-admin replication info b
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup, commands

COMMANDS: Final = {
    **commands("zbroker.cli.replication.queries:*", "ls info missing"),
    **commands("zbroker.cli.replication.lag:*", "lag"),
    **commands("zbroker.cli.replication.compare:*", "compare"),
    **commands(
        "zbroker.cli.replication.changes:*",
        "pause resume downgrade upgrade skip forget fresh fork",
    ),
    **commands("zbroker.cli.replication.drain:*", "drain"),
    **commands("zbroker.cli.replication.configs:*", "validate"),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def replication() -> None:
    """Show and change the links to other instances; compare their logs."""
