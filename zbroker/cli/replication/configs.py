"""`zbroker-admin replication validate`: configs of several instances, before any of them runs.

Answer: `mismatches`: `level`, `instance`, `text`, `fix`. Exit code 1: at least one is an error.

    zbroker-admin replication validate a.toml b.toml c.toml
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from zbroker import config as settings
from zbroker.access import file as access_file
from zbroker.access import format as access_format
from zbroker.access import keys
from zbroker.cli import show
from zbroker.cli.group import EX_ERROR, AdminCommand
from zbroker.cli.replication.queue_validation import queue_mismatches
from zbroker.cli.replication.validation import ERROR, Host, mismatches
from zbroker.control.target import Target
from zbroker.errors import ConfigError

COLUMNS: Final = show.columns("level:0 instance:0 text:0 fix:0")


@click.command(cls=AdminCommand)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def validate(target: Target, files: tuple[Path, ...]) -> None:
    """Compare the configs FILES of instances that are to replicate: can they, and as promised?

    Each is checked by itself first, then their links, and the queues that are on several of them.
    Keys and access files that are not on this host are left out. Nothing has to run.

    Example: zbroker-admin replication validate a.toml b.toml
    """
    hosts = [_host(file) for file in files]
    found = [*mismatches(hosts), *queue_mismatches(hosts)]
    found.sort(key=lambda one: one.level != ERROR)
    rows = [one._asdict() for one in found]
    empty = f"{len(files)} configs: nothing is wrong between them"
    show.listing(target.as_json, {"mismatches": rows}, COLUMNS, rows, empty)
    if any(one.level == ERROR for one in found):
        raise SystemExit(EX_ERROR)


def _host(file: Path) -> Host:
    """A config with what of its keys and rules can be read. Raises: ConfigError."""
    loaded = settings.load(file)
    if not loaded.security.on:
        return Host(str(file), loaded)
    public, access = "", None
    try:
        public = keys.load_secret(Path(loaded.security.key)).public
        path = Path(loaded.security.access)
        access = access_format.parse(access_file.read(path)[0], str(path))
    except ConfigError as error:
        click.echo(f"{file}: {error.reason}; what needs it is not checked", err=True)
    return Host(str(file), loaded, public, access)
