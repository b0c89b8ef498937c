"""`zbroker-admin action show ID`: one action.

Asks the running instance (GET /actions/ID); without one reads <data>/actions. Exit code 3 if there
is no such action.

    zbroker-admin --data-dir /var/lib/zbroker action show 42
"""

from __future__ import annotations

import click

from zbroker.cli import show
from zbroker.cli.action.ls import actions_of
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError


@click.command("show")
@click.argument("number", metavar="ID", type=click.IntRange(min=1))
@show.json_option
@click.pass_obj
def show_one(target: Target, number: int, json_here: bool) -> None:
    """Show one action: its segments, its reason and its result.

    Example: zbroker-admin --data-dir /var/lib/zbroker action show 42
    """
    admin = target.running()
    if admin is not None:
        found = admin.ask(f"/actions/{number}")
    else:
        kept = [one for one in actions_of(target)["actions"] if one["id"] == number]
        if not kept:
            raise ZBrokerError("not_found", f"there is no action {number}", "see `action ls`")
        found = kept[0]
    if show.wants_json(target, json_here):
        show.as_json(found)
    else:
        show.facts(found, sizes=("bytes",))
