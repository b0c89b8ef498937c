"""Functions of texts. Places count characters (Unicode code points) from 1, as in SQL."""

from __future__ import annotations

from typing import Any

from zbroker.filters.limits import TEXT_MAX_CHARS
from zbroker.filters.values import Number, is_null, text


def left(item: str, count: Number) -> str:
    return item[: max(0, int(count))]


def right(item: str, count: Number) -> str:
    wanted = max(0, int(count))
    return item[-wanted:] if wanted else ""


def substr(item: str, start: Number, count: Number | None = None) -> str:
    """A negative `start` counts from the end; 0 is taken as 1."""
    begin = int(start)
    begin = begin - 1 if begin > 0 else begin and max(0, len(item) + begin)
    return item[begin:] if count is None else item[begin : begin + max(0, int(count))]


def reverse(item: str) -> str:
    return item[::-1]


def instr(item: str, wanted: str) -> int:
    """The place of `wanted`, 0 if it is not there."""
    return item.find(wanted) + 1


def instr_i(item: str, wanted: str) -> int:
    return item.lower().find(wanted.lower()) + 1


def streq_i(item: str, other: str) -> bool:
    return item.lower() == other.lower()


def concat(*items: Any) -> str | None:  # noqa: ANN401 - what a payload may hold
    """The texts of all that have one, concatenated."""
    return joined([found for found in map(text, items) if found is not None], "")


def joined(items: list[str], between: str) -> str | None:
    """None if it would be too long."""
    length = sum(map(len, items)) + len(between) * len(items)
    return None if length > TEXT_MAX_CHARS else between.join(items)


def replace(item: Any, old: Any, new: Any) -> str | None:  # noqa: ANN401 - as above
    """`item` with `new` for every `old`; NULL for `new` takes it away."""
    found, wanted, other = text(item), text(old), text(new) or ""
    if found is None or wanted is None:
        return None
    grown = len(found) + found.count(wanted) * (len(other) - len(wanted))
    return None if grown > TEXT_MAX_CHARS else found.replace(wanted, other)


def array_to_string(item: Any, between: Any = ",") -> str | None:  # noqa: ANN401 - as above
    """The texts of all elements that have one."""
    items = elements(item)
    found = [each for each in map(text, items) if each is not None]
    return joined(found, text(between) or "")


def elements(item: Any) -> list[Any]:  # noqa: ANN401 - as above
    """A value as an array: NULL has no element, a value that is not an array has one."""
    if item.__class__ is list:
        return item
    return [] if is_null(item) else [item]
