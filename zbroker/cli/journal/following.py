"""Waits for what the admin does in the background, and shows how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import click

from zbroker.cli.progress import Step
from zbroker.control.target import Admin
from zbroker.errors import ZBrokerError

POLL_S: Final = 0.2
UNFINISHED: Final = frozenset({"queued", "running"})

wait_option = click.option(
    "--no-wait", is_flag=True, help="Do not wait until it is done; `action ls` shows it."
)


def follow(
    admin: Admin, action: str, step: Step, sleep: Callable[[float], None] = time.sleep
) -> dict[str, Any]:
    """The action when it has ended, whatever its result. Ctrl-C leaves it running.

    Raises: ZBrokerError.
    """
    try:
        while True:
            found = admin.ask(f"/actions/{action}")
            if found["result"] not in UNFINISHED:
                return found
            far = found.get("progress") or {}
            total = int(far.get("total") or 0)
            if total:
                step(str(found["action"]), int(far.get("done") or 0), total)
            sleep(POLL_S)
    except KeyboardInterrupt:
        reason = f"action {action} goes on in the background"
        raise ZBrokerError("interrupted", reason, f"see `action show {action}`") from None
