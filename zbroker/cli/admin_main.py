"""`zbroker-admin`: look at an instance and manage it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from zbroker.cli.group import LazyGroup, commands
from zbroker.cli.options import ConnectionOptions, connection_options, flag_option
from zbroker.control.target import Target

#: A new command is one word here and a file, or a function in the file of its group.
COMMANDS: Final = {
    **commands("zbroker.cli.*:*", "status top check doctor journal topic client subscription"),
    **commands("zbroker.cli.*:*", "queue exchange binding session transaction point replication"),
    **commands("zbroker.cli.*:*", "action key access context"),
    "completion": "zbroker.cli.completion:admin_completion",
}

#: commands on files of the user, not on an instance: a broken context must not stop them
_NO_TARGET: Final = frozenset({"context", "completion", "key", "access"})


@click.group("zbroker-admin", cls=LazyGroup, table=COMMANDS)
@click.option("--url", help="The ingest URL of a running instance.")
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help="Its config file.")
@click.option("--data-dir", help="Its data directory; ./zbroker-data by default.")
@flag_option("--json", "Answer in JSON with stable keys.", "as_json")
@connection_options
@click.pass_context
def main(
    ctx: click.Context,
    *,
    url: str | None,
    path: Path | None,
    data_dir: str | None,
    as_json: bool,
    given: ConnectionOptions,
) -> None:
    """Look at an instance and manage it."""
    if ctx.invoked_subcommand in _NO_TARGET:
        ctx.obj = Target(url, path, data_dir, as_json, given.login)
        return
    found = given.resolve(url or "", data_dir or "", str(path or ""))
    ctx.obj = Target(
        found.url or None, Path(found.config) if found.config else None, found.data_dir or None,
        as_json, found.credentials,
    )  # fmt: skip


if __name__ == "__main__":
    main(prog_name="zbroker-admin")
