"""Plans over a directory: its content, and the positions at which it can be cut.

A short stretch is cut exactly after batches. For a long one the headers of sealed segments are not
read: the summary beside each of them has a mark for every 64 KiB, and says which topics are in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from zbroker.clock import is_time, parse_time
from zbroker.errors import ClientError, ZBrokerError
from zbroker.ids import EPOCH, NOW, Origin, is_vector, parse_bookmark, parse_vector
from zbroker.limits import MIB
from zbroker.log.files import Segment
from zbroker.log.reader import Cursor, Gap, Log
from zbroker.log.segments import PACKED_SUFFIX
from zbroker.log.summaries import Summary, read_summary
from zbroker.spark.splitter import SplitMark
from zbroker.topics import Matcher

WALKED_BYTES: Final = 64 * MIB  # whose headers are all read: some tenths of a second
MARKS_PER_PART: Final = 100  # so ranges are equal to a hundredth, and a plan stays small


class LogDirectory(NamedTuple):
    """A journal directory and its archive."""

    journal: Path
    archive: Path | None

    @classmethod
    def of(cls, source: str | Path, archive: str | Path | None) -> LogDirectory:
        """source: a data or journal directory. Raises: ZBrokerError no_journal."""
        journal = _journal_directory(source)
        return cls(journal, _archive_directory(journal, archive))

    def open(self) -> Log:
        """To be closed."""
        return Log(self.journal, self.archive)


def _journal_directory(source: str | Path) -> Path:
    """The directory with the segments: `source` itself, or `journal` in it."""
    for directory in (Path(source) / "journal", Path(source)):
        if any(directory.glob("*.journal")) or any(directory.glob("*.journal" + PACKED_SUFFIX)):
            return directory.absolute()
    text = f"{source} has no *.journal files, nor has its journal directory"
    raise ZBrokerError("no_journal", text, "check the path")


def _archive_directory(journal: Path, archive: str | Path | None) -> Path | None:
    """The one that was given, else the folder `archive` beside the journal directory."""
    if archive is None:
        beside = journal.parent / "archive"
        return beside if beside.is_dir() else None
    if not Path(archive).is_dir():
        raise ZBrokerError("no_journal", f"there is no archive directory {archive}", "mount it")
    return Path(archive).absolute()


def begin(log: Log, since: str, tail: int) -> int:
    """The position of `since`.

    Raises: ZBrokerError segments_missing, bookmark_expired, bookmark_not_found, bad_bookmark.
    """
    first = locate(log, since, tail)
    from_start = first == log.first_position and (since == EPOCH or is_time(since))
    if from_start and (missing := log.missing):  # segments that are elsewhere are not left out
        text = f"segments {missing[0]} to {missing[-1]} of {log.instance:016x} are not here"
        hint = "give `archive`, the directory with the archived segments, or begin later"
        raise ZBrokerError("segments_missing", text, hint)
    return first


def locate(log: Log, point: str, tail: int, end: bool = False) -> int:
    """The position at which a range begins, or with `end` the one after its last message.

    Raises: ZBrokerError bookmark_expired, bookmark_not_found, bad_bookmark.
    """
    if point == EPOCH:
        return log.first_position
    if point in (NOW, "now"):
        return tail
    if is_time(point):
        return log.locate_time(parse_time(point))
    if is_vector(point):
        return _locate_vector(log, point, tail)
    located = [log.locate(parse_bookmark(part)) for part in point.split(",")]
    found = [position for position in located if position is not None]
    if not found:
        raise ClientError("bookmark_not_found", f"{point} is not in the log of {log.instance:016x}")
    return (max(found) if end else min(found)) + 1


def _locate_vector(log: Log, point: str, tail: int) -> int:
    here = Origin(log.instance, log.generation)
    vector = parse_vector(point)
    if list(vector) != [here]:
        text = f"{point} does not name the log of {here.instance:016x}.{here.generation}"
        raise ClientError("bookmark_not_found", text)
    position = vector[here] + 1
    if position < log.first_position:
        text = f"{point} is older than {log.first_position}, the oldest position kept"
        raise ClientError("bookmark_expired", text)
    if position > tail:
        raise ClientError("bookmark_not_found", f"{point} is after {tail}, the end of this log")
    return position


def seek(log: Log, position: int) -> Cursor:
    """Where to read from `position` on; the summary of its segment saves a walk over its start."""
    at = bisect_right(log.starts, position, key=lambda cursor: cursor.position)
    segment = log.segment(log.starts[at - 1].serial) if at else None
    known = _summary(log, segment)
    if known is None:
        return log.seek(position)
    return log.seek(position, known.serial, known.at_or_before(position))


def _summary(log: Log, segment: Segment | None) -> Summary | None:
    """The one that is kept, of a sealed segment."""
    if segment is None or segment.header is None or segment.end_position is None:
        return None
    return read_summary(log.places, segment.header)


def marks_of(log: Log, first: int, end: int, wants: Matcher | None, parts: int) -> list[SplitMark]:
    """Where the stretch may be cut into `parts`: the start, after batches, the end.

    A segment without a wanted topic, as far as its summary says, counts as empty.
    Raises: ZBrokerError gap.
    """
    marks = [SplitMark(first, 0)]
    if first >= end:
        return marks
    size = _size(log, first, end)
    step = size // (parts * MARKS_PER_PART)
    for cursor, stop in _stretches(log, first, end):
        known = None if size <= WALKED_BYTES else _summary(log, log.segment(cursor.serial))
        if known is None or known.missing:  # a missing batch may be outside of the stretch
            marks += _walk(log, marks[-1], stop)
        else:
            marks += _leap(known, marks[-1], stop, wants, step)
    return marks


def _size(log: Log, first: int, end: int) -> int:
    """Bytes of the segments that hold the stretch."""
    segments = (log.segment(cursor.serial) for cursor, _ in _stretches(log, first, end))
    return sum(segment.size for segment in segments if segment is not None)


def _stretches(log: Log, first: int, end: int) -> Iterator[tuple[Cursor, int]]:
    """Each segment with a part of the stretch, and the position at which that part ends."""
    starts = log.starts
    for index, cursor in enumerate(starts):
        stop = starts[index + 1].position if index + 1 < len(starts) else end
        if stop > first and cursor.position < end:
            yield cursor, min(stop, end)


def _walk(log: Log, mark: SplitMark, stop: int) -> Iterator[SplitMark]:
    """A mark after each batch from `mark` to `stop`. Raises: ZBrokerError gap."""
    if mark.position >= stop:
        return
    for found in log.headers(log.seek(mark.position), stop):
        if isinstance(found, Gap):
            raise gap_error(found)
        batch, _ = found
        size = batch.header_length + batch.body_length
        mark = SplitMark(min(batch.end_position, stop), mark.total + size)
        yield mark


def _leap(
    known: Summary, mark: SplitMark, stop: int, wants: Matcher | None, step: int
) -> Iterator[SplitMark]:
    """The marks of a summary that are `step` bytes or more apart; and `stop`."""
    if wants is not None and not known.topics_capped and not any(map(wants, known.topics)):
        yield SplitMark(stop, mark.total)
        return
    offset = known.at_or_before(mark.position)
    for found, position in [*known.marks, (known.end_offset, known.end)]:
        if position >= stop:
            share = (stop - mark.position) / max(position - mark.position, 1)
            yield SplitMark(stop, mark.total + int((found - offset) * share))
            return
        if position > mark.position and found - offset >= step:
            mark, offset = SplitMark(position, mark.total + found - offset), found
            yield mark


def gap_error(gap: Gap) -> ZBrokerError:
    """The error for a range with damaged positions: a reader never gets fewer messages silently."""
    return ClientError("gap", f"positions {gap.first} to {gap.end - 1} are damaged: {gap.why}")
