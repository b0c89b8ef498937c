"""`zbroker-admin journal search`: the position of one message.

Reads the files. Answer: the message, its batch, and the segment and offset where that begins.
Exit code 3 if the log does not hold it.

    zbroker-admin journal search '1683212431|42|'
    zbroker-admin journal search 20260801T090000Z
"""

from __future__ import annotations

from typing import Any

import click

from zbroker.cli import show
from zbroker.cli.group import AdminCommand
from zbroker.cli.journal import opened, points
from zbroker.cli.journal.printer import PayloadRenderer
from zbroker.cli.journal.rows import control_row, header_row, unpack
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Cursor, Gap, Log


@click.command(cls=AdminCommand)
@click.argument("point")
def search(target: Target, point: str) -> None:
    """Show the message at POINT, with its place in the log.

    POINT is a bookmark, a position, or a time (of the first message from then on).

    Example: zbroker-admin journal search '1683212431|42|'
    """
    paths = opened.find(target)
    with opened.log(target) as log:
        position = points.exactly(log, point)
        batch, cursor = batch_at(log, position)
        place = log.places.find(cursor.serial)
    row = header_row(batch, cursor.serial)
    found = {
        "position": position,
        **message_at(batch, position, PayloadRenderer(target)),
        "file": str(opened.file_of(paths, place)) if place else None,
        "serial": cursor.serial,
        "offset": batch.offset,
        "batch": {key: value for key, value in row.items() if key not in ("serial", "offset")},
    }
    inner = {f"batch.{key}": value for key, value in found["batch"].items()}
    flat = {key: value for key, value in found.items() if key != "batch"} | inner
    show.answer(target.as_json, found, flat)


def batch_at(log: Log, position: int) -> tuple[Batch, Cursor]:
    """The batch that holds `position`, with its body. Raises: ZBrokerError not_found, gap."""
    first, end = log.first_position, log.end()
    if not first <= position < end:
        held = f"positions {first} to {end - 1}" if end > first else "nothing"
        raise ZBrokerError("not_found", f"there is no position {position}: the log holds {held}")
    cursor = log.seek(position)
    items, _ = log.read(cursor, position + 1, 1)
    while items and isinstance(items[-1], Gap) and items[-1].end <= position:
        items, cursor = log.read(cursor, position + 1, 1)
    found = items[-1]
    if isinstance(found, Gap):
        reason = f"positions {found.first} to {found.end - 1} cannot be read: {found.why}"
        raise ZBrokerError("gap", reason, "`journal verify` shows what is damaged")
    return found, cursor


def message_at(batch: Batch, position: int, payloads: PayloadRenderer) -> dict[str, Any]:
    """The message at `position` of a batch."""
    if batch.kind != KIND_PUBLISH:
        return control_row(batch)
    message = unpack(batch)[position - batch.position]
    return payloads.row(message) | {
        "publisher": str(message.publisher),
        "sequence": message.sequence,
    }
