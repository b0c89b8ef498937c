"""`zbroker-admin context`: how instances are reached, kept under names.

zbroker-admin context add trading --url tcp://10.0.0.5:9101 --key me.key_secret --server-key b.key
zbroker-admin context use trading
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup

#: Adding a command is one line here and one file.
COMMANDS: Final = {
    "add": "zbroker.cli.context.add:add",
    "use": "zbroker.cli.context.use:use",
    "ls": "zbroker.cli.context.ls:ls",
    "show": "zbroker.cli.context.show:show_context",
    "rm": "zbroker.cli.context.rm:rm",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def context() -> None:
    """Keep under a name how an instance is reached, with which keys.

    Both programs take them: --context NAME, else ZBROKER_CONTEXT, else the one in use.
    """
