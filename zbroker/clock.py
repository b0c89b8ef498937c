"""Time as an input: a clock that loops take, and the text form of log times.

Log times are nanoseconds since 1970 UTC. Their text form is `YYYYmmddTHHMMSS[.ffffff][Z]`,
always UTC (seed 004, "Bookmark Replay From a Moment in Time").
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Final, Protocol

from zbroker.errors import ClientError

_TIME: Final = re.compile(r"(\d{8}T\d{6})(?:\.(\d{1,9}))?Z?")


class Clock(Protocol):
    """What a loop needs to know of time; tests and the simulator have their own."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970 UTC; may jump."""
        ...

    def mono_ms(self) -> int:
        """Milliseconds that never go back; for timeouts."""
        ...


class SystemClock:
    """The machine's own clocks."""

    wall_ns = staticmethod(time.time_ns)

    def mono_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def is_time(text: str) -> bool:
    """True if `text` has the form of a log time (it may still name no real date)."""
    return _TIME.fullmatch(text) is not None


def parse_time(text: str) -> int:
    """Nanoseconds since 1970 UTC of `YYYYmmddTHHMMSS[.fffffffff][Z]`.

    Raises: ClientError bad_bookmark.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        reason = f"{text!r} is not a time of the form YYYYmmddTHHMMSS[.ffffff][Z]"
        raise ClientError("bad_bookmark", reason)
    try:
        moment = datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        raise ClientError("bad_bookmark", f"{text!r} names no date") from None
    fraction = int((match[2] or "0").ljust(9, "0"))
    return int(moment.timestamp()) * 1_000_000_000 + fraction


def format_time(ns: int) -> str:
    """`ns` since 1970 UTC as `YYYYmmddTHHMMSS[.ffffff]Z`; digits below a microsecond are cut."""
    moment = to_datetime(ns)
    return moment.strftime("%Y%m%dT%H%M%S.%fZ" if moment.microsecond else "%Y%m%dT%H%M%SZ")


def to_datetime(ns: int) -> datetime:
    """`ns` since 1970 UTC as an aware datetime, to the microsecond."""
    seconds, rest = divmod(ns, 1_000_000_000)
    return datetime.fromtimestamp(seconds, tz=UTC).replace(microsecond=rest // 1_000)


def from_datetime(moment: datetime) -> int:
    """Nanoseconds since 1970 UTC; a naive datetime is taken as UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * 1_000_000_000 + moment.microsecond * 1_000
