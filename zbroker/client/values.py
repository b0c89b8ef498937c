"""What users give for a message, as the client keeps it. Pure."""

from __future__ import annotations

from datetime import datetime

from zbroker.clock import from_datetime


def to_bytes(data: object) -> bytes:
    """A payload. Raises: TypeError."""
    if isinstance(data, str):
        raise TypeError("data is bytes, not str: use .encode()")
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"data is bytes, not {type(data).__name__}")


def to_ns(time: datetime | int) -> int:
    """A time in nanoseconds since 1970 UTC. Raises: TypeError."""
    if isinstance(time, datetime):
        return from_datetime(time)
    if isinstance(time, int) and not isinstance(time, bool):
        return time
    raise TypeError(f"a time is a datetime or an int of nanoseconds, not {type(time).__name__}")
