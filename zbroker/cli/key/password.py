"""`zbroker-admin key password`: the hash of a password, for `password` in the access file.

Asks for the password twice, or reads one line from stdin. Exit 2: it is empty or too long.

    zbroker-admin key password
"""

from __future__ import annotations

import sys

import click

from zbroker.access.passwords import hash_password


@click.command()
@click.option("--stdin", "from_stdin", is_flag=True, help="Read one line instead of asking twice.")
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
