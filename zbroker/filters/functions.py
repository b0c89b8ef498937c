"""The functions of the language, each with what it takes.

A parameter is described by a letter: `t` a text, `n` a number, `v` any scalar value, `a` a value as
it is, `p` a constant pattern, `r` a constant replacement, `f` a constant format of a time. With
`t`, `n` and `v` an array means its first element and NULL gives NULL. Places in texts count
characters (Unicode code points) from 1, as in SQL; times are always UTC.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
import uuid
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from msgspec import Struct

from zbroker.clock import SystemClock
from zbroker.filters import values
from zbroker.filters.arithmetic import guarded, round_half_up, total
from zbroker.filters.limits import TEXT_MAX_CHARS
from zbroker.filters.patterns import TextPattern
from zbroker.filters.values import Number, is_null, text

CRC64_MAX_BYTES: Final = 4_096  # some 0.2 us a byte, in Python; a longer text has none
EARTH_RADIUS_M: Final = 6_371_008.8  # mean radius of WGS 84; a sphere is right within 0.5 %
_MANY: Final = 1_000  # the limit of nodes comes first
_LATITUDE_MAX: Final = 90
_LONGITUDE_MAX: Final = 180
_DIRECTIVE: Final = re.compile(r"%(.?)", re.DOTALL)
_KNOWN: Final = "YmdHMSfj%"  # none that depends on a language or a system
_CLOCK: Final = SystemClock()
_READ: Final[dict[str, Callable[[Any], Any]]] = {
    "t": text,
    "n": values.number,
    "v": lambda item: values.scalar(values.first(item)),
}


class Function(Struct, frozen=True):
    """`takes` has a letter per parameter, `most` may be more: then the last one repeats."""

    call: Callable[..., Any]
    takes: str
    least: int
    most: int

    def kind(self, at: int) -> str:
        """The letter of an argument."""
        return self.takes[min(at, len(self.takes) - 1)]


def reading(compute: Callable[..., Any], takes: str) -> Callable[..., Any]:
    """`compute` of arguments that are read as `takes` says; NULL if one of these is NULL."""
    readers = [_READ.get(letter) for letter in takes]

    def call(*items: Any) -> Any:  # noqa: ANN401 - what a payload may hold
        given = []
        for at, item in enumerate(items):
            reader = readers[min(at, len(readers) - 1)]
            value = reader(item) if reader else item
            if reader and value is None:
                return None
            given.append(value)
        return compute(*given)

    return call


def _raw(call: Callable[..., Any], takes: str, least: int = 0, most: int = 0) -> Function:
    """A function that sees its arguments as they are, NULL too."""
    return Function(call, takes, least or len(takes), most or len(takes))


def _of(compute: Callable[..., Any], takes: str, least: int = 0, most: int = 0) -> Function:
    """A function of arguments that are read, and not NULL."""
    return _raw(reading(partial(guarded, compute), takes), takes, least, most)


# -- texts ------------------------------------------------------------------------------------


def _shorter(change: Callable[[str], str], item: str) -> str | None:
    """Upper or lower case, which may be longer than the text itself."""
    return change(item) if len(item) <= TEXT_MAX_CHARS else None


def _right(item: str, count: Number) -> str:
    wanted = max(0, int(count))
    return item[-wanted:] if wanted else ""


def _substr(item: str, start: Number, count: Number | None = None) -> str:
    """A negative `start` counts from the end; 0 is taken as 1."""
    begin = int(start)
    begin = begin - 1 if begin > 0 else begin and max(0, len(item) + begin)
    return item[begin:] if count is None else item[begin : begin + max(0, int(count))]


def _joined(items: Iterable[Any], between: str) -> str | None:
    """The texts of all items that have one; None if that would be too long."""
    found = [each for each in map(text, items) if each is not None]
    length = sum(map(len, found)) + len(between) * len(found)
    return None if length > TEXT_MAX_CHARS else between.join(found)


def _replaced(item: Any, old: Any, new: Any) -> str | None:  # noqa: ANN401 - as above
    """`item` with `new` for every `old`; NULL for `new` takes it away."""
    found, wanted, other = text(item), text(old), text(new) or ""
    if found is None or wanted is None:
        return None
    grown = len(found) + found.count(wanted) * (len(other) - len(wanted))
    return None if grown > TEXT_MAX_CHARS else found.replace(wanted, other)


def _regexp_replace(item: Any, pattern: TextPattern, new: Any) -> str | None:  # noqa: ANN401 - as above
    found = text(item)
    return None if found is None else pattern.replace(found, text(new) or "")


def _elements(item: Any) -> list[Any]:  # noqa: ANN401 - as above
    """A value as an array: NULL has no element, a value that is not an array has one."""
    if item.__class__ is list:
        return item
    return [] if is_null(item) else [item]


# -- hashes of texts, over their bytes in UTF-8 -----------------------------------------------


def _crc64_of_byte(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (0xC96C5795D7870F42 if crc & 1 else 0)  # CRC-64/XZ: ECMA-182, reflected
    return crc


_CRC64: Final = tuple(map(_crc64_of_byte, range(256)))
_ALL_ONES: Final = (1 << 64) - 1


def _crc64(item: str) -> int | None:
    data = item.encode()
    if len(data) > CRC64_MAX_BYTES:
        return None
    crc = _ALL_ONES
    for byte in data:
        crc = crc >> 8 ^ _CRC64[(crc ^ byte) & 0xFF]
    return crc ^ _ALL_ONES


# -- numbers ----------------------------------------------------------------------------------


def _geo_distance(lat1: Number, lon1: Number, lat2: Number, lon2: Number) -> float | None:
    """Metres between two places given in degrees, by the haversine formula."""
    if max(abs(lat1), abs(lat2)) > _LATITUDE_MAX or max(abs(lon1), abs(lon2)) > _LONGITUDE_MAX:
        return None
    phi1, phi2 = math.radians(lat1), math.radians(lat2)
    half_north = math.sin((phi2 - phi1) / 2)
    half_east = math.sin(math.radians(lon2 - lon1) / 2)
    part = half_north**2 + math.cos(phi1) * math.cos(phi2) * half_east**2
    return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, part)))


def _width_bucket(item: Number, low: Number, high: Number, count: Number) -> int | None:
    """Which of `count` equal buckets from `low` to `high`, as in SQL; 0 and count + 1: outside."""
    buckets = int(count)
    if buckets < 1 or low == high:
        return None
    if low > high:
        item, low, high = -item, -low, -high
    if item < low:
        return 0
    if item >= high:
        return buckets + 1
    return min(buckets, int((item - low) * buckets / (high - low)) + 1)


# -- times: seconds since 1970 as text and back -----------------------------------------------


def bad_directive(form: str) -> str | None:
    """The first directive of a format that is not known here."""
    found = _DIRECTIVE.finditer(form)
    return next((each[0] for each in found if not each[1] or each[1] not in _KNOWN), None)


def _strftime(form: str, seconds: Number) -> str | None:
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except OSError:
        return None
    year = f"{moment.year:04}"  # %Y has no leading zeros everywhere
    return moment.strftime(_DIRECTIVE.sub(lambda d: year if d[1] == "Y" else d[0], form))


def _strptime(item: str, form: str) -> float:
    return datetime.strptime(item, form).replace(tzinfo=UTC).timestamp()


# -- clock and chance -------------------------------------------------------------------------


def _unix_timestamp() -> float:
    """Seconds since 1970."""
    return _CLOCK.wall_ns() / 1_000_000_000


def _uuid7() -> str:
    """A UUID of version 7 (RFC 9562): it rises with the milliseconds since 1970."""
    version, variant = 7 << 76, 2 << 62
    value = _CLOCK.wall_ns() // 1_000_000 << 80
    value |= version | secrets.randbits(12) << 64
    value |= variant | secrets.randbits(62)
    return str(uuid.UUID(int=value))


# -- the language -----------------------------------------------------------------------------

FUNCTIONS: Final[dict[str, Function]] = {
    # texts
    "INSTR": _of(lambda item, wanted: item.find(wanted) + 1, "tt"),
    "INSTR_I": _of(lambda item, wanted: item.lower().find(wanted.lower()) + 1, "tt"),
    "STREQUAL_I": _of(lambda item, other: item.lower() == other.lower(), "tt"),
    "LENGTH": _of(len, "t"),
    "LEFT": _of(lambda item, count: item[: max(0, int(count))], "tn"),
    "RIGHT": _of(_right, "tn"),
    "SUBSTR": _of(_substr, "tnn", 2),
    "REVERSE": _of(lambda item: item[::-1], "t"),
    "LTRIM": _of(str.lstrip, "t"),
    "RTRIM": _of(str.rstrip, "t"),
    "UPPER": _of(partial(_shorter, str.upper), "t"),
    "LOWER": _of(partial(_shorter, str.lower), "t"),
    "CONCAT": _raw(lambda *items: _joined(items, ""), "a", 1, _MANY),
    "REPLACE": _raw(_replaced, "aaa"),
    "REGEXP_MATCH": _raw(lambda item, pattern: pattern.truth(item), "ap"),
    "REGEXP_REPLACE": _raw(_regexp_replace, "apr"),
    # numbers
    "ABS": _of(abs, "n"),
    "GREATEST": _of(lambda *items: values.greatest(items), "v", 1, _MANY),
    "LEAST": _of(lambda *items: values.least(items), "v", 1, _MANY),
    "CEILING": _of(math.ceil, "n"),
    "FLOOR": _of(math.floor, "n"),
    "ROUND": _of(round_half_up, "nn", 1),
    "EXP": _of(math.exp, "n"),
    "LN": _of(math.log, "n"),
    "LOG2": _of(math.log2, "n"),
    "LOG10": _of(math.log10, "n"),
    "POWER": _of(math.pow, "nn"),
    "SQRT": _of(math.sqrt, "n"),
    "SIGN": _of(lambda item: (item > 0) - (item < 0), "n"),
    "RADIANS": _of(math.radians, "n"),
    "DEGREES": _of(math.degrees, "n"),
    "SIN": _of(math.sin, "n"),
    "COS": _of(math.cos, "n"),
    "TAN": _of(math.tan, "n"),
    "COT": _of(lambda angle: 1 / math.tan(angle), "n"),
    "ASIN": _of(math.asin, "n"),
    "ACOS": _of(math.acos, "n"),
    "ATAN": _of(math.atan, "n"),
    "ATAN2": _of(math.atan2, "nn"),
    "SINH": _of(math.sinh, "n"),
    "COSH": _of(math.cosh, "n"),
    "TANH": _of(math.tanh, "n"),
    "WIDTH_BUCKET": _of(_width_bucket, "nnnn"),
    "GEO_DISTANCE": _of(_geo_distance, "nnnn"),
    # hashes
    "MD5": _of(lambda item: hashlib.md5(item.encode(), usedforsecurity=False).hexdigest(), "t"),
    "CRC32": _of(lambda item: zlib.crc32(item.encode()), "t"),
    "CRC64": _of(_crc64, "t"),
    # times
    "STRFTIME": _of(_strftime, "fn"),
    "STRPTIME": _of(_strptime, "tf"),
    # arrays
    "ARRAY_COUNT": _raw(lambda item: len(_elements(item)), "a"),
    "ARRAY_MAX": _raw(lambda item: values.greatest(_elements(item)), "a"),
    "ARRAY_MIN": _raw(lambda item: values.least(_elements(item)), "a"),
    "ARRAY_SUM": _raw(lambda item: total(_elements(item)), "a"),
    "ARRAY_TO_STRING": _raw(
        lambda item, between=",": _joined(_elements(item), text(between) or ""), "aa", 1
    ),
}

#: Functions with another value each time: a filter with one of them is asked for what is true now,
#: so it is refused where it must mean the same everywhere and at any time (`vocabulary.FIXED`).
CHANGING: Final[dict[str, Function]] = {
    "UNIX_TIMESTAMP": Function(_unix_timestamp, "", 0, 0),
    "UUID7": Function(_uuid7, "", 0, 0),
}
