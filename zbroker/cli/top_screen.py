"""What `top` draws on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import psutil
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from zbroker.cli.show import is_number, plain, size
from zbroker.cli.terminal import safe

_WATERMARKS: Final = ("first_position", "written", "persisted")
_QUEUES: Final = ("count", "depth", "ready", "leased", "delayed", "consumers", "dead")
_PROCESSES: Final = "process", "pid", "state", "restarts", "up s", "cpu %", "memory", "progress"
_FARTHEST: Final = "client", "topic", "state", "lag", "lag s", "in hand", "sent", "credit"
_FIXED_LINES: Final = 13  # of everything that is there with few processes and no subscriptions
_STYLES: Final = {"ready": "bold green", "starting": "bold yellow"}

Row = Mapping[str, Any]


class Usage:
    """CPU and memory of the processes of an instance on this host, by process id."""

    def __init__(self, *, local: bool) -> None:
        self._local = local
        self._known: dict[int, psutil.Process] = {}

    def of(self, processes: Sequence[Row]) -> dict[int, tuple[float, int]]:
        """Percent of a core since the look before, and bytes; what cannot be had is left out."""
        found = {}
        for pid in (int(one.get("pid") or 0) for one in processes if self._local):
            try:
                process = self._known.setdefault(pid, psutil.Process(pid)) if pid else None
                if process is not None:
                    found[pid] = (process.cpu_percent(), process.memory_info().rss)
            except psutil.Error:
                self._known.pop(pid, None)
        return found


def drawn(
    found: Row, usage: Mapping[int, tuple[float, int]], missing: str, height: int
) -> RenderableType:
    """A look as it fills a screen of so many lines; missing: why it is an old one."""
    processes = found["processes"]
    left = height - _FIXED_LINES - len(processes) - 2 * len(found["alarms"])
    parts: list[RenderableType] = [_head(found, missing), _numbers(found)]
    for alarm in found["alarms"]:
        text = f"alarm {alarm.get('code')}: {alarm.get('what')}\n  {alarm.get('next')}"
        parts.append(Text(safe(text), "bold red"))
    parts.append(_table(_PROCESSES, (_process(one, usage) for one in processes)))
    if found["farthest"] and left > 0:
        parts.append(_table(_FARTHEST, map(_subscription, found["farthest"][:left])))
    return Group(*parts)


def _text(value: object, style: str = "") -> Text:
    """A value that others wrote."""
    return Text(safe(plain(value)), style)


def _head(found: Row, missing: str) -> Text:
    state = str(found["state"])
    head = Text.assemble(
        (f"{found['name']} ", "bold"), f"{found['url']} {found['version']}  ",
        (state, _STYLES.get(state, "bold red")), f"  {found['time']}  q ends",
    )  # fmt: skip
    if missing:
        head.append(f"\n{safe(missing)}: what follows is old", "bold red")
    return head


def _numbers(found: Row) -> Table:
    """Rates, watermarks and, if there are any, queues: rows of name and value."""
    journal = found["journal"]
    table = Table.grid(padding=(0, 2))
    rates = {name: f"{value:,.0f}" for name, value in found["rates"].items() if is_number(value)}
    table.add_row(*_pairs(rates | {key: plain(found[key]) for key in ("clients", "subscriptions")}))
    watermarks = {key: plain(journal[key]) for key in _WATERMARKS}
    sizes = {"log": _size(journal["bytes"]), "free": _size(journal["free_bytes"])}
    others = {key: plain(journal[key]) for key in ("segments", "sync_ms")}
    table.add_row(*_pairs(watermarks | sizes | others))
    if found["queues"].get("count"):
        queues = {"queues" if key == "count" else key: found["queues"].get(key) for key in _QUEUES}
        table.add_row(*_pairs({name: plain(value) for name, value in queues.items()}))
    return table


def _pairs(values: Mapping[str, str]) -> list[Text]:
    return [Text.assemble((f"{name} ", "dim"), (value, "bold")) for name, value in values.items()]


def _size(value: object) -> str:
    return size(int(value)) if isinstance(value, int | float) else "-"


def _table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Values as text, which may be of others."""
    table = Table(*headings)
    for row in rows:
        table.add_row(*(value if isinstance(value, Text) else _text(value) for value in row))
    return table


def _process(one: Row, usage: Mapping[int, tuple[float, int]]) -> Sequence[object]:
    percent, memory = usage.get(int(one.get("pid") or 0), (None, None))
    state = _text(one.get("state"), "" if one.get("state") == "ready" else "bold yellow")
    numbers = one.get("restarts"), one.get("uptime_s")
    use = None if percent is None else f"{percent:.0f}", _size(memory)
    return one.get("room"), one.get("pid"), state, *numbers, *use, one.get("progress")


def _subscription(row: Row) -> Sequence[object]:
    topic = f"/{row.get('topic')}/" if row.get("regex") else row.get("topic")
    plain_ones = (row.get(key) for key in ("state", "lag", "lag_s", "in_hand", "sent_messages"))
    return row.get("client"), topic, *plain_ones, _size(row.get("credit"))
