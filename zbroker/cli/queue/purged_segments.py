"""Segments of the journal after a purge: archived or removed, as `journal archive | remove` do it.

A log of segments gives up whole segments, the oldest first, of all topics: those that end before
the place of the purge. The journal decides which may be removed; the readers that hold them back
are named.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from zbroker.cli import progress
from zbroker.cli.journal import managing, remove
from zbroker.cli.journal.managing import Document
from zbroker.cli.journal.selecting import ending_before
from zbroker.control.target import Admin

Action = Literal["archive", "remove"]

LET_GO_S: Final = 10.0  # queues report to the journal each second what they need
POLL_S: Final = 0.2


class PurgeOutcome(NamedTuple):
    """document: what `journal archive | remove` says; rows: its plan, for people."""

    document: Document
    rows: Sequence[Document]


def after(
    admin: Admin, action: Action, purged: Document, sleep: Callable[[float], None] = time.sleep
) -> PurgeOutcome:
    """What became of the segments before the place of a purge, or would. Raises: ZBrokerError.

    purged: what the instance answered to the purge, which is durable unless it was a dry run.
    """
    rows = [row for row in admin.ask("/journal")["segments"] if not row["open"]]
    dry_run = bool(purged["dry_run"])
    through = ending_before(rows, purged["position"])
    if not through:
        return PurgeOutcome(managing.nothing(action, dry_run=dry_run), [])
    body: dict[str, Any] = {"through": through, "dry_run": dry_run}
    if action == "remove" and dry_run:
        body["without"] = purged["queue"]
    elif action == "remove":
        _wait(admin, through, purged["queue"], sleep)
    with progress.bar("bytes" if action == "archive" else "") as step:
        found = managing.by_admin(admin, action, body, step, wait=True)
    planned = remove.plan_rows(found, rows) if action == "remove" else managing.plan_rows(found)
    return PurgeOutcome(found, planned)


def _wait(admin: Admin, through: int, queue: str, sleep: Callable[[float], None]) -> None:
    """Until the journal heard that the queue let go, for a while: leased messages may hold on."""
    for _ in range(int(LET_GO_S / POLL_S)):
        planned = admin.tell("/journal/remove", {"through": through, "dry_run": True})
        if not any((one["who"], one["what"]) == ("queues", queue) for one in planned["held_by"]):
            return
        sleep(POLL_S)
