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

from zbroker.cli.group import LazyGroup, commands

_HERE: Final = "zbroker.cli.journal"

COMMANDS: Final = {
    **commands(f"{_HERE}.info:*", "ls info"),
    **commands(f"{_HERE}.*:*", "dump search grep"),
    "verify": f"{_HERE}.verify:verify_command",
    **commands(f"{_HERE}.*:*", "repair"),
    **commands(f"{_HERE}.segment_actions:*", "archive compress remove"),
    **commands(f"{_HERE}.*:*", "holders conflicts"),
    "rebuild-index": f"{_HERE}.maintenance:rebuild_index",
    **commands(f"{_HERE}.*:*", "export"),
    "new-generation": f"{_HERE}.maintenance:new_generation",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def journal() -> None:
    """Look at the log, and manage its files."""
