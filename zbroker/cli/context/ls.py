"""`zbroker-admin context ls`: every context; a broken one says what is wrong with it.

zbroker-admin context ls --json
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.control import contexts
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError

COLUMNS: Final = (
    show.text("context", 0),
    show.TableColumn("in_use"),
    show.TableColumn("url"),
    show.text("data_dir", 2),
    show.text("config", 2),
    show.text("key", 3),
    show.text("user", 3),
    show.TableColumn("problem"),
)


@click.command()
@show.json_option
@click.pass_obj
def ls(target: Target, json_here: bool) -> None:
    """List contexts.

    Example: zbroker-admin context ls
    """
    in_use = contexts.current()
    rows = [row(name) | {"in_use": name == in_use} for name in contexts.names()]
    if show.wants_json(target, json_here):
        show.as_json({"contexts": rows})
    elif rows:
        show.table(COLUMNS, [one | one["credentials"] for one in rows])
    else:
        click.echo("there is no context; zbroker-admin context add makes one")


def row(name: str) -> dict[str, Any]:
    """One context with every key that there may be."""
    problem = ""
    try:
        found = contexts.load(name)
    except ZBrokerError as error:
        found, problem = contexts.Context(), str(error)
    return {"context": name, **contexts.document(found), "problem": problem}
