"""The expected result of the replays: the table, read in another way than it was published.

Publishing reads the file with `csv`; this reads it with pandas, orders and groups it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol

import msgspec
import pandas as pd

from zbroker.demo import flights

Values = tuple[Any, ...]


class CarrierTally(NamedTuple):
    """The flights of one carrier, and the minutes late on arrival of those that arrived."""

    flights: int
    arr_delay: int


class ReplayedMessage(Protocol):
    """A message of a replay, as far as this module looks at it."""

    @property
    def topic(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    @property
    def time_ns(self) -> int: ...


@dataclass(frozen=True)
class Comparison:
    """Rows compared one by one; `difference` says what the first wrong one is, or is empty."""

    rows: int
    difference: str


class FlightTable:
    """The flights as the package has them, in order of departure."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame
        self.names = list(frame.columns.drop("departure"))
        self.departure_ns: list[int] = frame["departure"].astype("int64").tolist()

    def __len__(self) -> int:
        return len(self._frame)

    def tallies(self) -> dict[str, CarrierTally]:
        """Per carrier; a missing arr_delay is not summed, but its flight is counted."""
        groups = self._frame.groupby("carrier")["arr_delay"]
        sizes, sums = groups.size(), groups.sum()
        return {
            str(carrier): CarrierTally(int(sizes[carrier]), int(sums[carrier]))
            for carrier in sizes.index
        }

    def values_from(self, index: int) -> Iterator[Values]:
        """The rows from `index` on; a missing value is None."""
        rest = self._frame.iloc[index:]
        columns = [rest[name].astype(object) for name in self.names]
        return zip(
            *[column.where(column.notna(), None).tolist() for column in columns], strict=True
        )

    def late(self, carrier: str, minutes: int, begin_ns: int, end_ns: int) -> FlightTable:
        """Flights of a carrier in a stretch of time, without its end, over `minutes` late."""
        departure = self._frame["departure"].astype("int64")
        there = (departure >= begin_ns) & (departure < end_ns)
        late = (self._frame["carrier"] == carrier) & (self._frame["arr_delay"] > minutes)
        return FlightTable(self._frame[there & late])

    def first_at(self, time_ns: int) -> int:
        """Index of the first flight that departs at `time_ns` or later."""
        return int(self._frame["departure"].astype("int64").searchsorted(time_ns, side="left"))


def read_table(wanted: int | None = None) -> FlightTable:
    """The table of the package, read now."""
    frame = pd.read_csv(flights.table_file())
    minutes = pd.to_timedelta(frame["sched_dep_time"] % 100, unit="min")
    departure = pd.to_datetime(frame["time_hour"], utc=True) + minutes
    frame = frame.assign(departure=departure.astype("datetime64[ns, UTC]"))
    frame = frame.sort_values("departure", kind="stable")
    return FlightTable(frame.iloc[flights.sample(len(frame), wanted)])


def compare(table: FlightTable, first: int, messages: Iterable[ReplayedMessage]) -> Comparison:
    """Are `messages` the rows of `table` from `first` on: topic, log time, every column?"""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    expected = zip(table.departure_ns[first:], table.values_from(first), strict=True)
    rows = 0
    for message, row in zip_longest(messages, expected):
        number = f"row {first + rows:,}"
        if message is None:
            early = len(table) - first - rows
            return Comparison(rows, f"the replay ended after {rows:,} rows, {early:,} too early")
        if row is None:
            return Comparison(rows, f"the replay goes on after the last flight: {message.data!r}")
        found = decode(message.data)
        wanted = dict(zip(table.names, row[1], strict=True))
        if found != wanted or message.topic != flights.topic_of(wanted["carrier"]):
            return Comparison(rows, f"{number} is {message.topic} {found}, expected {wanted}")
        if message.time_ns != row[0]:
            text = f"{number} has log time {message.time_ns} ns, expected {row[0]}"
            return Comparison(rows, text)
        rows += 1
    return Comparison(rows, "")
