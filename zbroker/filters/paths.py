"""Paths: which value of a decoded payload is meant.

    /order/price   /legs[0]/price   /35   [/odd name/with spaces]

A step is a name in a map, or in brackets a place in an array, from 0. A name of digits also finds
a key that is that number: FIX tags, and maps of msgpack. A path that leads nowhere gives None.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from zbroker.errors import ClientError
from zbroker.filters.limits import INDEX_MAX, PATH_MAX_CHARS, PATH_STEPS_MAX

NAME: Final = r"[\w.:@$-]+"  # without brackets; also part of the grammar of filters
_PLAIN: Final = re.compile(rf"/({NAME})")
_ODD: Final = re.compile(r"/([^/\[\]]+)")
_INDEX: Final = re.compile(r"\[([0-9]{1,9})\]")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,8}")

Step = str | int


class BadPath(ValueError):
    """The text is not a path; `at` counts characters from 0."""

    def __init__(self, at: int, expected: str) -> None:
        super().__init__(expected)
        self.at = at


@dataclass(frozen=True, slots=True)
class Path:
    """Where a value is; called with a decoded payload it gives what is there, or None."""

    text: str = field(compare=False)
    steps: tuple[Step, ...]

    def __call__(self, value: Any) -> Any:  # noqa: ANN401 - what a payload may hold
        for step in self.steps:
            if isinstance(step, int):
                if not isinstance(value, list) or step >= len(value):
                    return None
                value = value[step]
            elif isinstance(value, dict):
                value = look_up(value, step)
            else:
                return None
        return value


def look_up(found: dict[Any, Any], name: str) -> Any:  # noqa: ANN401 - what a payload may hold
    """The value of a name in a map; None if there is none."""
    value = found.get(name)
    if value is None and (number := as_number(name)) is not None:
        return found.get(number)
    return value


def as_number(name: str) -> int | None:
    """The key that is a number, which a name of digits also means."""
    return int(name) if _NUMBER.fullmatch(name) else None


def parse_path(text: str) -> Path:
    """The path that a text names.

    Raises: ClientError bad_field, with the column.
    """
    try:
        return Path(text, steps_of(text))
    except BadPath as error:
        raise ClientError("bad_field", f"column {error.at + 1} of a path: {error}") from None


def steps_of(text: str) -> tuple[Step, ...]:
    """The steps of a path. Raises: BadPath."""
    if len(text) > PATH_MAX_CHARS:
        raise BadPath(PATH_MAX_CHARS, f"a path has at most {PATH_MAX_CHARS} characters")
    odd = text.startswith("[")
    if odd and not text.endswith("]"):
        raise BadPath(len(text), "`]` is expected")
    at, end = (1, len(text) - 1) if odd else (0, len(text))
    steps: list[Step] = []
    while at < end or not steps:
        found = (_ODD if odd else _PLAIN).match(text, at, end)
        if found is None:
            raise BadPath(at, "`/` and a name are expected")
        steps.append(found[1])
        at = _indexes(text, found.end(), end, steps)
    if len(steps) > PATH_STEPS_MAX:
        raise BadPath(0, f"a path has at most {PATH_STEPS_MAX} steps")
    return tuple(steps)


def _indexes(text: str, at: int, end: int, steps: list[Step]) -> int:
    """Adds the `[n]` at `at`. Returns: where they end."""
    while text.startswith("[", at, end):
        found = _INDEX.match(text, at, end)
        if found is None:
            raise BadPath(at, f"a place from [0] to [{INDEX_MAX}] is expected")
        steps.append(int(found[1]))
        at = found.end()
    return at
