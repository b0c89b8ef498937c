"""`zbroker-admin journal holders`: the readers that need a part of the log.

Asks the running instance (GET /holders). Answer: the log start, the positions from which on readers
need the log, and the processes that have not reported yet. Without an instance there are none: exit
code 3.

`hold` is such a reader: it keeps a running instance from removing what is being read. It ends with
its block, or by itself when this process dies.

    zbroker-admin --data-dir /var/lib/zbroker journal holders
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import click

from zbroker.cli import show
from zbroker.cli.group import AdminCommand
from zbroker.clock import Clock, SystemClock
from zbroker.control.target import Admin, Target
from zbroker.errors import ZBrokerError

TTL_S: Final = 300  # longer than one sync of a segment takes on a slow disk
RENEW_MS: Final = 60_000

Renew = Callable[[], None]


COLUMNS: Final = show.columns("position who what since")


@click.command(cls=AdminCommand)
def holders(target: Target) -> None:
    """List the readers that need a part of the log: replays, exports, jobs.

    A part that is needed is not removed. `floor` is the oldest position that is served; processes
    under `silent` have not reported yet what they need, so nothing is removed before they do.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal holders
    """
    found = target.ask("/holders")
    if not target.as_json:
        show.facts({key: found[key] for key in ("floor", "persisted", "silent")})
    empty = "nothing holds the log back"
    show.listing(target.as_json, found, COLUMNS, found["holders"], empty)


@contextmanager
def hold(
    admin: Admin | None, what: str, position: int, clock: Clock | None = None
) -> Iterator[Renew]:
    """Holds the log from `position` on; what it gives is to be called often.

    Without an instance there is nothing to hold. Raises: ZBrokerError.
    """
    if admin is None:
        yield lambda: None
        return
    clock, until_ms = clock or SystemClock(), 0
    reader = {"who": f"{what.partition(' ')[0]}-{os.getpid()}", "what": what, "position": position}

    def renew() -> None:
        nonlocal until_ms
        if clock.mono_ms() >= until_ms:
            admin.tell("/journal/hold", reader | {"ttl_s": TTL_S})
            until_ms = clock.mono_ms() + RENEW_MS

    renew()
    try:
        yield renew
    finally:
        with suppress(ZBrokerError):  # the instance ended, or it ends by itself
            admin.tell("/journal/hold", reader | {"ttl_s": 0})
