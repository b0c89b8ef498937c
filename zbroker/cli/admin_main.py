"""`zbroker-admin`: look at an instance and manage it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from zbroker.cli.group import LazyGroup
from zbroker.cli.target import Target

#: Adding a command is one line here and one file.
COMMANDS: Final = {
    "status": "zbroker.cli.status:status",
    "journal": "zbroker.cli.journal:journal",
    "action": "zbroker.cli.action:action",
    "subscription": "zbroker.cli.subscription:subscription",
}


@click.group("zbroker-admin", cls=LazyGroup, table=COMMANDS)
@click.option("--url", help="The ingest URL of a running instance.")
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help="Its config file.")
@click.option("--data-dir", help="Its data directory; ./zbroker-data by default.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON with stable keys.")
@click.pass_context
def main(
    ctx: click.Context, url: str | None, path: Path | None, data_dir: str | None, as_json: bool
) -> None:
    """Look at an instance and manage it."""
    ctx.obj = Target(url, path, data_dir, as_json)


if __name__ == "__main__":
    main(prog_name="zbroker-admin")
