"""What a start finds in the directories: segments, checked against each other by their headers.

A segment that is missing although it was not removed stops the start: most likely the archive
directory is not mounted. If that is accepted, the file `accepted-missing` remembers it; nothing
else is: when the files are back, they are served again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise
from typing import Final

from msgspec import DecodeError, Struct, field, msgpack

from zbroker.clock import Clock
from zbroker.errors import StorageError
from zbroker.log.disk import Disk
from zbroker.log.format import ParseStop, SegmentHeader
from zbroker.log.places import Copies, SegmentPlace, SegmentPlaces, foreign
from zbroker.log.segments import (
    SPARE,
    make_filled,
    publish,
    replace_file,
    segment_name,
    unknown_version,
)

ACCEPTED: Final = "accepted-missing"
MISSING_HINT: Final = (
    "mount the archive directory or put the files back; "
    "`zbroker start --accept-missing` goes on without them"
)
_Ranges = list[tuple[int, int]]  # [first, end) of serials
_RANGES: Final = msgpack.Decoder(_Ranges)
_RANGES_MAX_BYTES: Final = 1 << 20


class RecoveryFinding(Struct, frozen=True):
    """What recovery found: a code, what it means for the data, what comes next."""

    code: str
    means: str
    next: str
    first: int = 0  # positions [first, end) that cannot be served; 0, 0 if there are none
    end: int = 0


class Inventory(Struct):
    """The directories and what new segments are made with. Segments below `oldest` do not count."""

    places: SegmentPlaces
    instance: int
    segment_bytes: int
    clock: Clock
    salt: Callable[[], int]
    headers: dict[int, SegmentHeader | None] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)  # of the segments, also of packed ones
    leftovers: list[SegmentPlace] = field(default_factory=list)  # of an interrupted removal
    findings: list[RecoveryFinding] = field(default_factory=list)
    _copies: dict[int, Copies] = field(default_factory=dict)

    @property
    def disk(self) -> Disk:
        """The journal directory."""
        return self.places.journal

    def look(self, oldest: int, *, accept_missing: bool) -> None:
        """Reads all segment headers. Raises: StorageError for what is not this log."""
        for serial, copies in self.places.by_serial().items():
            reported = len(self.findings)
            header, place = self._choose(serial, copies)
            if serial < oldest:
                self.leftovers += copies
                del self.findings[reported:]  # it goes anyway
                continue
            self.headers[serial], self._copies[serial] = header, copies
            self.sizes[serial] = self.places.size(place)
        self._check_missing(max(oldest, 1), accept_missing)
        known = [header for header in self.headers.values() if header]
        for last_header, header in pairwise(known):
            if _rank(header) < _rank(last_header):
                reason = f"{segment_name(header.serial)} is older than the segment before it"
                raise StorageError("serial_gap", reason, "put the right one back")

    def is_open(self, serial: int) -> bool:
        """False if this cannot be the segment with the write head: it was archived or packed."""
        return all(not place.archived and not place.packed for place in self._copies[serial])

    def report(self, code: str, means: str, follows: str, first: int = 0, end: int = 0) -> None:
        """Adds a finding."""
        self.findings.append(RecoveryFinding(code, means, follows, first, end))

    # -- headers --

    def _choose(self, serial: int, copies: Copies) -> tuple[SegmentHeader | None, SegmentPlace]:
        """The best copy with a header; each copy must be of this instance."""
        headers = [(self._header(serial, place), place) for place in copies]
        good = [(header, place) for header, place in headers if header]
        name = segment_name(serial)
        if good and len(good) < len(copies):
            means = f"{name}: one copy is unreadable; another is good"
            self.report("journal.copy_unreadable", means, "nothing is lost")
        elif not good:
            means = "both copies of its header are bad: nothing in it can be verified or served"
            self.report("journal.segment_unreadable", f"{name}: {means}", "repair it")
        return good[0] if good else (None, copies[0])

    def _header(self, serial: int, place: SegmentPlace) -> SegmentHeader | None:
        name, copies = self.places.name(place), self.places.headers(place)
        good = [copy for copy in copies if isinstance(copy, SegmentHeader)]
        if not good:
            if all(isinstance(copy, ParseStop) and copy.why == "version" for copy in copies):
                raise unknown_version(name, "start the release that wrote it")
            return None
        if good[0].instance != self.instance:
            raise foreign(name, good[0].instance, self.instance)
        if good[0].serial != serial:
            reason = f"{name} says that it is segment {good[0].serial}"
            raise StorageError("serial_gap", reason, "put the right one back")
        if len(good) == 1:
            means = "one copy of its header is bad; the other one is good, so nothing is lost"
            self.report("journal.header_copy_bad", f"{name}: {means}", "check the disk")
        return good[0]

    # -- what is not there --

    def _check_missing(self, oldest: int, accept: bool) -> None:
        """Serials from `oldest` up to the newest one must all be there, or it was accepted."""
        if not self.headers:
            return
        serials = [oldest - 1, *self.headers]
        missing = [(low + 1, high) for low, high in pairwise(serials) if high != low + 1]
        if not missing:
            return
        text = ", ".join(_names(first, end) for first, end in missing)
        if not accept and not _serials(missing) <= _serials(self._accepted()):
            code = "segments_missing" if missing[0][0] == oldest else "serial_gap"
            raise StorageError(
                code, f"{text}: missing, and not removed by the broker", MISSING_HINT
            )
        if accept:
            self._remember(missing)
        means = f"{text}: missing; accepted, so nothing of it is served"
        self.report("journal.segments_missing", means, "served again when the files are back")

    def _accepted(self) -> _Ranges:
        if not self.disk.exists(ACCEPTED):
            return []
        try:
            return _RANGES.decode(self.disk.read(ACCEPTED, 0, _RANGES_MAX_BYTES))
        except (DecodeError, UnicodeDecodeError):
            return []  # a human is asked again

    def accept(self, oldest: int, last: int) -> None:
        """The log begins again after `last`, because a person gave up all that was there."""
        if last:
            self._remember([(max(oldest, 1), last + 1)])

    def _remember(self, missing: _Ranges) -> None:
        replace_file(self.disk, ACCEPTED, msgpack.encode(missing))

    # -- changes --

    def set_aside(self, serial: int) -> None:
        """Gives an unreadable segment names that no segment has."""
        for place in self._copies.pop(serial):
            disk, name = self.places.disk(place), self.places.name(place)
            names = (f"{name}.damaged-{number}" for number in count(1))
            disk.rename(name, next(name for name in names if not disk.exists(name)))
            disk.sync_dir()
        del self.headers[serial], self.sizes[serial]

    def open_segment(
        self, generation: int, serial: int, position: int, previous_end: int
    ) -> SegmentHeader:
        """A new segment, which says where the one before it ends."""
        header = SegmentHeader(
            self.instance, generation, serial, position, position - 1, previous_end, self.salt(),
            self.clock.wall_ns(), self.segment_bytes,
        )  # fmt: skip
        make_filled(self.disk, SPARE, header.size)
        publish(self.disk, SPARE, header)
        return header


def _rank(header: SegmentHeader) -> tuple[int, int]:
    return header.generation, header.first_position


def _names(first: int, end: int) -> str:
    last = segment_name(end - 1)
    return last if end == first + 1 else f"{segment_name(first)} to {last}"


def _serials(ranges: _Ranges) -> set[int]:
    return {serial for first, end in ranges for serial in range(first, end)}
