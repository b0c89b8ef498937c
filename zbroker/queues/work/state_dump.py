"""The fold of one queue as bytes, for tables that only make the start fast. Pure.

Not in it: leases, outcomes on their way, and what the process alone knows. Numbers are in the
byte order of the machine: the tables never leave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyroaring import BitMap64

from zbroker.queues.work.delivery_counts import DeliveryCounts, DeliveryTally
from zbroker.queues.work.places import MessagePlaces
from zbroker.queues.work.sets import insert, without

FORMAT: Final = b"1"


def dump(places: MessagePlaces, counting: DeliveryCounts) -> dict[str, bytes]:
    """Rows by name."""
    rows = {
        "format": FORMAT,
        "here": _bytes(places.here),
        "barriers": _bytes(places.barriers),
        "expired": _bytes(places.expired),
        "runs": places.expiring.dump(),
    }
    rows["delayed"], rows["dues"], rows["longest_delay"] = places.delays.dump()
    known = places.ready.dump()
    if known is not None:
        rows["known"], rows["numbers"] = known
    for name, tally in (("failures", counting.failures), ("cancels", counting.cancels)):
        for at, digit in enumerate(tally.dump()):
            rows[f"{name}.{at}"] = _bytes(digit)
    return rows


def load(rows: Mapping[str, bytes], places: MessagePlaces, counting: DeliveryCounts) -> None:
    """Raises: ValueError, for anything that is not a dump of such a queue."""
    if rows.get("format") != FORMAT:
        raise ValueError(f"tables of format {rows.get('format')!r}")
    try:
        _load(rows, places, counting)
    except (KeyError, OverflowError) as error:
        raise ValueError(f"tables are not complete: {error}") from None


def _load(rows: Mapping[str, bytes], places: MessagePlaces, counting: DeliveryCounts) -> None:
    insert(places.here, BitMap64.deserialize(rows["here"]))
    insert(places.barriers, BitMap64.deserialize(rows["barriers"]))
    insert(places.expired, BitMap64.deserialize(rows["expired"]))
    places.delays.load(rows["delayed"], rows["dues"], rows.get("longest_delay"))
    insert(places.overdue, places.expired)
    timed = places.delays.wait(places.delays.dues.known.copy())
    standing = places.here - places.barriers - places.overdue - timed
    known = (rows["known"], rows["numbers"]) if "known" in rows else None
    places.ready.load(known, standing)
    places.expiring.load(rows["runs"])
    _load_tally(rows, "failures", counting.failures)
    _load_tally(rows, "cancels", counting.cancels)
    for part in (
        places.barriers, places.expired, places.delays.waiting, counting.failures.counted,
        counting.cancels.counted,
    ):  # fmt: skip
        if without(part, places.here):
            raise ValueError("tables contradict each other")


def _load_tally(rows: Mapping[str, bytes], name: str, tally: DeliveryTally) -> None:
    digits: list[BitMap64] = []
    while f"{name}.{len(digits)}" in rows:
        digits.append(BitMap64.deserialize(rows[f"{name}.{len(digits)}"]))
    tally.load(digits)


def _bytes(positions: BitMap64) -> bytes:
    return bytes(positions.serialize())
