"""`zbroker-admin action`: the actions on segments, by the policy or by hand, and why.

Both commands ask the running instance; without one they read <data>/actions. Per action: id, time,
what, by whom (policy or hand), why, serials, bytes, result.

    zbroker-admin --data-dir /var/lib/zbroker action ls --limit 10
    zbroker-admin action show 42
"""

from __future__ import annotations

import logging
from typing import Any, Final

import click
import msgspec

from zbroker.admin.history import History
from zbroker.cli import show
from zbroker.cli.group import AdminGroup
from zbroker.cli.options import limit_option
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError

COLUMNS: Final = show.columns(
    "id:0 time action:0 by:3 serials bytes:3 result:0 took_s:4 why:2 reason:2", sizes="bytes"
)


@click.group(cls=AdminGroup)
def action() -> None:
    """See what was archived, compressed and removed, and why."""


@action.command()
@limit_option(20, what="The newest ones.")
def ls(target: Target, limit: int) -> None:
    """List what was archived, compressed, removed and rebuilt, newest first.

    Example: zbroker-admin --data-dir /var/lib/zbroker action ls --limit 10
    """
    found = actions_of(target)
    newest = found["actions"][:limit]
    document = {"running": found["running"], "actions": newest}
    rows = [shortened(row) for row in newest]
    show.listing(target.as_json, document, COLUMNS, rows, "nothing was done yet")


@action.command("show")
@click.argument("number", metavar="ID", type=click.IntRange(min=1))
def show_one(target: Target, number: int) -> None:
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
    show.answer(target.as_json, found, sizes=("bytes",))


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
