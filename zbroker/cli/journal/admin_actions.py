"""Work on the log that the admin of a running instance does in the background, and its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from zbroker.cli.options import flag_option
from zbroker.cli.progress import Step
from zbroker.control.target import Admin
from zbroker.errors import ZBrokerError

POLL_S: Final = 0.2
UNFINISHED: Final = frozenset({"queued", "running"})

Document = dict[str, Any]

wait_option = flag_option("--no-wait", "Do not wait until it is done; `action ls` shows it.")


def by_admin(
    admin: Admin, action: str, body: Document, step: Step, *, wait: bool = True
) -> Document:
    """Asks the running instance, and waits until it is done. Raises: ZBrokerError."""
    reply = admin.tell(f"/journal/{action}", body)
    found: Document = {"action": action, "dry_run": bool(body.get("dry_run"))} | reply
    number = reply.get("id")
    if number is None:
        found["result"] = "dry run" if found["dry_run"] else "nothing to do"
    elif wait:
        done = follow(admin, str(number), step)
        found |= {key: done[key] for key in ("result", "reason", "bytes", "took_s")}
    else:
        found["result"] = "queued"
    return found


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


def check(found: Document) -> None:
    """Raises: ZBrokerError if an action failed, was refused, or is held back by readers."""
    if found["result"] in ("failed", "refused"):
        reason = f"action {found['id']}: {found.get('reason') or 'the log of the admin says why'}"
        raise ZBrokerError(str(found["result"]), reason)
    blocked = found.get("blocked")
    if not blocked or found["dry_run"]:
        return
    if found["held_by"]:
        readers = ", ".join(
            f"{one['who']} ({one['what']}) from position {one['position']}"
            for one in found["held_by"]
        )
        raise ZBrokerError("segment_held", f"{blocked}: {readers}")
    hint = "one is written when the next segment is begun" if "snapshot" in blocked else ""
    raise ZBrokerError("blocked", blocked, hint)
