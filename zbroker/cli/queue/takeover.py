"""`zbroker-admin queue takeover`: what an instance owns that is away is offered by this one.

Answer: `queue`, `dry_run`, `count`, `text`.

    zbroker-admin queue takeover work --from a --dry-run
    zbroker-admin queue takeover work --from 10b714bc24174273 --yes
"""

from __future__ import annotations

import re
import sys
from typing import Final

import click

from zbroker.cli.group import AdminCommand
from zbroker.cli.options import dry_run_option, flag_option
from zbroker.cli.queue.changes import change, messages, report
from zbroker.cli.queue.queries import name_argument
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError

_ID: Final = re.compile("[0-9a-f]{16}")


@click.command(cls=AdminCommand)
@name_argument
@click.option(
    "--from", "owner", required=True, metavar="INSTANCE", help="Its name, or its 16 hex digits."
)
@flag_option("--may-duplicate", "Also of an at-most-once queue: some may come twice.")
@dry_run_option
@flag_option("--yes", "Do not ask.")
def takeover(
    target: Target, name: str, owner: str, may_duplicate: bool, dry_run: bool, yes: bool
) -> None:
    """Offer here what another instance owns of the queue NAME, which is away.

    All of it is flagged `redelivered`: the other instance may have delivered some. It keeps what is
    published there later. If it is not away, it stops to offer these messages when it reads the
    record, and a message may be with a consumer of each until then. Messages whose acknowledgement
    there has not arrived here yet come again: wait for the links to other instances first.

    Example: zbroker-admin queue takeover work --from a --dry-run
    """
    instance, called = _instance(target, owner)
    body = {"instance": instance, "called": called, "may_duplicate": may_duplicate}
    if dry_run or not yes:
        if not dry_run and (target.as_json or not sys.stdin.isatty()):
            raise click.UsageError("messages may come twice: give --yes, or --dry-run first")
        planned = change(target, name, "takeover", body | {"dry_run": True})
        if dry_run:
            report(target, planned, f"{messages(planned['count'])} would be taken over")
            return
        text = f"{messages(planned['count'])} of {name} come from here, flagged"
        click.confirm(f"{text}; go on?", abort=True)
    found = change(target, name, "takeover", body)
    report(target, found, f"{messages(found['count'])} taken over")


def _instance(target: Target, owner: str) -> tuple[str, str]:
    """Id and name of an instance. Raises: ZBrokerError, if no link knows it."""
    links = target.ask("/replication")["links"]
    for link in links:
        if owner in (link["name"], link["instance"]) and link["instance"]:
            return link["instance"], link["name"]
    if _ID.fullmatch(owner):
        return owner, ""
    raise ZBrokerError(
        "not_found", f"no link knows the id of {owner!r}",
        "give its 16 hex digits: `instance.json` in its data directory has them",
    )  # fmt: skip
