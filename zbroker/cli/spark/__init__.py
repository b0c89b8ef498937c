"""`zbroker spark`: jobs over the log.

zbroker spark export zbroker-data --to /mnt/lake/log
zbroker spark audit zbroker-data --against tcp://10.0.0.2:9101
"""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup, commands

#: Adding a command is one line here and one file.
COMMANDS: Final = commands("zbroker.cli.spark.*:*", "export audit stats backfill reprocess")


@click.group(cls=LazyGroup, table=COMMANDS)
def spark() -> None:
    """Run a job over the log with Spark; the `spark` extra has what that needs."""
