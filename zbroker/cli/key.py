"""`zbroker-admin key`: keys of brokers and clients, and hashes of passwords. No instance is asked.

zbroker-admin key new /etc/zbroker/broker
zbroker-admin key show /etc/zbroker/broker.key
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from zbroker.access import keys
from zbroker.access.passwords import hash_password
from zbroker.cli import show
from zbroker.cli.group import AdminGroup
from zbroker.cli.options import flag_option
from zbroker.control.target import Target


@click.group(cls=AdminGroup)
def key() -> None:
    """Make and show keys, and hashes of passwords."""


@key.command()
@click.argument("path", type=click.Path(path_type=Path))
@flag_option("--force", "Put new keys in place of those that are there.")
def new(target: Target, path: Path, force: bool) -> None:
    """Make a key pair in PATH.key_secret and PATH.key, and print the public key.

    Example: zbroker-admin key new /etc/zbroker/broker
    """
    public = keys.make(path, force=force).public
    files = {
        "public_file": str(keys.public_path(path)),
        "secret_file": str(keys.secret_path(path)),
    }
    show.answer(target.as_json, {"public": public, **files}, public)
    if not target.as_json:
        show.warn(f"wrote {files['secret_file']} (keep it secret) and {files['public_file']}")


@key.command("show")
@click.argument("path", type=click.Path(path_type=Path))
def show_public(target: Target, path: Path) -> None:
    """Print the public key of a key file.

    Example: zbroker-admin key show /etc/zbroker/broker.key
    """
    is_named = path.name.endswith((keys.PUBLIC_SUFFIX, keys.SECRET_SUFFIX))
    public = keys.load_public(path if is_named else keys.public_path(path))
    show.answer(target.as_json, {"public": public}, public)


@key.command(cls=click.Command)
@flag_option("--stdin", "Read one line instead of asking twice.", "from_stdin")
def password(from_stdin: bool) -> None:
    """Print the hash of a password, for the access file.

    Example: zbroker-admin key password
    """
    if from_stdin:
        given = sys.stdin.readline().rstrip("\r\n")
    else:
        given = click.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
    try:
        click.echo(hash_password(given))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
