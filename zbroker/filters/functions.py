"""The functions of the language, each with what it takes.

A parameter is described by a letter: `t` a text, `n` a number, `v` any scalar value, `a` a value as
it is, `p` a constant pattern, `r` a constant replacement, `f` a constant format of a time. With
`t`, `n` and `v` an array means its first element and NULL gives NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from zbroker.filters import arithmetic, geometry, hashes, texts, times, values, volatile_functions
from zbroker.filters.limits import TEXT_MAX_CHARS
from zbroker.filters.patterns import TextPattern

_MANY: Final = 1_000  # the limit of nodes comes first


def _value(item: Any) -> Any:  # noqa: ANN401 - what a payload may hold
    return values.scalar(values.first(item))


READ: Final[dict[str, Callable[[Any], Any]]] = {"t": values.text, "n": values.number, "v": _value}


@dataclass(frozen=True, slots=True)
class Function:
    """`takes` has a letter per parameter, `most` may be more: then the last one repeats.

    deterministic: it has the same value for the same arguments everywhere and for ever.
    """

    call: Callable[..., Any]
    takes: str
    least: int
    most: int
    deterministic: bool = True

    def kind(self, at: int) -> str:
        """The letter of an argument."""
        return self.takes[min(at, len(self.takes) - 1)]


def _checked(compute: Callable[..., Any], takes: str) -> Callable[..., Any]:
    """`compute` of arguments that are read as `takes` says and of which none is NULL."""
    readers = [READ.get(letter) for letter in takes]

    def call(*items: Any) -> Any:  # noqa: ANN401 - what a payload may hold
        read = []
        for at, item in enumerate(items):
            reader = readers[at] if at < len(readers) else readers[-1]
            found = reader(item) if reader else item
            if found is None:
                return None
            read.append(found)
        return _result(compute, read)

    return call


def _result(compute: Callable[..., Any], items: list[Any]) -> Any:  # noqa: ANN401 - as above
    try:
        found = compute(*items)
        return values.fit(found) if found.__class__ in (int, float) else found
    except (ValueError, OverflowError, ZeroDivisionError):
        return None


def _of(compute: Callable[..., Any], takes: str, least: int = 0, most: int = 0) -> Function:
    return Function(_checked(compute, takes), takes, least or len(takes), most or len(takes))


def _raw(call: Callable[..., Any], takes: str, least: int = 0, most: int = 0) -> Function:
    """One that sees its arguments as they are, NULL too."""
    return Function(call, takes, least or len(takes), most or len(takes))


def _regexp_match(item: Any, pattern: TextPattern) -> bool | None:  # noqa: ANN401 - as above
    return pattern.truth(item)


def _regexp_replace(item: Any, pattern: TextPattern, new: Any) -> str | None:  # noqa: ANN401 - as above
    found = values.text(item)
    return None if found is None else pattern.replace(found, values.text(new) or "")


def _shorter(change: Callable[[str], str], item: str) -> str | None:
    """Upper and lower case may be longer than what they are of."""
    return change(item) if len(item) <= TEXT_MAX_CHARS else None


FUNCTIONS: Final[dict[str, Function]] = {
    # texts
    "INSTR": _of(texts.instr, "tt"),
    "INSTR_I": _of(texts.instr_i, "tt"),
    "STREQUAL_I": _of(texts.streq_i, "tt"),
    "LENGTH": _of(len, "t"),
    "LEFT": _of(texts.left, "tn"),
    "RIGHT": _of(texts.right, "tn"),
    "SUBSTR": _of(texts.substr, "tnn", 2),
    "REVERSE": _of(texts.reverse, "t"),
    "LTRIM": _of(str.lstrip, "t"),
    "RTRIM": _of(str.rstrip, "t"),
    "UPPER": _of(partial(_shorter, str.upper), "t"),
    "LOWER": _of(partial(_shorter, str.lower), "t"),
    "CONCAT": _raw(texts.concat, "a", 1, _MANY),
    "REPLACE": _raw(texts.replace, "aaa"),
    "REGEXP_MATCH": _raw(_regexp_match, "ap"),
    "REGEXP_REPLACE": _raw(_regexp_replace, "apr"),
    # numbers
    "ABS": _of(abs, "n"),
    "GREATEST": _of(lambda *items: values.greatest(items), "v", 1, _MANY),
    "LEAST": _of(lambda *items: values.least(items), "v", 1, _MANY),
    "CEILING": _of(arithmetic.ceiling, "n"),
    "FLOOR": _of(arithmetic.floor, "n"),
    "ROUND": _of(arithmetic.round_half_up, "nn", 1),
    "EXP": _of(math.exp, "n"),
    "LN": _of(math.log, "n"),
    "LOG2": _of(math.log2, "n"),
    "LOG10": _of(math.log10, "n"),
    "POWER": _of(arithmetic.power, "nn"),
    "SQRT": _of(math.sqrt, "n"),
    "SIGN": _of(arithmetic.sign, "n"),
    "RADIANS": _of(math.radians, "n"),
    "DEGREES": _of(math.degrees, "n"),
    "SIN": _of(math.sin, "n"),
    "COS": _of(math.cos, "n"),
    "TAN": _of(math.tan, "n"),
    "COT": _of(geometry.cotangent, "n"),
    "ASIN": _of(math.asin, "n"),
    "ACOS": _of(math.acos, "n"),
    "ATAN": _of(math.atan, "n"),
    "ATAN2": _of(math.atan2, "nn"),
    "SINH": _of(math.sinh, "n"),
    "COSH": _of(math.cosh, "n"),
    "TANH": _of(math.tanh, "n"),
    "WIDTH_BUCKET": _of(geometry.width_bucket, "nnnn"),
    "GEO_DISTANCE": _of(geometry.geo_distance, "nnnn"),
    # hashes
    "MD5": _of(hashes.md5, "t"),
    "CRC32": _of(hashes.crc32, "t"),
    "CRC64": _of(hashes.crc64, "t"),
    # times
    "STRFTIME": _of(times.strftime, "fn"),
    "STRPTIME": _of(times.strptime, "tf"),
    # arrays
    "ARRAY_COUNT": _raw(lambda item: len(texts.elements(item)), "a"),
    "ARRAY_MAX": _raw(lambda item: values.greatest(texts.elements(item)), "a"),
    "ARRAY_MIN": _raw(lambda item: values.least(texts.elements(item)), "a"),
    "ARRAY_SUM": _raw(lambda item: arithmetic.total(texts.elements(item)), "a"),
    "ARRAY_TO_STRING": _raw(texts.array_to_string, "aa", 1),
}

#: Functions with another value each time they are called.
CHANGING: Final[dict[str, Function]] = {
    "UNIX_TIMESTAMP": Function(volatile_functions.unix_timestamp, "", 0, 0, deterministic=False),
    "UUID7": Function(volatile_functions.uuid7, "", 0, 0, deterministic=False),
}
