"""`zbroker-admin session`: sessions with transactions.

zbroker-admin --data-dir /var/lib/zbroker session ls
zbroker-admin session end billing --principal shop --dry-run
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.admin.requests import ROWS_MAX
from zbroker.cli import show
from zbroker.cli.group import AdminGroup
from zbroker.cli.options import dry_run_option, limit_option, text_option
from zbroker.config.units import format_duration
from zbroker.control.target import Target

COLUMNS: Final = show.columns(
    "principal:0 session:0 client:0 state:0 timeout:1 ended:1 begun number:0 messages:1 position:2 "
    "instance:3"
)


@click.group(cls=AdminGroup)
def session() -> None:
    """See sessions with transactions; end one."""


@session.command()
@text_option("--principal", "Only of this principal.")
@text_option("--session", "Only of this name.")
@limit_option(ROWS_MAX, ROWS_MAX)
def ls(target: Target, principal: str, session: str, limit: int) -> None:
    """List sessions, by principal and name.

    `client` has it attached to this instance now. `begun`: when it was attached last, by the clock
    of that `instance`. `number`, `messages` and `position` are those of its last transaction: 0 if
    there is none, and for the position if that is not known here.

    `timeout` is how long it is kept without a connection. `state`: attached; waiting for its
    program, until then; ended, and `ended` says why; "-": it is not attached here, and has no
    time-out, or another instance keeps it.

    Example: zbroker-admin session ls --principal shop
    """
    found = target.ask("/sessions", {"principal": principal, "session": session, "limit": limit})
    count = found["left_out"]
    notes = [f"{count} more; see session ls --principal"] if count else []
    rows = [_shown(row) for row in found["sessions"]]
    show.listing(
        target.as_json, found, COLUMNS, rows, "there is no such session"
        if principal or session else "there is no session", notes,
    )  # fmt: skip


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """The columns of one."""
    timeout_ms = row["timeout_ms"]
    said = ": ".join(part for part in (row["ended"], row["code"], row["text"]) if part)
    return row | {"timeout": format_duration(timeout_ms) if timeout_ms else "", "ended": said}


@session.command()
@click.argument("name")
@text_option("--principal", "Whose it is; without security there is none.")
@dry_run_option
def end(target: Target, name: str, principal: str, dry_run: bool) -> None:
    """End the session NAME: nothing that has it attached commits any more.

    Its open transaction is rolled back. A program that attaches it again goes on from there.

    Example: zbroker-admin session end billing --principal shop
    """
    body = {"session": name, "principal": principal, "dry_run": dry_run}
    found = target.admin().tell("/sessions/end", body)
    count = found["attached"]
    had = f"{count} connection{'' if count == 1 else 's'} of this instance had it attached"
    done = "it would be ended (dry run)" if dry_run else "ended"
    show.answer(target.as_json, found, f"{name}: {done}; {had}")
