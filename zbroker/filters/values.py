"""Values of filters: NULL, numbers, texts, arrays; their order, in three-valued logic.

True, False and None are the three truths. A payload's value is one of

    NULL     None, empty text, empty array, and what a path that leads nowhere gives
    number   int, float; bool as 1 and 0; a time of msgpack as seconds since 1970
    text     str
    element  of XML, a map: as its own text
    array    list: an operator asks any element, a function takes the first
    opaque   map, bytes, extension: neither equal to anything nor unequal, but not NULL
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Any, Final

from zbroker.filters.limits import INTEGER_MAX, INTEGER_MIN, NUMBER_MAX_CHARS
from zbroker.formats.xml import TEXT, Element

Truth = bool | None
Number = int | float

_NUMBER: Final = re.compile(r"[+-]?(?:([0-9]+)|[0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def is_null(value: Any) -> bool:  # noqa: ANN401 - what a payload may hold
    """True for None, empty text and the empty array."""
    return value is None or (value.__class__ in (str, list) and not value)


def first(value: Any) -> Any:  # noqa: ANN401 - what a payload may hold
    """The first element of an array, other values as they are."""
    if value.__class__ is list:
        return value[0] if value else None
    return value


def number_in(text: str) -> Number | None:
    """The number that a text spells, as in JSON or with `+`, `.5`, `5.`; None if it spells none."""
    if len(text) > NUMBER_MAX_CHARS:
        return None
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    if found[1] and not found[2] and INTEGER_MIN <= (whole := int(text)) <= INTEGER_MAX:
        return whole
    number = float(text)
    return number if math.isfinite(number) else None


def scalar(value: Any) -> Number | str | None:  # noqa: ANN401 - what a payload may hold
    """A number or text that is not empty; None for everything else."""
    kind = value.__class__
    found: Number | str | None = None
    if kind is str:
        found = value or None
    elif kind is int or kind is float or kind is bool:
        found = value
    elif kind is datetime:
        found = value.timestamp()
    elif kind is Element:
        found = value.get(TEXT) or None
    return found


def number(value: Any) -> Number | None:  # noqa: ANN401 - what a payload may hold
    """The number that a value is or spells; of an array, its first element's."""
    found = scalar(first(value))
    if isinstance(found, str):
        return number_in(found)
    return int(found) if found.__class__ is bool else found


def text(value: Any) -> str | None:  # noqa: ANN401 - what a payload may hold
    """The text of a value, a number's as JSON writes it; of an array, its first element's."""
    found = scalar(first(value))
    if found is None or found.__class__ is str:
        return found
    if found.__class__ is bool:
        return "true" if found else "false"
    try:
        return repr(found)
    except ValueError:  # thousands of digits
        return None


def truth(value: Any) -> Truth:  # noqa: ANN401 - what a payload may hold
    """A value as a condition: a number that is not 0."""
    if value is None or value.__class__ is bool:
        return value
    found = number(value)
    return None if found is None or found != found else found != 0


def fit(result: Number) -> Number | None:
    """A result, unless it is out of 64 bits, infinite or no number."""
    if result.__class__ is int:
        return result if INTEGER_MIN <= result <= INTEGER_MAX else None
    return result if math.isfinite(result) else None


# -- three-valued logic -----------------------------------------------------------------------


def not_(item: Truth) -> Truth:
    return None if item is None else not item


def and_(*items: Truth) -> Truth:
    return False if False in items else None if None in items else True


def or_(*items: Truth) -> Truth:
    return True if True in items else None if None in items else False


def any_of(truths: Iterable[Truth]) -> Truth:
    """`or_` of truths that are asked one by one, until one is True."""
    found: Truth = False
    for each in truths:
        if each:
            return True
        if each is None:
            found = None
    return found


# -- order ------------------------------------------------------------------------------------

Order = Callable[[Any, Any], Truth]


def _ordering(compare: Callable[[Any, Any], bool]) -> Order:
    """An operator on two values of any kind, made from one on two of the same kind."""

    def plain(left: Any, right: Any) -> Truth:  # noqa: ANN401 - what a payload may hold
        left, right = scalar(left), scalar(right)
        if left is None or right is None:
            return None
        if left.__class__ is str:
            if right.__class__ is not str and (left := number_in(left)) is None:
                return compare(1, 0)  # text that is not a number is above every number
        elif right.__class__ is str and (right := number_in(right)) is None:
            return compare(0, 1)
        return compare(left, right)

    def test(left: Any, right: Any) -> Truth:  # noqa: ANN401 - what a payload may hold
        if left.__class__ is list:
            other = first(right)  # any with any would take the product of their lengths
            return any_of(plain(each, other) for each in left) if left else None
        if right.__class__ is list:
            return any_of(plain(left, each) for each in right) if right else None
        return plain(left, right)

    return test


ORDERS: Final[dict[str, Order]] = {
    "=": _ordering(operator.eq),
    "!=": _ordering(operator.ne),
    "<": _ordering(operator.lt),
    "<=": _ordering(operator.le),
    ">": _ordering(operator.gt),
    ">=": _ordering(operator.ge),
}
_EQUAL, _AT_LEAST, _AT_MOST, _ABOVE = (ORDERS[op] for op in ("=", ">=", "<=", ">"))


def between(item: Any, low: Any, high: Any) -> Truth:  # noqa: ANN401 - what a payload may hold
    low, high = first(low), first(high)
    if item.__class__ is list:
        return any_of(between(_inner(each), low, high) for each in item) if item else None
    return and_(_AT_LEAST(item, low), _AT_MOST(item, high))


def one_of(item: Any, *choices: Any) -> Truth:  # noqa: ANN401 - what a payload may hold
    return any_of(_EQUAL(item, choice) for choice in choices)


def is_nan(item: Any) -> Truth:  # noqa: ANN401 - what a payload may hold
    """None if the value is not a number."""
    found = number(item)
    return None if found is None else found != found


def of_text(item: Any, test: Callable[[str], Truth]) -> Truth:  # noqa: ANN401 - as above
    """`test` of the text of a value, or of any element of an array."""
    if item.__class__ is list:
        return any_of(of_text(_inner(each), test) for each in item) if item else None
    found = text(item)
    return None if found is None else test(found)


def _inner(each: Any) -> Any:  # noqa: ANN401 - what a payload may hold
    """An element of an array; an array in an array is opaque."""
    return None if each.__class__ is list else each


def _extreme(items: Iterable[Any], beyond: Order) -> Any:  # noqa: ANN401 - as above
    found = None
    for each in items:
        if scalar(each) is not None and (found is None or beyond(each, found)):
            found = each
    return found


#: the highest and the lowest of values; those that are NULL or opaque do not count
greatest: Final = partial(_extreme, beyond=_ABOVE)
least: Final = partial(_extreme, beyond=ORDERS["<"])
