"""`zbroker-admin status`: what a running instance says of itself.

Asks the admin for GET /status. Exit 3: no instance runs there.

    zbroker-admin --data-dir /var/lib/zbroker --json status
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.cli.group import AdminCommand
from zbroker.cli.terminal import safe
from zbroker.control.target import Target

Document = dict[str, Any]
PROCESSES: Final = show.columns("room:0 pid state:0 restarts:0 uptime_s progress:2")
_QUEUES: Final = ("count", "depth", "consumers", "dead")


@click.command(cls=AdminCommand)
def status(target: Target) -> None:
    """Say how a running instance is."""
    found = target.ask("/status")
    show.answer(target.as_json, found, lambda: _show(found))


def lines(found: dict[str, Any]) -> list[str]:
    """The status as plain text, for pipes and logs."""
    head = [f"{key} {value}" for key, value in summary(found)]
    head += [f"alarm {alarm_text(alarm)}" for alarm in found.get("alarms", ())]
    rows = [" ".join(f"{key}={value}" for key, value in p.items()) for p in found["processes"]]
    return head + rows


def summary(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Everything that is not about one process, flat: (name, value)."""
    flat = []
    for key, value in found.items():
        if isinstance(value, dict):
            flat += [(f"{key}.{inner}", str(what)) for inner, what in value.items()]
        elif key not in ("processes", "alarms"):
            flat.append((key, str(value)))
    return flat


def alarm_text(alarm: dict[str, str]) -> str:
    """The alarms: the problem, what it means, what to do."""
    text = "; ".join(alarm[key] for key in ("what", "means", "next") if alarm.get(key))
    return f"{alarm['code']} since {alarm['since']}: {text}"


def _show(found: dict[str, Any]) -> None:
    """For a person: what one looks at, then the processes. JSON and a pipe have everything."""
    if not show.on_terminal():
        click.echo("\n".join(lines(found)))
        return
    from rich.table import Table
    from rich.text import Text

    console = show.console()
    head = Table.grid(padding=(0, 2))
    for name, value in overview(found):
        head.add_row(name, Text(safe(value), "bold" if name == "state" else ""))
    console.print(head)
    for alarm in found.get("alarms", ()):
        console.print(Text(safe(f"alarm {alarm_text(alarm)}"), "bold red"))
    show.table(PROCESSES, found["processes"])


def overview(found: Document) -> list[tuple[str, str]]:
    """A few lines, each about one thing."""
    journal, queues = found.get("journal", {}), found.get("queues", {})
    security = found.get("security", {})
    endpoints = found.get("endpoints", {})
    lines = [
        ("instance", _joined(found, "name", "instance", "version")),
        ("state", str(found.get("state", ""))),
        ("since", str(found.get("started", ""))),
        ("data", str(found.get("data_dir", ""))),
        ("endpoints", " ".join(str(endpoints[name]) for name in endpoints)),
        ("log", ", ".join(_log(journal))),
        ("rates", ", ".join(f"{_number(value)} {name}" for name, value in _some(found, "rates"))),
        ("clients", f"{_number(found.get('clients', 0))}, "
                    f"{_number(found.get('subscriptions', 0))} subscriptions"),
        ("queues", ", ".join(f"{_number(queues[key])} {key}" for key in _QUEUES if key in queues)),
        ("replication", ", ".join(_links(found.get("replication") or {}))),
        ("security", "on" if security.get("on") else "off: anyone may publish and read"),
    ]  # fmt: skip
    return [(name, value) for name, value in lines if value]


def _links(links: Document) -> list[str]:
    """Those to destinations; of what is not as it should be, only what there is."""
    if not links:
        return []
    if links["up"] is None:
        return [f"{links['destinations']} destinations, their process does not answer"]
    up = f"{links['up']} of {links['destinations']} destinations"
    parts = [up, f"lag {_number(links['lag'])}"] if links["destinations"] else []
    more = {
        "sources": "source" if links["sources"] == 1 else "sources",
        "paused": "paused",
        "downgraded": "downgraded",
        "stopped": "stopped origin" if links["stopped"] == 1 else "stopped origins",
    }
    return [*parts, *(f"{_number(links[key])} {what}" for key, what in more.items() if links[key])]


def _log(journal: Document) -> list[str]:
    sizes = {"bytes": "", "free_bytes": " free"}
    parts = [
        f"{_number(journal[key])} {key}" for key in ("persisted", "segments") if key in journal
    ]
    parts += [f"{show.size(journal[key])}{what}" for key, what in sizes.items() if key in journal]
    return [*parts, *([str(journal["durability"])] if "durability" in journal else [])]


def _some(found: Document, key: str) -> list[tuple[str, Any]]:
    """Numbers that are not 0."""
    return [(name, value) for name, value in found.get(key, {}).items() if value]


def _joined(found: Document, *keys: str) -> str:
    return " ".join(str(found[key]) for key in keys if found.get(key))


def _number(value: object) -> str:
    return f"{value:,.10g}" if isinstance(value, int | float) else str(value)
