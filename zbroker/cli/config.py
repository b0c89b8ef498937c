"""`zbroker config`: look at settings without starting anything.

zbroker config check -c zbroker.toml      exit 0, or 78 with file, line and what to write instead
zbroker config show -c zbroker.toml       every setting as it would be used
zbroker config example > zbroker.toml     every setting with its default and what it is for
"""

from __future__ import annotations

from pathlib import Path

import click

from zbroker import config as settings
from zbroker.cli.group import add_version
from zbroker.server import security

_file = click.option(
    "-c", "--config", "path", type=click.Path(path_type=Path), help="The config file."
)


@click.group()
def config() -> None:
    """Check a config file, or show settings."""


@config.command()
@_file
def check(path: Path | None) -> None:
    """Say whether a config file can be used."""
    security.check(settings.load(path))
    click.echo(f"{path or 'defaults'}: ok")


@config.command()
@_file
def show(path: Path | None) -> None:
    """Print every setting as it would be used."""
    click.echo(settings.to_toml(settings.load(path)), nl=False)


@config.command()
def example() -> None:
    """Print every setting with its default and what it is for."""
    click.echo(settings.example(), nl=False)


for _command in config.commands.values():
    add_version(_command)
