"""BSON, by the package of the MongoDB project (`pymongo`). Its own types become plain values.

| BSON | value |
|---|---|
| int32, int64, double, text, bool, null, map, array, binary | as they are |
| UTC date | a time; one outside of the years 1 to 9999 is its seconds since 1970 |
| ObjectId, Decimal128 | text: 24 hexadecimal digits, the number |
| timestamp | its seconds since 1970 |
| regular expression, code | its text |
| min key, max key | a map, so neither equal to anything nor unequal |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, Final

from zbroker.formats import types
from zbroker.formats.pairs import Malformed

DEPTH_MAX: Final = 64

_PLAIN: Final = frozenset({str, int, float, bool, type(None), bytes})


@cache
def _bson() -> tuple[ModuleType, Any]:
    """The package, and how it decodes: dates with their zone, those out of range by number."""
    found = types.load("bson", "bson")
    options = types.load("bson", "bson.codec_options")
    how = options.CodecOptions(
        tz_aware=True, datetime_conversion=options.DatetimeConversion.DATETIME_AUTO
    )
    return found, how


def decode(data: bytes) -> Any:  # noqa: ANN401 - a map of any values
    """The map of a payload. Raises: Malformed; ZBrokerError missing_package."""
    return _plain(parse(data), DEPTH_MAX)


def parse(data: bytes) -> dict[str, Any]:
    """The same with the package's own types, from which `encode` makes the same bytes again.

    Raises: Malformed, unless it is one document.
    """
    package, how = _bson()
    try:
        found: dict[str, Any] = package.decode(data, how)
    except (package.errors.BSONError, ValueError, TypeError, OverflowError) as error:
        raise Malformed(str(error)) from None
    return found


def encode(value: dict[str, Any]) -> bytes:
    """The bytes of what `parse` gave, or of a part of it."""
    package, how = _bson()
    found: bytes = package.encode(value, codec_options=how)
    return found


def _plain(value: Any, depth: int) -> Any:  # noqa: ANN401 - any value
    kind = value.__class__
    if kind in _PLAIN:
        return value
    if not depth:
        raise Malformed(f"it is nested deeper than {DEPTH_MAX}")
    if isinstance(value, dict):
        return {name: _plain(item, depth - 1) for name, item in value.items()}
    if kind is list:
        return [_plain(item, depth - 1) for item in value]
    if kind.__name__ == "DBRef":
        return _plain(dict(value.as_doc()), depth)
    meaning = _MEANINGS.get(kind.__name__)
    return {"type": kind.__name__} if meaning is None else meaning(value)


def _pattern(value: Any) -> str:  # noqa: ANN401 - a regular expression
    pattern = value.pattern
    return pattern if isinstance(pattern, str) else pattern.decode(errors="replace")


#: name of a type of the package -> the plain value that it means
_MEANINGS: Final[dict[str, Callable[[Any], Any]]] = {
    "Int64": int,
    "ObjectId": str,
    "Decimal128": str,
    "Code": str,
    "Binary": bytes,
    "Regex": _pattern,
    "Timestamp": lambda value: int(value.time),
    "DatetimeMS": lambda value: int(value) / 1_000,
    "datetime": lambda value: value,
}
