"""Where a subscription begins and ends, and how the same is asked for after a reconnect. Pure.

The end is a moment: what it means does not change when the subscription is resumed. So "now" is
turned into a vector once, and a range keeps its end and its bracket when its start moves on.
"""

from __future__ import annotations

from zbroker.clock import is_time
from zbroker.ids import (
    NOW,
    Origin,
    RangeText,
    format_vector,
    is_range,
    is_vector,
    parse_range,
    parse_vector,
    point_name,
)


class Ends:
    """The `bookmark` and `until` of a subscribe command, which may be a range in one text.

    behind: the vector that it starts behind, if it names one. timed: it starts at a time.
    """

    def __init__(self, bookmark: str | None, until: str | None) -> None:
        self._start, self._until = bookmark, until
        self._range: RangeText | None = None
        begin, inclusive = bookmark or NOW, False
        if is_range(begin):
            self._range = parse_range(begin)
            begin, inclusive = self._range.first, self._range.opening == "["
        self.timed = is_time(begin)
        self.behind: dict[Origin, int] = (
            parse_vector(begin) if is_vector(begin) and not inclusive else {}
        )

    @property
    def bounded(self) -> bool:
        """True if it ends by itself."""
        return bool(self._until or (self._range is not None and self._range.last))

    @property
    def unfixed(self) -> str:
        """An end that later means another place: the end of the log now, or a point with a name,
        which may be set again. A vector has to be found for it. "": there is none.
        """
        end = self._until if self._range is None else self._range.last
        if end in ("now", NOW):
            return NOW
        return end if end is not None and point_name(end) is not None else ""

    def resolve(self, vector: str) -> None:
        """The end is a moment: it is behind everything up to `vector`."""
        if self._range is None:
            self._until = vector
        else:
            self._range = self._range._replace(last=vector, closing="]")
            self._start = self._range.text

    def asked(self, behind: dict[Origin, int]) -> tuple[str | None, str | None]:
        """bookmark and until that go on behind a vector; as first given if it is empty."""
        if not behind:
            return self._start, self._until
        vector = format_vector(behind)
        if self._range is None:
            return vector, self._until
        return self._range.behind(vector).text, self._until
