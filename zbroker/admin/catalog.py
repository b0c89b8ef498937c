"""What the two directories hold, for those who answer and for the policy.

Headers and summaries are read once per segment and kept; which copies there are is looked up each
time. Files are closed after each look: one that stays open takes space on the disk after it was
unlinked.
"""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from zbroker.admin.view import Copy, SegmentView, bounded_ages
from zbroker.errors import StorageError
from zbroker.log.archive.summaries import Summary, read_summary
from zbroker.log.format import ParseStop
from zbroker.log.places import LOOKS_MAX, SegmentPlace, SegmentPlaces, open_places


class SegmentRow(NamedTuple):
    """One segment. The open one, and one whose header is damaged, have no known end or times.

    copies: the best one first. summarized: everything that can be known of it is.
    """

    serial: int
    copies: tuple[Copy, ...]
    size: int
    first: int | None
    end: int | None
    first_time: int | None
    last_time: int | None
    is_open: bool
    summarized: bool

    def segment(self) -> SegmentView:
        """What the policy wants to know of it."""
        return SegmentView(self.serial, self.copies, self.size, self.end, self.last_time)


class _SealedFacts(NamedTuple):
    """What does not change any more."""

    size: int
    first: int | None
    summary: Summary | None = None
    summarized: bool = False


class Catalog:
    """Thread-safe."""

    def __init__(self, journal: Path, archive: Path) -> None:
        self._journal = journal
        self._archive = archive
        self._lock = threading.Lock()
        self._known: dict[int, _SealedFacts] = {}

    def rows(self) -> list[SegmentRow]:
        """Every segment, oldest first. Raises: StorageError."""
        for _ in range(LOOKS_MAX - 1):
            try:
                return self._look()
            except StorageError as error:
                if error.code != "file_missing":
                    raise  # else it was removed, archived or packed after it was listed
        return self._look()

    def _look(self) -> list[SegmentRow]:
        with self._lock, closing(open_places(self._journal, self._archive)) as places:
            found = places.by_serial()
            newest = max(found, default=0)
            self._known = {
                serial: self._learned(places, copies[0], is_open=serial == newest)
                for serial, copies in found.items()
            }
            known = list(self._known.values())
        followers = [*known[1:], None]
        rows = zip(found.items(), known, followers, strict=True)
        return [_row(serial, copies, one, after) for (serial, copies), one, after in rows]

    def segments(self) -> tuple[SegmentView, ...]:
        """The same for the policy, with what newer ones tell of those that are damaged."""
        return bounded_ages([row.segment() for row in self.rows()])

    def learn(self, serial: int, summary: Summary | None) -> None:
        """The summary of a sealed segment; None: there can be none."""
        with self._lock:
            known = self._known.get(serial)
            if known is not None:
                self._known[serial] = known._replace(summary=summary, summarized=True)

    def _learned(
        self, places: SegmentPlaces, place: SegmentPlace, *, is_open: bool
    ) -> _SealedFacts:
        known = self._known.get(place.serial)
        if known is not None and (is_open or known.summarized):
            return known
        header = places.header(place)
        if isinstance(header, ParseStop):
            return _SealedFacts(places.size(place), None)
        if is_open:
            return _SealedFacts(place.file_bytes, header.first_position)
        summary = read_summary(places, header)
        size = places.size(place)
        return _SealedFacts(size, header.first_position, summary, summary is not None)


def _row(
    serial: int, copies: list[SegmentPlace], known: _SealedFacts, after: _SealedFacts | None
) -> SegmentRow:
    summary = known.summary
    return SegmentRow(
        serial,
        tuple(Copy(copy.archived, copy.packed, copy.file_bytes) for copy in copies),
        known.size,
        known.first,
        after.first if after else None,
        summary.first_time if summary else None,
        summary.last_time if summary else None,
        after is None,
        known.summarized,
    )
