"""`zbroker-admin key show PATH`: the public key of a file; a secret one is never shown.

PATH is NAME.key, NAME.key_secret, or NAME, which means NAME.key.

    zbroker-admin key show /etc/zbroker/broker.key
"""

from __future__ import annotations

from pathlib import Path

import click

from zbroker.access import keys
from zbroker.cli import show as shows
from zbroker.control.target import Target


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@shows.json_option
@click.pass_obj
def show(target: Target, path: Path, json_here: bool) -> None:
    """Print the public key of a key file.

    Example: zbroker-admin key show /etc/zbroker/broker.key
    """
    is_named = path.name.endswith((keys.PUBLIC_SUFFIX, keys.SECRET_SUFFIX))
    public = keys.load_public(path if is_named else keys.public_path(path))
    if shows.wants_json(target, json_here):
        shows.as_json({"public": public})
    else:
        click.echo(public)
