"""`zbroker-admin top`: what an instance does now, again and again.

Asks the running instance (GET /status, /subscriptions) every second. On a terminal it fills the
screen, and q or Ctrl-C ends it; into a pipe it writes a line, or with --json a document, per look.
An instance that goes away is waited for, unless it was not there at the first look: exit code 3.

    zbroker-admin --data-dir /var/lib/zbroker top
    zbroker-admin --data-dir /var/lib/zbroker top --once --json
"""

from __future__ import annotations

import json
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.cli.group import AdminCommand, interruptible
from zbroker.cli.options import count_option, flag_option, with_default
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError

FARTHEST: Final = 10  # subscriptions of a look
#: what a look has of a status as it is
STATUS: Final = ("state", "name", "url", "version", "clients", "subscriptions")
JOURNAL: Final = (
    "first_position", "written", "persisted", "segments", "bytes", "free_bytes", "sync_ms",
)  # fmt: skip
_QUIT: Final = frozenset(b"qQ\x03")

Look = dict[str, Any]


@click.command(cls=AdminCommand)
@with_default("--interval", 1.0, "Seconds between two looks.", click.FloatRange(min=0.1, max=3600))
@flag_option("--once", "One look, and it ends.")
@count_option("--count", "End after so many looks.", "looks")
def top(target: Target, interval: float, once: bool, looks: int | None) -> None:
    """Watch an instance: rates, watermarks, processes, the largest lags, alarms.

    Ends with q or Ctrl-C.

    Example: zbroker-admin top --interval 5
    """
    looks = 1 if once else looks
    with interruptible():
        if show.on_terminal() and not target.as_json and not once:
            _watch(target, interval, looks)
        else:
            _write(target, interval, looks)


def look(target: Target) -> Look:
    """What there is to see now. Raises: ZBrokerError."""
    status = target.ask("/status")
    farthest: list[dict[str, Any]] = []
    if status.get("state") != "starting":  # the processes that know them are not there yet
        farthest = target.ask(f"/subscriptions?limit={FARTHEST}")["subscriptions"]
    return document(status, farthest, datetime.now(UTC))


def document(status: Look, farthest: list[dict[str, Any]], now: datetime) -> Look:
    """A look, with stable keys. Pure."""
    journal = status.get("journal", {})
    return {
        "time": now.isoformat(timespec="seconds"),
        **{key: status.get(key) for key in STATUS},
        "queues": status.get("queues", {}),
        "rates": status.get("rates", {}),
        "lag_max": max((row.get("lag") or 0 for row in farthest), default=0),
        "journal": {key: journal.get(key) for key in JOURNAL},
        "processes": status.get("processes", []),
        "farthest": farthest,
        "alarms": status.get("alarms", []),
        "security": status.get("security", {}),
    }


def line(found: Look) -> str:
    """A look in one line, for a pipe. Pure."""
    down = [
        f"{one.get('room')}:{one.get('state')}"
        for one in found["processes"]
        if one.get("state") != "ready" and one.get("room") != "supervisor"
    ]
    row = {
        "time": found["time"], "state": found["state"], **found["rates"],
        "clients": found["clients"], "subscriptions": found["subscriptions"],
        "lag_max": found["lag_max"], "queued": found["queues"].get("depth"),
        "persisted": found["journal"]["persisted"],
        "sync_ms": found["journal"]["sync_ms"], "down": down,
        "alarms": [alarm.get("code") for alarm in found["alarms"]],
    }  # fmt: skip
    return show.line([show.TableColumn(key) for key in row], row)


def _write(target: Target, interval: float, looks: int | None) -> None:
    for number in count(1):
        try:
            found = look(target)
        except ZBrokerError as error:
            if number == 1 or error.code not in ("not_found", "not_ready"):
                raise
            show.warn(str(error))
        else:
            if not target.as_json:
                click.echo(line(found))
            elif looks == 1:
                show.as_json(found)
            else:
                click.echo(json.dumps(found, ensure_ascii=False))
        if number == looks:
            return
        time.sleep(interval)


def _watch(target: Target, interval: float, looks: int | None) -> None:
    """Fills the screen."""
    from rich.live import Live

    from zbroker.cli.top_screen import Usage, drawn

    console, usage, missing = show.console(), Usage(local=not target.url), ""
    found = look(target)
    with keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        for number in count(1):
            table = drawn(found, usage.of(found["processes"]), missing, console.height)
            live.update(table, refresh=True)
            if number == looks or pressed(interval):
                return
            try:
                found, missing = look(target), ""
            except ZBrokerError as error:
                missing = str(error)  # the last values stay, marked as old


@contextmanager
def keys() -> Iterator[Any]:
    """A function that waits so many seconds for a key, and says whether it ends the program."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield _wait_key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _wait_key(seconds: float) -> bool:
    descriptor, until = sys.stdin.fileno(), time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            return False
        typed = os.read(descriptor, 64)  # not by sys.stdin, which would keep some of it
        if not typed or not _QUIT.isdisjoint(typed):
            return True
    return False
