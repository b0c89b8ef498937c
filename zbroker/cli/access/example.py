"""`zbroker-admin access example`: an access file with comments, to begin with.

zbroker-admin access example > access.toml
"""

from __future__ import annotations

import click

from zbroker.access.format import EXAMPLE


@click.command()
def example() -> None:
    """Print an access file with comments, to begin with.

    Example: zbroker-admin access example > access.toml
    """
    click.echo(EXAMPLE, nl=False)
