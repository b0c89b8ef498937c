"""`zbroker`: run an instance, publish to one, read from one."""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup, commands

#: Adding a command is one word here and one file.
COMMANDS: Final = commands(
    "zbroker.cli.*:*", "start pub sub consume bench spark demo config completion"
)


@click.group("zbroker", cls=LazyGroup, table=COMMANDS)
def main() -> None:
    """A durable message broker whose log is the product."""


if __name__ == "__main__":
    main(prog_name="zbroker")
