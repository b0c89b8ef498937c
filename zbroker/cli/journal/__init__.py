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

COMMANDS: Final = {
    "ls": f"{_HERE}.info:ls",
    "info": f"{_HERE}.info:info",
    "dump": f"{_HERE}.dump:dump",
    "search": f"{_HERE}.search:search",
    "grep": f"{_HERE}.grep:grep",
    "verify": f"{_HERE}.verify:verify_command",
    "repair": f"{_HERE}.repair:repair",
    "archive": f"{_HERE}.segment_actions:archive",
    "compress": f"{_HERE}.segment_actions:compress",
    "remove": f"{_HERE}.segment_actions:remove",
    "holders": f"{_HERE}.holders:holders",
    "conflicts": f"{_HERE}.conflicts:conflicts",
    "rebuild-index": f"{_HERE}.maintenance:rebuild_index",
    "export": f"{_HERE}.export:export",
    "new-generation": f"{_HERE}.maintenance:new_generation",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def journal() -> None:
    """Look at the log, and manage its files."""
