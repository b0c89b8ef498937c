"""Texts of options as values: all that Spark hands over is text. Pure."""

from __future__ import annotations

from datetime import datetime

from zbroker.client.subscriber.points import since_text
from zbroker.clock import format_time, from_datetime, is_time
from zbroker.errors import ClientError, ZBrokerError
from zbroker.ids import check_topic
from zbroker.limits import GIB, KIB, MIB, U63_MAX

Point = str | int  # a text of `subscribe`, or a position

_FLAGS = {"true": True, "false": False}
_UNITS = {"": 1, "b": 1, "k": KIB, "kb": KIB, "kib": KIB, "m": MIB, "mb": MIB, "mib": MIB,
          "g": GIB, "gb": GIB, "gib": GIB}  # fmt: skip
_NS_PER_MS = 1_000_000
_LEASE_MAX_S = 30 * 86_400  # the broker takes no longer one


def text(value: str) -> str:
    """Any, but not nothing. Raises: ClientError bad_field."""
    if not value.strip():
        raise ClientError("bad_field", "it is empty")
    return value


def url(value: str) -> str:
    """As Kafka's connector takes it: without a scheme it is TCP. Raises: ClientError bad_field."""
    value = text(value).strip()
    if "," in value:
        raise ClientError("bad_field", "one instance has one log: name one endpoint")
    return value if "://" in value else f"tcp://{value}"


def names(value: str) -> tuple[str, ...]:
    """Topics. Raises: ClientError bad_field, bad_topic."""
    found = tuple(part.strip() for part in text(value).split(","))
    for topic in found:
        check_topic(topic)
    return found


def name(value: str) -> str:
    """Part of a name that the broker shows. Raises: ClientError bad_field."""
    if not value.isprintable() or not 1 <= len(value.strip()) <= 64:
        raise ClientError("bad_field", "1 to 64 printable characters are a name")
    return value.strip()


def point(value: str) -> Point:
    """earliest, latest, a position, or what `subscribe` takes. Raises: ClientError bad_bookmark."""
    value = text(value).strip()
    if value.lower() in ("earliest", "epoch"):
        return since_text("epoch")
    if value.lower() in ("latest", "now"):
        return "now"
    if value.isascii() and value.isdigit():
        return _number(value, 0, U63_MAX)
    if value.startswith("{"):
        hint = "the log has one line of positions, not one for each partition: give a position"
        raise ClientError("bad_bookmark", "offsets of partitions are not used here", hint)
    try:
        return since_text(value)
    except ZBrokerError as error:
        hint = "write earliest, latest, a position, or what a message's `bookmark` says"
        raise ClientError("bad_bookmark", error.reason, hint) from None


def time(value: str) -> str:
    """Milliseconds since 1970 or ISO 8601. Raises: ClientError bad_bookmark."""
    value = text(value).strip()
    if value.isascii() and value.isdigit():
        return format_time(_number(value, 0, U63_MAX // _NS_PER_MS) * _NS_PER_MS)
    if is_time(value):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise ClientError("bad_bookmark", f"{error}", "write 2026-11-22T08:00:00Z") from None
    if moment.tzinfo is None:
        raise ClientError("bad_bookmark", f"{value} has no zone", "write 2026-11-22T08:00:00Z")
    return format_time(from_datetime(moment))


def count(value: str) -> int:
    """1 or more. Raises: ClientError bad_field."""
    return _number(value.strip(), 1, U63_MAX)


def seconds(value: str) -> int:
    """The time of a lease, with or without `s`. Raises: ClientError bad_field."""
    return _number(value.strip().lower().removesuffix("s"), 1, _LEASE_MAX_S)


def size(value: str) -> int:
    """Bytes, or with a unit: 64MiB, 64m. Raises: ClientError bad_field."""
    value = value.strip().lower()
    digits = value.rstrip("bkmgi ")
    unit = value[len(digits) :].strip()
    if unit not in _UNITS:
        raise ClientError("bad_field", f"{value!r} is not a size", "write 64MiB")
    return _number(digits, 1, U63_MAX // GIB) * _UNITS[unit]


def flag(value: str) -> bool:
    """Raises: ClientError bad_field."""
    found = _FLAGS.get(value.strip().lower())
    if found is None:
        raise ClientError("bad_field", f"it is true or false, not {value!r}")
    return found


def _number(value: str, least: int, most: int) -> int:
    if not (value.isascii() and value.isdigit()) or not least <= int(value[:20]) <= most:
        raise ClientError("bad_field", f"{value!r} is not a whole number from {least} to {most}")
    return int(value)
