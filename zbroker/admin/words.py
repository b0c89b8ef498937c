"""Sizes and durations in sentences for people: rounded, unlike those of the config."""

from __future__ import annotations

from typing import Final

_BYTES: Final = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_MS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def size(count: int) -> str:
    """`1.5 GiB`, `800 MiB`, `12 bytes`."""
    for unit, step in _BYTES:
        if count >= step:
            return f"{_short(count / step)} {unit}"
    return f"{count} bytes"


def duration(ms: int) -> str:
    """`8 d`, `1.5 h`, `250 ms`."""
    for unit, step in _MS:
        if ms >= step:
            return f"{_short(ms / step)} {unit}"
    return f"{ms} ms"


def serials(numbers: tuple[int, ...] | list[int]) -> str:
    """`segment 4`, `segments 4 to 9`, `segments 4, 7, 9`."""
    if len(numbers) == 1:
        return f"segment {numbers[0]}"
    if list(numbers) == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"segments {numbers[0]} to {numbers[-1]}"
    return f"segments {', '.join(map(str, numbers))}"


def _short(value: float) -> str:
    """One decimal below ten, none above or where it is 0."""
    return f"{value:.1f}".removesuffix(".0") if value < 10 else f"{value:.0f}"
