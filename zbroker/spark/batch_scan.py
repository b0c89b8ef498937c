"""The batches of one range of a directory: all that it wants, or an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zbroker.errors import ClientError
from zbroker.limits import MIB
from zbroker.log.format import KIND_PUBLISH, Batch
from zbroker.log.reader import Gap, Item, Log, Skipped
from zbroker.spark.directories import gap_error, seek
from zbroker.spark.selection import PickedMessages, RangeSelection

if TYPE_CHECKING:
    from zbroker.spark.ranges import LogRange

READ_BYTES: Final = 1 * MIB  # a few batches: what one call of the reader returns


def batches(part: LogRange) -> Iterator[tuple[Batch, PickedMessages]]:
    """Each batch with something of the range in it, and what that is.

    Raises: ZBrokerError gap, bookmark_expired, bookmark_not_found, bad_frame.
    """
    wanting = RangeSelection(part)
    with closing(Log(Path(part.source), Path(part.archive) if part.archive else None)) as log:
        _check(log, part)
        for batch in _read(log, part, wanting):
            picked = wanting.picks(batch)
            if picked.at:
                yield batch, picked


def _check(log: Log, part: LogRange) -> None:
    if log.instance != part.instance:
        raise ClientError(
            "bookmark_not_found",
            f"{part.source} has the log of {log.instance:016x}, not {part.instance:016x}",
        )
    if part.first < log.first_position:
        raise ClientError(
            "bookmark_expired",
            f"the range begins at {part.first}, the oldest position kept is {log.first_position}",
        )


def _read(log: Log, part: LogRange, wanting: RangeSelection) -> Iterator[Batch]:
    cursor = seek(log, part.first)
    done = part.first
    while done < part.end:
        found, cursor = log.read(cursor, part.end, READ_BYTES, wanting.topics)
        for item in found:
            done = _follows(item, done)
            if isinstance(item, Batch) and item.kind == KIND_PUBLISH:
                yield item
        if not found and done < part.end:
            raise ClientError("gap", f"the log ends at position {done}, the range at {part.end}")


def _follows(item: Item, done: int) -> int:
    """The position behind `item`, which must go on where the one before it ended."""
    if isinstance(item, Gap):
        raise gap_error(item)
    if isinstance(item, Skipped):
        first, end = item.first, item.end
    else:
        first, end = item.position, item.end_position
    if first > done:
        raise ClientError("gap", f"positions {done} to {first - 1} are not in the log")
    return end
