"""The part of a log that a job is about, and its plan."""

from __future__ import annotations

from typing import Final, NamedTuple

from zbroker.client.connect_types import Credentials
from zbroker.client.subscriber.points import Point
from zbroker.ids import Origin, format_vector
from zbroker.limits import MIB
from zbroker.recording import TYPE_DEFAULT
from zbroker.spark.ranges import LogRange, plan_ranges

TASK_BYTES: Final = 64 * MIB  # of the log; a task costs 50 ms before its first row


class Stretch(NamedTuple):
    """As `plan_ranges` takes it. source: the URL of an instance, or a directory."""

    source: str
    since: Point = "epoch"
    until: Point = "now"
    topic: str | None = None
    regex: bool = False
    filter: str = ""
    filter_type: str = TYPE_DEFAULT
    journal: str | None = None
    archive: str | None = None
    credentials: Credentials | None = None

    def ranges(self, parts: int) -> list[LogRange]:
        """At least so many parts. Raises: ZBrokerError, as `plan_ranges`."""
        return plan_ranges(
            self.source, self.since, self.until, parts, self.topic, self.regex,
            filter=self.filter, filter_type=self.filter_type, journal=self.journal,
            archive=self.archive, credentials=self.credentials,
        )  # fmt: skip

    def sized(self, parts: int, size: int = TASK_BYTES) -> list[LogRange]:
        """The same, with at most about `size` bytes of the log in each."""
        ranges = self.ranges(parts)
        wanted = -(-sum(part.bytes for part in ranges) // size)
        return ranges if wanted <= len(ranges) else self.ranges(wanted)

    def positions(self, origin: Origin, first: int, end: int) -> Stretch:
        """The same, between two positions."""
        since, until = (format_vector({origin: position - 1}) for position in (first, end))
        return self._replace(since=since, until=until)

    def behind(self, origin: Origin, first: int) -> Stretch:
        """The same from a position on."""
        return self._replace(since=format_vector({origin: first - 1}))
