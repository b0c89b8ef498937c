"""`zbroker-admin journal ls`: the segments of the log.

Reads the files, or with --url asks the running instance (GET /journal). Answer: per segment serial,
place (journal or archive), packed, positions [first, end), times, bytes of the file, size of the
segment when it is not compressed, open.

    zbroker-admin --data-dir /var/lib/zbroker journal ls
    zbroker-admin --url tcp://127.0.0.1:9101 --json journal ls
"""

from __future__ import annotations

from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.cli.journal import opened
from zbroker.cli.journal.listing import segment_rows
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError

COLUMNS: Final = (
    show.number("serial", 0),
    show.TableColumn("place"),
    show.text("packed", 3),
    show.number("first", 0),
    show.number("end"),
    show.text("first_time", 4),
    show.text("last_time", 2),
    show.byte_size("bytes"),
    show.byte_size("size", 4),
    show.text("open", 3),
)


@click.command()
@show.json_option
@click.pass_obj
def ls(target: Target, json_here: bool) -> None:
    """List the segments of the log, oldest first.

    `first` is the first position in a segment, `end` the one after its last. `bytes` is the size of
    the file, `size` that of its content uncompressed.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal ls
    """
    rows = rows_of(target)
    if show.wants_json(target, json_here):
        show.as_json({"segments": rows})
    else:
        show.table(COLUMNS, rows)


def rows_of(target: Target) -> list[dict[str, Any]]:
    """The segments, as the instance at the URL tells them or as the files do."""
    if target.url:
        found: list[dict[str, Any]] = target.ask("/journal")["segments"]
        return found
    with opened.log(target) as log:
        if log.missing:
            names = f"{log.missing.start} to {log.missing.stop - 1}"
            reason = f"segments {names} are not there although they were not removed"
            show.warn(str(ZBrokerError("segments_missing", reason, "is the archive mounted?")))
        return segment_rows(log)
