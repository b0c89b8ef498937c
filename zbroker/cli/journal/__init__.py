"""`zbroker-admin journal`: look at the log, and manage its files.

What only reads works on the files, also while the instance runs. What changes something is done by
the running instance, over its admin; without one, here, under the lock of the journal directory.
`--data-dir`, `-c` or `--url` say which instance.

    zbroker-admin --data-dir /var/lib/zbroker journal ls
    zbroker-admin journal remove --before 20260101T000000Z --dry-run
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup

_HERE: Final = "zbroker.cli.journal"

#: Adding a command is one line here and one file.
COMMANDS: Final = {
    "ls": f"{_HERE}.ls:ls",
    "info": f"{_HERE}.info:info",
    "dump": f"{_HERE}.dump:dump",
    "search": f"{_HERE}.search:search",
    "grep": f"{_HERE}.grep:grep",
    "verify": f"{_HERE}.verify:verify",
    "repair": f"{_HERE}.repair:repair",
    "archive": f"{_HERE}.archive:archive",
    "compress": f"{_HERE}.compress:compress",
    "remove": f"{_HERE}.remove:remove",
    "holders": f"{_HERE}.holders:holders",
    "conflicts": f"{_HERE}.conflicts:conflicts",
    "rebuild-index": f"{_HERE}.rebuild_index:rebuild_index",
    "export": f"{_HERE}.export:export",
    "new-generation": f"{_HERE}.new_generation:new_generation",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def journal() -> None:
    """Look at the log, and manage its files."""
