"""`zbroker-admin journal conflicts`: batches that came twice with different content.

Reads <data>/conflicts, also while the instance runs. Answer: per batch its publisher, sequences,
the position of the first one in the log, and with --json the content of the second one.

    zbroker-admin --data-dir /var/lib/zbroker journal conflicts
    zbroker-admin --json journal conflicts | jq '.conflicts[0].messages'
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.cli.group import AdminCommand
from zbroker.cli.options import count_option
from zbroker.clock import format_time
from zbroker.control.target import Target
from zbroker.errors import ClientError
from zbroker.ids import format_bookmark
from zbroker.journal.conflicts import read_conflicts
from zbroker.journal.group_builder import Conflict
from zbroker.limits import STORED_MAX_BYTES
from zbroker.wire import bodies
from zbroker.wire.bodies import text_or_base64

COLUMNS: Final = show.columns(
    "time:2 name:0 bookmark count:2 original_position:3 topics:2 body_bytes:3", sizes="body_bytes"
)


@click.command(cls=AdminCommand)
@count_option("--limit", "Only the newest ones.")
def conflicts(target: Target, limit: int | None) -> None:
    """Show what a publisher sent twice under the same numbers with different content.

    The first one is in the log, at original_position. The second one is only here: a publisher
    numbers wrongly, or two programs publish under one name.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal conflicts
    """
    found = read_conflicts(target.paths().conflicts)
    shown = found[-limit:] if limit else found
    rows = [as_row(one, full=target.as_json) for one in shown]
    empty = "no conflicts: nothing came twice with different content"
    show.listing(target.as_json, {"kept": len(found), "conflicts": rows}, COLUMNS, rows, empty)


def as_row(one: Conflict, *, full: bool = False) -> dict[str, Any]:
    """A conflict with stable keys; `full`: with the messages that came the second time."""
    row: dict[str, Any] = {
        "time": format_time(one.time_ns),
        "publisher": str(one.publisher),
        "name": one.name,
        "session": one.session,
        "bookmark": format_bookmark(one.publisher, one.seq),
        "sequence": one.seq,
        "count": one.count,
        "original_position": one.original_position,
        "topics": one.topics,
        "body_bytes": len(one.body),
    }
    return row | {"messages": _messages(one)} if full else row


def _messages(one: Conflict) -> list[dict[str, str]] | None:
    """None where the body is not what the batch says."""
    try:
        found = bodies.unpack(one.body, one.codec, one.count, STORED_MAX_BYTES)
    except ClientError:
        return None
    return [text_or_base64(message) for message in found]
