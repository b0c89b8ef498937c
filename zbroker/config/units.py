"""Sizes and durations as people write them: `"256MiB"`, `"30s"`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta

BYTES: Final = {"unit": "bytes"}  # marks a field that the file may write as "256MiB"
DURATION: Final = {"unit": "ms"}  # marks a field that the file may write as "30s"
MICROS: Final = {"unit": "us"}  # the same in microseconds, of which a plain number is 1,000
LAUNCH: Final = {"set": "by the start"}  # marks a field that the file may not write

Bytes = Annotated[int, Meta(ge=0, extra=BYTES)]
Duration = Annotated[int, Meta(ge=0, extra=DURATION)]  # milliseconds
Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Name = Annotated[str, Meta(min_length=1, max_length=255)]


def about(description: str, **bounds: Any) -> Meta:  # noqa: ANN401 - what a Meta takes
    """What a field is for: its comment in the example file, and its further bounds."""
    return Meta(description=description, **bounds)


_SIZE: Final = re.compile(r"([0-9]+)\s*(B|KiB|MiB|GiB|TiB)?")
_SIZES: Final = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_DURATION: Final = re.compile(r"([0-9]+)\s*(ms|s|m|h|d)?")
_MICROS: Final = re.compile(r"([0-9]+)\s*us")
US_PER_MS: Final = 1_000
_DURATIONS: Final = {None: 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_size(text: str) -> int:
    """Bytes of `"256MiB"`, `"64KiB"` or `"1000"`. Raises: ValueError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size")
    return int(match[1]) * _SIZES[match[2]]


def format_size(size: int) -> str:
    """The shortest exact text of `size`, as `parse_size` reads it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _SIZES[unit] == 0:
            return f"{size // _SIZES[unit]}{unit}"
    return str(size)


def parse_duration(text: str) -> int:
    """Milliseconds of `"250ms"`, `"30s"`, `"15m"`, `"12h"` or `"7d"`. Raises: ValueError."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration")
    return int(match[1]) * _DURATIONS[match[2]]


def format_duration(ms: int) -> str:
    """The shortest exact text of `ms`, as `parse_duration` reads it."""
    for unit in ("d", "h", "m", "s"):
        if ms and ms % _DURATIONS[unit] == 0:
            return f"{ms // _DURATIONS[unit]}{unit}"
    return f"{ms}ms" if ms else "0s"


def parse_micros(text: str) -> int:
    """Microseconds of `"30us"`, or of what `parse_duration` reads. Raises: ValueError."""
    match = _MICROS.fullmatch(text.strip())
    return int(match[1]) if match is not None else parse_duration(text) * US_PER_MS


def format_micros(us: int) -> str:
    """The shortest exact text of `us`, as `parse_micros` reads it."""
    return f"{us}us" if us % US_PER_MS else format_duration(us // US_PER_MS)


class UnitFormat(NamedTuple):
    """How texts in a unit are read. hint: what to write instead of what cannot be read."""

    parse: Callable[[str], int]
    hint: str
    of_number: int = 1  # what a plain number in the file is multiplied with


UNITS: Final[dict[str, UnitFormat]] = {
    BYTES["unit"]: UnitFormat(parse_size, 'write "256MiB", "64KiB" or bytes'),
    DURATION["unit"]: UnitFormat(parse_duration, 'write "100ms", "30s", "12h" or "7d"'),
    MICROS["unit"]: UnitFormat(parse_micros, 'write "30us", "500us" or "100ms"', US_PER_MS),
}


def read_unit(value: Any, unit: str | None) -> Any:  # noqa: ANN401 - what a file may hold
    """A value of a field in `unit`: texts as numbers, also in a list, others as they are.

    Raises: ValueError.
    """
    if unit not in UNITS:
        return value
    if isinstance(value, list):
        return [read_unit(each, unit) for each in value]
    if isinstance(value, str):
        return UNITS[unit].parse(value)
    return value * UNITS[unit].of_number if isinstance(value, int) else value
