"""`zbroker-admin key new PATH`: a pair of CURVE keys, in two files.

Writes PATH.key_secret (0600: both keys) and PATH.key (0644: the public one), and prints the public
one, which goes into the access file, or to clients as the broker's. Exit 1: one of them is there.

    zbroker-admin key new /etc/zbroker/broker
"""

from __future__ import annotations

from pathlib import Path

import click

from zbroker.access import keys
from zbroker.cli import show as shows
from zbroker.control.target import Target


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Put new keys in place of those that are there.")
@shows.json_option
@click.pass_obj
def new(target: Target, path: Path, force: bool, json_here: bool) -> None:
    """Make a key pair in PATH.key_secret and PATH.key, and print the public key.

    Example: zbroker-admin key new /etc/zbroker/broker
    """
    public = keys.make(path, force=force).public
    secret_file, public_file = str(keys.secret_path(path)), str(keys.public_path(path))
    if shows.wants_json(target, json_here):
        shows.as_json({"public": public, "public_file": public_file, "secret_file": secret_file})
        return
    click.echo(public)
    shows.warn(f"wrote {secret_file} (keep it secret) and {public_file}")
