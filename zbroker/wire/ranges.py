"""The text of a range of the log, `[a:b)`: two points between brackets. Pure.

The only thing with a colon in it that names a place is a point with a name, `point:NAME`; a NAME
in a range has none. So another colon parts the two ends. A square bracket takes what its point
names into the range, a round one leaves it out. One of the ends may be empty: the range begins at
the oldest that is kept, or has no end.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from zbroker.errors import ClientError
from zbroker.ids import EPOCH

#: The side of the message that a point names: "at" is before it, `behind` after it. "": as without
#: brackets, at a time and after a bookmark or vector.
Cut = Literal["", "at", "behind"]

OPENING: Final = "[("
CLOSING: Final = "])"

_ENDS: Final = re.compile(r"((?:point:)?[^:]*):((?:point:)?[^:]*)")


class RangeText(NamedTuple):
    """A range, not yet looked at its ends. `last` is empty if it has no end."""

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

    def behind(self, vector: str) -> RangeText:
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
        raise _bad(text, "it is between '[' or '(' and ']' or ')'")
    ends = _ENDS.fullmatch(text[1:-1])
    if ends is None:
        many = text.count(":") - text.count("point:") > 1
        why = "there is more than one colon" if many else "there is no colon between its ends"
        raise _bad(text, why)
    first, last = ends.groups()
    if not first and not last:
        raise _bad(text, "it has no end at all")
    return RangeText(text[0], first or EPOCH, last, text[-1])


def _bad(text: str, why: str) -> ClientError:
    return ClientError("bad_bookmark", f"{text[:64]!r} is not a range of the form '[a:b)': {why}")
