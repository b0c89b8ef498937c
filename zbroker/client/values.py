"""What users give for a message, checked, as the client keeps it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from zbroker.client.publisher.packer import Extra, encoded
from zbroker.client.subscriber.options import seconds
from zbroker.clock import from_datetime
from zbroker.errors import ZBrokerError
from zbroker.ids import check_topic
from zbroker.limits import TOPICS_MAX, U63_MAX
from zbroker.wire.bodies import Scalar, are_scalars, check_extra_size


def to_bytes(data: object, name: str = "data") -> bytes:
    """A payload, or a key. Raises: TypeError."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    hint = ": use .encode()" if isinstance(data, str) else ""
    raise TypeError(f"{name} is bytes, not {type(data).__name__}{hint}")


def to_ns(time: datetime | int) -> int:
    """A time in nanoseconds since 1970 UTC. Raises: TypeError."""
    if isinstance(time, datetime):
        return from_datetime(time)
    if isinstance(time, int) and not isinstance(time, bool):
        return time
    raise TypeError(f"a time is a datetime or an int of nanoseconds, not {type(time).__name__}")


def to_headers(headers: object) -> dict[str, Scalar]:
    """A copy of headers. Raises: TypeError."""
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers are a mapping, not {type(headers).__name__}")
    found = dict(headers)
    for name in found:
        if type(name) is not str:
            raise TypeError(f"the name of a header is a str, not {type(name).__name__}")
    if not are_scalars(found.values()):
        name, value = next(item for item in found.items() if not are_scalars(item[1:]))
        raise TypeError(
            f"header {name!r} is a str, int, float, bool, bytes or None, not {type(value).__name__}"
        )
    return found


def to_expiry(expires: datetime | timedelta | int | str, from_ns: int) -> int:
    """When a message expires, in nanoseconds since 1970 UTC. A duration counts from `from_ns`.

    Raises: TypeError; ZBrokerError bad_field.
    """
    if isinstance(expires, timedelta | str):
        found = from_ns + round(seconds("expires", expires) * 1_000_000_000)
    elif isinstance(expires, datetime):
        found = from_datetime(expires)
    elif isinstance(expires, int) and not isinstance(expires, bool):
        found = expires
    else:
        raise TypeError(
            "expires is a datetime, an int of nanoseconds, a timedelta or text like '10s', "
            f"not {type(expires).__name__}"
        )
    if not 0 < found <= U63_MAX:
        raise ZBrokerError(
            "bad_field",
            f"expires={expires!r} is {found} ns since 1970 UTC, not 1 to {U63_MAX}",
            'give a time, or how long from now: "10s"',
        )
    return found


def to_extra(
    key: object, headers: object, expires: datetime | timedelta | int | str | None, from_ns: int,
    *, mandatory: bool = False,
) -> tuple[Extra, int]:  # fmt: skip
    """What a message has beside its payload, and the bytes of its key and headers.

    A duration in `expires` counts from `from_ns`.
    Raises: TypeError; ZBrokerError bad_field, too_large.
    """
    extra = Extra(
        None if key is None else to_bytes(key, "key"),
        None if headers is None else to_headers(headers) or None,
        None if expires is None else to_expiry(expires, from_ns),
        mandatory,
    )
    try:
        size = encoded(extra).size
    except (OverflowError, UnicodeEncodeError) as error:
        raise ZBrokerError(
            "bad_field",
            f"a header cannot be sent: {error}",
            "text is UTF-8, a whole number has at most 64 bits",
        ) from None
    check_extra_size(size)
    return extra, size


class CheckedTopics:
    """`known`: those that were checked already; the others cost a call."""

    def __init__(self) -> None:
        self.known: set[str] = set()

    def check_many(self, topic: str | Sequence[str], count: int) -> str | list[str]:
        """One for all of `count` messages, or one for each. Raises: as `check`, ValueError."""
        if isinstance(topic, str | bytes) or not isinstance(topic, Sequence):
            self.check(topic)
            return topic
        if len(topic) != count:
            raise ValueError(f"{count} payloads have {len(topic)} topics")
        for each in dict.fromkeys(topic):
            self.check(each)
        return list(topic)

    def check(self, topic: str) -> None:
        """Raises: TypeError, ZBrokerError bad_topic."""
        if topic in self.known:
            return
        if not isinstance(topic, str):
            raise TypeError(f"a topic is a str, not {type(topic).__name__}")
        check_topic(topic)
        if len(self.known) >= TOPICS_MAX:
            self.known.clear()
        self.known.add(topic)


def many(
    payloads: Iterable[bytes], times: Iterable[datetime | int] | None
) -> tuple[list[bytes], list[int] | None]:
    """Payloads and their times, as many of these or none. Raises: TypeError, ValueError."""
    data = [item if type(item) is bytes else to_bytes(item) for item in payloads]
    if not data:
        raise ValueError("publish_many needs at least one payload")
    stamps = None if times is None else [to_ns(time) for time in times]
    if stamps is not None and len(stamps) != len(data):
        raise ValueError(f"{len(data)} payloads have {len(stamps)} times")
    return data, stamps
