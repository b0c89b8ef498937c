"""`zbroker-admin replication drain`: publishers go on at other instances, before this one stops.

Answer: `state`: `left`, or `off`; `sessions`: how many were ended; `dry_run`; `text`; of replicated
queues `to`, the destination that gets what this instance owns; `consumers`: how many were ended;
`queues`: of each `queue`, `given`, `left`, `why`, `advice`; `problem`; `done`.

    zbroker-admin --data-dir /var/lib/zbroker replication drain
    zbroker-admin replication drain --off
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from zbroker.cli import show
from zbroker.cli.group import EX_ERROR, AdminCommand
from zbroker.cli.options import dry_run_option
from zbroker.cli.queue.changes import messages
from zbroker.control.target import Target


@click.command(cls=AdminCommand)
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0, 50, min_open=True), default=10.0,
    show_default=True, help="Seconds for destinations to catch up, and then for consumers.",
)  # fmt: skip
@click.option("--off", is_flag=True, help="Let publishers log on here again.")
@dry_run_option
def drain(target: Target, wait_s: float, off: bool, dry_run: bool) -> None:
    """Send publishers and replicated queues to other instances, before a planned stop of this one.

    First no client is read until each destination with a link that is up has everything. Then
    sessions of publishers end, and logons are refused: programs with several URLs go on at the
    next one, which has all that was acknowledged here. Subscribers stay until the stop.

    Then replicated queues offer nothing more. Consumers are ended once they have settled what they
    hold, for as long as --wait lasts, and go on elsewhere, too. What this instance owns is given to
    one destination; so is what comes later. If something is left, it says what and why, and the
    exit code is 1.

    It holds until --off, or until the ingest process or the queues process ends.

    Example: zbroker-admin replication drain --wait 30
    """
    body = {"wait_s": wait_s, "off": off, "dry_run": dry_run}
    found = target.admin().tell("/replication/drain", body)
    marked = " (dry run)" if found["dry_run"] else ""
    ended = f" ({found['sessions']} sessions ended)" if found["sessions"] else ""
    text = "\n".join([f"{found['state']}{marked}: {found['text']}{ended}", *_of_queues(found)])
    show.answer(target.as_json, found, text)
    if not (found["done"] or found["dry_run"]):
        raise SystemExit(EX_ERROR)


def _of_queues(found: dict[str, Any]) -> Iterator[str]:
    for one in found["queues"]:
        name, to = one["queue"], found["to"]
        if one["given"]:
            yield f"{name}: {messages(one['given'])} were given to {to}"
        if one["left"] and one["why"]:
            yield f"{name}: {messages(one['left'])} left: {one['why']}"
        elif one["left"]:
            yield f"{name}: {messages(one['left'])} would be given to {to}"
        if one["advice"]:
            yield f"{name}: {one['advice']}"
    if found["problem"]:
        yield found["problem"]
