"""What names things: publisher ids, bookmarks, vectors, ranges, and which names are allowed. Pure.

A bookmark `"<publisher id>|<sequence>|"` names one message, the same on every instance; `"0"` is
EPOCH and `"0|1|"` is NOW (seed 004). A vector `"<instance hex>.<generation>.<position>"`, entries
joined by commas, is a resume point: everything up to and including these origin positions was seen.
A range `[a:b)` has two points between brackets; one of them may be empty: then it begins at the
oldest message that is kept, or has no end.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from zbroker.clock import is_time, parse_time
from zbroker.errors import ClientError
from zbroker.limits import NAME_MAX_BYTES, TOPIC_MAX_BYTES, U63_MAX

EPOCH: Final = "0"
NOW: Final = "0|1|"
POINT: Final = "point:"  # and the name of a place in the log

OPENING: Final = "[("  # of a range: a square bracket takes what its point names into it
CLOSING: Final = "])"

#: The side of the message that a point names: "at" is before it, `behind` after it. "": as without
#: brackets, at a time and after a bookmark or vector.
Cut = Literal["", "at", "behind"]

_BOOKMARK: Final = re.compile(r"(\d{1,20})\|(\d{1,19})\|")
_VECTOR_ENTRY: Final = re.compile(r"([0-9a-f]{16})\.(\d{1,10})\.(\d{1,19})")
#: A colon parts the ends; `point:` is the only other one, since a NAME in a range has none.
_ENDS: Final = re.compile(r"((?:point:)?[^:]*):((?:point:)?[^:]*)")


class Bookmark(NamedTuple):
    """One message, by its publisher and its sequence."""

    publisher: int
    sequence: int


class Origin(NamedTuple):
    """Where a message was first accepted."""

    instance: int
    generation: int

    def __str__(self) -> str:
        """As it is in a vector."""
        return f"{self.instance:016x}.{self.generation}"

    def precedes(self, other: Origin) -> bool:
        """Whether this is an older generation of the same instance."""
        return self.instance == other.instance and self.generation < other.generation


#: Everything up to these positions was seen.
Vector = dict[Origin, int]


def publisher_id(name: str) -> int:
    """The publisher id of a client name: the first 8 bytes of BLAKE2b as a u64, little-endian."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=64).digest()[:8], "little")


def format_bookmark(publisher: int, sequence: int) -> str:
    """The text of a bookmark."""
    return f"{publisher}|{sequence}|"


def parse_bookmark(text: str) -> Bookmark:
    """Raises: ClientError bad_bookmark."""
    match = _BOOKMARK.fullmatch(text)
    if match is None or int(match[1]) >= 1 << 64 or int(match[2]) > U63_MAX:
        raise ClientError("bad_bookmark", f"{text!r} is not of the form '<publisher>|<sequence>|'")
    return Bookmark(int(match[1]), int(match[2]))


def is_vector(text: str) -> bool:
    """True if every entry of `text` has the form of a vector's."""
    return all(_VECTOR_ENTRY.fullmatch(entry) for entry in text.split(","))


def raise_to(vector: Vector, other: Mapping[Origin, int]) -> None:
    """Moves the entries of `vector` on to those of `other` that are higher."""
    for origin, position in other.items():
        if position > vector.get(origin, -1):
            vector[origin] = position


def format_vector(vector: dict[Origin, int]) -> str:
    """The text of a vector; entries are sorted, so equal vectors have equal texts."""
    return ",".join(f"{o.instance:016x}.{o.generation}.{p}" for o, p in sorted(vector.items()))


def parse_vector(text: str) -> dict[Origin, int]:
    """Raises: ClientError bad_bookmark."""
    vector: dict[Origin, int] = {}
    for entry in text.split(","):
        match = _VECTOR_ENTRY.fullmatch(entry)
        if match is None:
            reason = f"{entry!r} is not of the form '<instance>.<generation>.<position>'"
            raise ClientError("bad_bookmark", reason)
        vector[Origin(int(match[1], 16), int(match[2]))] = int(match[3])
    return vector


def check_point(text: str) -> None:
    """Raises: ClientError bad_bookmark, unless it is one bookmark, time or vector, EPOCH or NOW."""
    if is_time(text):
        parse_time(text)
    elif is_vector(text):
        parse_vector(text)
    elif text not in (EPOCH, NOW):
        parse_bookmark(text)


def check_topic(topic: str) -> None:
    """Raises: ClientError bad_topic, unless 1 to 255 bytes of printable UTF-8."""
    if not _is_name(topic, TOPIC_MAX_BYTES):
        reason = f"{topic[:64]!r} is not 1 to {TOPIC_MAX_BYTES} bytes of printable UTF-8"
        raise ClientError("bad_topic", reason)


def _is_name(text: str, max_bytes: int) -> bool:
    return 0 < len(text.encode("utf-8", "surrogatepass")) <= max_bytes and text.isprintable()


def is_point_name(name: str) -> bool:
    """1 to 255 printable bytes."""
    return _is_name(name, NAME_MAX_BYTES)


def point_name(text: str) -> str | None:
    """The name in `"point:NAME"`; None for anything else. Raises: ClientError bad_bookmark."""
    if not text.startswith(POINT):
        return None
    name = text[len(POINT) :]
    if not is_point_name(name):
        raise ClientError("bad_bookmark", f"{text[:64]!r} names no point: 1 to 255 printable bytes")
    return name


def check_client_name(name: str) -> None:
    """Raises: ClientError bad_field or reserved_name."""
    if not _is_name(name, NAME_MAX_BYTES):
        reason = f"`client` must be 1 to {NAME_MAX_BYTES} bytes of printable UTF-8"
        raise ClientError("bad_field", reason)
    if name.startswith("$"):
        raise ClientError("reserved_name", f"{name!r} begins with '$'")


class RangeText(NamedTuple):
    """The parts of a range; its points are not checked. `last` is empty if it has no end."""

    opening: str
    first: str
    last: str
    closing: str

    @property
    def first_cut(self) -> Cut:
        """On which side of `first` it begins."""
        return "at" if self.opening == "[" else "behind"

    @property
    def last_cut(self) -> Cut:
        """On which side of `last` it ends."""
        return "behind" if self.closing == "]" else "at"

    @property
    def text(self) -> str:
        """What `parse_range` makes this of."""
        return f"{self.opening}{self.first}:{self.last}{self.closing}"

    def after(self, vector: str) -> RangeText:
        """The rest of it after everything up to `vector` was seen."""
        return self._replace(opening="(", first=vector)


def is_range(text: str) -> bool:
    """True if `text` begins like a range; nothing else does."""
    return text[:1] in tuple(OPENING)


def parse_range(text: str) -> RangeText:
    """The parts of a range. An empty begin is EPOCH.

    Raises: ClientError bad_bookmark.
    """
    if text[:1] not in tuple(OPENING) or text[-1:] not in tuple(CLOSING):
        raise _bad_range(text, "it is between '[' or '(' and ']' or ')'")
    ends = _ENDS.fullmatch(text[1:-1])
    if ends is None:
        many = text.count(":") - text.count("point:") > 1
        why = "there is more than one colon" if many else "there is no colon between its ends"
        raise _bad_range(text, why)
    first, last = ends.groups()
    if not first and not last:
        raise _bad_range(text, "it has no end at all")
    return RangeText(text[0], first or EPOCH, last, text[-1])


def _bad_range(text: str, why: str) -> ClientError:
    return ClientError("bad_bookmark", f"{text[:64]!r} is not a range of the form '[a:b)': {why}")
