"""`zbroker-admin replication drain`: publishers go on at other instances, before this one stops.

Answer: `state`: `left`, or `off`; `sessions`: how many were ended; `dry_run`; `text`.

    zbroker-admin --data-dir /var/lib/zbroker replication drain
    zbroker-admin replication drain --off
"""

from __future__ import annotations

import click

from zbroker.cli import show
from zbroker.cli.group import AdminCommand
from zbroker.cli.options import dry_run_option
from zbroker.control.target import Target


@click.command(cls=AdminCommand)
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0, 50, min_open=True), default=10.0,
    show_default=True, help="Seconds for destinations to catch up; then publishers go on here.",
)  # fmt: skip
@click.option("--off", is_flag=True, help="Let publishers log on here again.")
@dry_run_option
def drain(target: Target, wait_s: float, off: bool, dry_run: bool) -> None:
    """Send publishers to other instances, before a planned stop of this one.

    First no client is read until each destination with a link that is up has everything. Then
    sessions of publishers end, and logons are refused: programs with several URLs go on at the
    next one, which has all that was acknowledged here. Subscribers stay until the stop. It holds
    until --off, or until the ingest process ends.

    Example: zbroker-admin replication drain --wait 30
    """
    body = {"wait_s": wait_s, "off": off, "dry_run": dry_run}
    found = target.admin().tell("/replication/drain", body)
    marked = " (dry run)" if found["dry_run"] else ""
    ended = f" ({found['sessions']} sessions ended)" if found["sessions"] else ""
    show.answer(target.as_json, found, f"{found['state']}{marked}: {found['text']}{ended}")
