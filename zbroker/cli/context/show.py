"""`zbroker-admin context show`: one context, by default the one that counts now.

zbroker-admin context show trading
"""

from __future__ import annotations

import os

import click

from zbroker.cli import show
from zbroker.cli.reaching import complete_context
from zbroker.control import contexts
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError


@click.command("show")
@click.argument("name", required=False, shell_complete=complete_context)
@show.json_option
@click.pass_obj
def show_context(target: Target, name: str | None, json_here: bool) -> None:
    """Show the context NAME, or the one that counts now.

    Example: zbroker-admin context show trading
    """
    name = name or os.environ.get(contexts.ENVIRONMENT) or contexts.current()
    if not name:
        raise ZBrokerError("not_found", "no context is in use", "zbroker-admin context use NAME")
    found = contexts.document(contexts.load(name))
    if show.wants_json(target, json_here):
        show.as_json({"context": name, **found, "in_use": name == contexts.current()})
        return
    flat = {"context": name, **found, **found["credentials"]}
    del flat["credentials"]
    show.facts(flat)
