"""Arithmetic and functions of numbers. A result beyond 64 bits is NULL, not an exception."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from zbroker.filters.values import Number, fit, number

Binary = Callable[[Any, Any], Number | None]

_DIGITS_MAX: Final = 15  # of ROUND; a double has no more


def guarded(compute: Callable[..., Any], *items: Any) -> Any:  # noqa: ANN401 - any result
    """What `compute` gives; None for a number that is not there or not within 64 bits."""
    try:
        found = compute(*items)
        return fit(found) if found.__class__ in (int, float) else found
    except (ValueError, OverflowError, ZeroDivisionError):
        return None


def _binary(compute: Callable[[Any, Any], Number]) -> Binary:
    def operate(left: Any, right: Any) -> Number | None:  # noqa: ANN401 - what a payload may hold
        left, right = number(left), number(right)
        return None if left is None or right is None else guarded(compute, left, right)

    return operate


def _divide(left: Number, right: Number) -> Number:
    """Division; for integers towards zero."""
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: Number, right: Number) -> Number:
    """What `_divide` leaves; it has the sign of `left`."""
    if isinstance(left, float) or isinstance(right, float):
        return math.fmod(left, right)
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


OPERATORS: Final[dict[str, Binary]] = {
    "+": _binary(operator.add),
    "-": _binary(operator.sub),
    "*": _binary(operator.mul),
    "/": _binary(_divide),
    "%": _binary(_remainder),
}


def round_half_up(item: Number, digits: Number = 0) -> Number:
    """Halves away from zero."""
    places = max(-_DIGITS_MAX, min(_DIGITS_MAX, int(digits)))
    if isinstance(item, int) and places >= 0:
        return item
    scale = 10.0 ** abs(places)
    scaled = abs(item) * scale if places >= 0 else abs(item) / scale
    if scaled >= 1 << 53:
        return item  # has no fraction
    whole = math.floor(scaled)
    whole += scaled - whole >= 0.5
    result = whole / scale if places > 0 else whole * int(scale)
    result = -result if item < 0 else result
    return result if places > 0 else int(result)


def total(items: list[Any]) -> Number | None:
    """The sum of what is a number or spells one; None if nothing is."""
    found = [each for each in map(number, items) if each is not None]
    return guarded(sum, found) if found else None
