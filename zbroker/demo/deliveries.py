"""What workers of a queue wrote down of each delivery, and the verdict on it."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS done"
    " (bookmark TEXT, redelivered INTEGER, carrier TEXT, delay INTEGER)"
)
INSERT: Final = "INSERT INTO done VALUES (?, ?, ?, ?)"


class DoneFlight(NamedTuple):
    """The work on a flight. delay: minutes late on arrival, 0 of a flight that never arrived."""

    carrier: str
    delay: int


class FlightDelivery(NamedTuple):
    """A worker was given a flight, and did it. redelivered: it may have come before."""

    bookmark: str
    redelivered: bool
    done: DoneFlight


@dataclass(frozen=True)
class DeliveryVerdict:
    """Numbers of flights. lost: never done; other: not as published; again: done more than once;
    unflagged: of these, not flagged each time but one.
    """

    lost: int
    other: int
    again: int
    unflagged: int


def read(directory: Path) -> list[FlightDelivery]:
    """Those of all workers with files in there or below, also of workers that were killed.

    A file is written in transactions, so one of a killed worker holds whole batches.
    """
    found: list[FlightDelivery] = []
    for file in sorted(directory.rglob("worker-*.sqlite")):
        with closing(sqlite3.connect(file)) as own:
            own.execute(TABLE)  # one may have been killed before its first batch
            rows = own.execute(
                "SELECT bookmark, redelivered, carrier, coalesce(delay, 0) FROM done"
            )
            found += [
                FlightDelivery(bookmark, bool(redelivered), DoneFlight(carrier, delay))
                for bookmark, redelivered, carrier, delay in rows
            ]
    return found


def each_once(deliveries: Iterable[FlightDelivery]) -> dict[str, DoneFlight]:
    """By bookmark: a flight that came several times counts once."""
    return {one.bookmark: one.done for one in deliveries}


def judge(
    published: Mapping[str, DoneFlight], deliveries: Iterable[FlightDelivery]
) -> DeliveryVerdict:
    """published: by bookmark. Each flight may come unflagged once, at all places together."""
    times: Counter[str] = Counter()
    unflagged: Counter[str] = Counter()
    kinds: defaultdict[str, set[DoneFlight]] = defaultdict(set)
    for one in deliveries:
        times[one.bookmark] += 1
        unflagged[one.bookmark] += not one.redelivered
        kinds[one.bookmark].add(one.done)
    return DeliveryVerdict(
        lost=len(published.keys() - times.keys()),
        other=sum(
            done != {published[key]} if key in published else True for key, done in kinds.items()
        ),
        again=sum(count > 1 for count in times.values()),
        unflagged=sum(count > 1 for count in unflagged.values()),
    )
