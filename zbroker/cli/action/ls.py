"""`zbroker-admin action ls`: the actions on segments, newest first.

Asks the running instance (GET /actions); without one reads <data>/actions. Answer: per action id,
time, what, by whom (policy or hand), why, serials, bytes, result.

    zbroker-admin --data-dir /var/lib/zbroker action ls --limit 10
"""

from __future__ import annotations

import logging
from typing import Any, Final

import click
import msgspec

from zbroker.admin.history import History
from zbroker.cli import show
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError

COLUMNS: Final = (
    show.number("id", 0),
    show.TableColumn("time"),
    show.text("action", 0),
    show.text("by", 3),
    show.TableColumn("serials"),
    show.byte_size("bytes", 3),
    show.text("result", 0),
    show.number("took_s", 4),
    show.text("why", 2),
    show.text("reason", 2),
)


@click.command()
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="The newest ones."
)
@show.json_option
@click.pass_obj
def ls(target: Target, limit: int, json_here: bool) -> None:
    """List what was archived, compressed, removed and rebuilt, newest first.

    Example: zbroker-admin --data-dir /var/lib/zbroker action ls --limit 10
    """
    found = actions_of(target)
    newest = found["actions"][:limit]
    if show.wants_json(target, json_here):
        show.as_json({"running": found["running"], "actions": newest})
    elif newest:
        show.table(COLUMNS, [shortened(row) for row in newest])
    else:
        click.echo("nothing was done yet")


def actions_of(target: Target) -> dict[str, Any]:
    """The answer of the instance, or the content of its file. Raises: ZBrokerError not_found."""
    admin = target.running()
    if admin is not None:
        return admin.ask("/actions")
    path = target.paths().actions
    if not path.exists():
        reason = f"no instance runs on {path.parent}, and nothing was done to its segments"
        raise ZBrokerError("not_found", reason, "see --data-dir, -c and --url")
    kept = History(path, logging.getLogger("zbroker-admin")).newest()
    return {"running": None, "actions": msgspec.to_builtins(kept)}


def shortened(row: dict[str, Any]) -> dict[str, Any]:
    """An action whose serials are a range where they are one."""
    serials = row["serials"]
    if len(serials) > 1 and serials == list(range(serials[0], serials[-1] + 1)):
        return row | {"serials": f"{serials[0]}-{serials[-1]}"}
    return row
