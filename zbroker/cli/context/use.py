"""`zbroker-admin context use`: the context that counts where none is named.

zbroker-admin context use trading
zbroker-admin context use --none
"""

from __future__ import annotations

import click

from zbroker.cli import show
from zbroker.cli.reaching import complete_context
from zbroker.control import contexts
from zbroker.control.target import Target


@click.command()
@click.argument("name", required=False, shell_complete=complete_context)
@click.option("--none", "nothing", is_flag=True, help="Use none from now on.")
@show.json_option
@click.pass_obj
def use(target: Target, name: str | None, nothing: bool, json_here: bool) -> None:
    """Have the context NAME count where none is named.

    An option that says where the instance is, or another --context, wins over it.

    Example: zbroker-admin context use trading
    """
    if (name is None) != nothing:
        raise click.UsageError("give NAME, or --none")
    if name is None:
        contexts.use_none()
    else:
        contexts.use(name)
    if show.wants_json(target, json_here):
        show.as_json({"context": name})
    else:
        click.echo(f"{name or 'no context'} is in use")
