"""Sizes and durations as people write them: `"256MiB"`, `"30s"`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
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


US_PER_MS: Final = 1_000

_TEXT: Final = re.compile(r"([0-9]+)\s*([A-Za-z]*)")
_SIZES: Final = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1, "": 1}
_DURATIONS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1, "": 1}
_MICROS: Final = {"us": 1} | {unit: ms * US_PER_MS for unit, ms in _DURATIONS.items()}


def _parse(text: str, units: Mapping[str, int], what: str) -> int:
    match = _TEXT.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise ValueError(f"{text!r} is not a {what}")
    return int(match[1]) * units[match[2]]


def parse_size(text: str) -> int:
    """Bytes of `"256MiB"`, `"64KiB"` or `"1000"`. Raises: ValueError."""
    return _parse(text, _SIZES, "size")


def format_size(size: int) -> str:
    """The shortest exact text of `size`, as `parse_size` reads it."""
    unit = next(unit for unit, step in _SIZES.items() if size % step == 0) if size else "B"
    return str(size) if unit == "B" else f"{size // _SIZES[unit]}{unit}"


def parse_duration(text: str) -> int:
    """Milliseconds of `"250ms"`, `"30s"`, `"15m"`, `"12h"` or `"7d"`. Raises: ValueError."""
    return _parse(text, _DURATIONS, "duration")


def format_duration(ms: int) -> str:
    """The shortest exact text of `ms`, as `parse_duration` reads it."""
    unit = next(unit for unit, step in _DURATIONS.items() if ms % step == 0) if ms else "s"
    return f"{ms // _DURATIONS[unit]}{unit}"


def parse_micros(text: str) -> int:
    """Microseconds of `"30us"`, or of what `parse_duration` reads. Raises: ValueError."""
    return _parse(text, _MICROS, "duration")


def format_micros(us: int) -> str:
    """The shortest exact text of `us`, as `parse_micros` reads it."""
    return f"{us}us" if us % US_PER_MS else format_duration(us // US_PER_MS)


class UnitFormat(NamedTuple):
    """How a unit is read and written. hint: what to write instead of what cannot be read."""

    parse: Callable[[str], int]
    format: Callable[[int], str]
    hint: str
    of_number: int = 1  # what a plain number in the file is multiplied with


UNITS: Final[dict[str, UnitFormat]] = {
    BYTES["unit"]: UnitFormat(parse_size, format_size, 'write "256MiB", "64KiB" or bytes'),
    DURATION["unit"]: UnitFormat(
        parse_duration, format_duration, 'write "100ms", "30s", "12h" or "7d"'
    ),
    MICROS["unit"]: UnitFormat(
        parse_micros, format_micros, 'write "30us", "500us" or "100ms"', US_PER_MS
    ),
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
