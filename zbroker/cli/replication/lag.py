"""`zbroker-admin replication lag`: how many positions of the log destinations lack.

A line per destination, `name lag`; with NAME the number alone. Answer: `state`, `code`,
`destinations`: name, lag, and the same two of each. Exit code as of `check`: 0 ok, 1 warning,
2 critical, 3 unknown: nothing could be found out.

    zbroker-admin --data-dir /var/lib/zbroker replication lag --warning 1000 --critical 100000
    zbroker-admin replication lag b
"""

from __future__ import annotations

import sys
from typing import Any

import click

from zbroker.cli import show
from zbroker.cli.check import VerdictCommand
from zbroker.cli.check.verdict import UNKNOWN, WORDS, Thresholds
from zbroker.cli.completion import complete_link
from zbroker.cli.replication.queries import EMPTY, named
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError

_COUNT = click.IntRange(min=0)


@click.command(cls=VerdictCommand)
@click.argument("name", required=False, shell_complete=complete_link)
@click.option("--warning", type=_COUNT, help="More positions than this: exit code 1.")
@click.option("--critical", type=_COUNT, help="More positions than this: exit code 2.")
def lag(target: Target, name: str | None, warning: int | None, critical: int | None) -> None:
    """Say how many positions of the log the destination NAME lacks, or each one.

    A destination that has everything has 0. One that cannot be reached keeps its place in the log,
    so its lag grows with the log.

    Example: zbroker-admin replication lag --warning 1000 --critical 100000
    """
    try:
        found = target.ask("/replication")
        rows = named(found, name, "out") if name is not None else _destinations(found)
    except ZBrokerError as error:
        show.warn(f"replication lag: {error}")
        sys.exit(UNKNOWN)
    bounds = Thresholds(warning, critical)
    judged = [_judged(row, bounds) for row in rows]
    code = max((row["code"] for row in judged), default=0)
    document = {"state": WORDS[code], "code": code, "destinations": judged}
    lines = [f"{row['name']} {row['lag']}" for row in judged]
    text = str(judged[0]["lag"]) if name is not None else "\n".join(lines)
    show.answer(target.as_json, document, text or EMPTY)
    sys.exit(code)


def _destinations(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in found["links"] if row["direction"] == "out"]


def _judged(row: dict[str, Any], bounds: Thresholds) -> dict[str, Any]:
    code = bounds.code(row["lag"])
    return {"name": row["name"], "lag": row["lag"], "state": WORDS[code], "code": code}
