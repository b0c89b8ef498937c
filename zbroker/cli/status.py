"""`zbroker-admin status`: what a running instance says of itself.

Asks the admin for GET /status. Exit 3: no instance runs there.

    zbroker-admin --data-dir /var/lib/zbroker --json status
"""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from zbroker.cli.target import Target


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON with stable keys.")
@click.pass_obj
def status(target: Target, as_json: bool) -> None:
    """Say how a running instance is."""
    found = target.ask("/status")
    if as_json or target.as_json:
        click.echo(json.dumps(found, indent=2))
    elif on_terminal():
        _show(found)
    else:
        click.echo("\n".join(lines(found)))


def on_terminal() -> bool:
    """True if a person reads this."""
    return sys.stdout.isatty()


def lines(found: dict[str, Any]) -> list[str]:
    """The status as plain text, for pipes and logs."""
    head = [f"{key} {value}" for key, value in summary(found)]
    head += [f"alarm {alarm_text(alarm)}" for alarm in found.get("alarms", ())]
    rows = [" ".join(f"{key}={value}" for key, value in p.items()) for p in found["processes"]]
    return head + rows


def summary(found: dict[str, Any]) -> list[tuple[str, str]]:
    """What is not about one process, flat: (name, value)."""
    flat = []
    for key, value in found.items():
        if isinstance(value, dict):
            flat += [(f"{key}.{inner}", str(what)) for inner, what in value.items()]
        elif key not in ("processes", "alarms"):
            flat.append((key, str(value)))
    return flat


def alarm_text(alarm: dict[str, str]) -> str:
    """What is wrong, what it means, what to do."""
    told = "; ".join(alarm[key] for key in ("what", "means", "next") if alarm.get(key))
    return f"{alarm['code']} since {alarm['since']}: {told}"


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    head = Table.grid(padding=(0, 2))
    for key, value in summary(found):
        head.add_row(key, value, style="bold" if key == "state" else "")
    console.print(head)
    for alarm in found.get("alarms", ()):
        console.print(f"alarm {alarm_text(alarm)}", style="bold red", highlight=False, markup=False)
    names = list(found["processes"][0]) if found["processes"] else []
    table = Table(*names)
    for process in found["processes"]:
        table.add_row(*(str(process[name]) for name in names))
    console.print(table)
