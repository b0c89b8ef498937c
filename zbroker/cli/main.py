"""`zbroker`: run an instance, publish to one, read from one."""

from __future__ import annotations

from typing import Final

import click

from zbroker.cli.group import LazyGroup

#: Adding a command is one line here and one file.
COMMANDS: Final = {
    "start": "zbroker.cli.start:start",
    "pub": "zbroker.cli.pub:pub",
    "sub": "zbroker.cli.sub:sub",
    "consume": "zbroker.cli.consume:consume",
    "bench": "zbroker.cli.bench:bench",
    "spark": "zbroker.cli.spark:spark",
    "demo": "zbroker.cli.demo:demo",
    "config": "zbroker.cli.config:config",
    "completion": "zbroker.cli.completion:completion",
}


@click.group("zbroker", cls=LazyGroup, table=COMMANDS)
def main() -> None:
    """A durable message broker whose log is the product."""


if __name__ == "__main__":
    main(prog_name="zbroker")
