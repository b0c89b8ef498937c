"""`zbroker-admin context rm`: forgets a context. Keys and passwords stay where they are.

zbroker-admin context rm trading
"""

from __future__ import annotations

import click

from zbroker.cli import show
from zbroker.cli.reaching import complete_context
from zbroker.control import contexts
from zbroker.control.target import Target


@click.command()
@click.argument("name", shell_complete=complete_context)
@show.dry_run_option
@show.json_option
@click.pass_obj
def rm(target: Target, name: str, dry_run: bool, json_here: bool) -> None:
    """Forget the context NAME. Files of keys and passwords stay.

    Example: zbroker-admin context rm trading
    """
    was_in_use = contexts.current() == name
    if not dry_run:
        contexts.remove(name)
    elif name not in contexts.names():
        contexts.load(name)
    if show.wants_json(target, json_here):
        show.as_json({"context": name, "dry_run": dry_run, "in_use": was_in_use})
        return
    what = "would be forgotten" if dry_run else "forgotten"
    click.echo(f"{name}: {what}{', and it is the one in use' if was_in_use else ''}")
