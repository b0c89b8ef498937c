"""Cuts a stretch of the log into ranges of about equal bytes, small enough to pickle.

    source: "tcp://host:port"        a running instance; its `ranges` command does the cutting
            "/path/to/zbroker-data"  a data or journal directory, read with the broker's own reader;
                                     archived segments are read, too

A range is half-open, [first, end), in positions of one (instance, generation) of a log; it may
begin and end within a batch. All ranges of a plan together cover the stretch without overlap.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from zbroker.client.subscribing.points import Point, since_text, until_text
from zbroker.clock import is_time, parse_time
from zbroker.credentials import Credentials
from zbroker.errors import ClientError, ZBrokerError
from zbroker.ids import EPOCH, NOW, Origin, is_vector, parse_bookmark, parse_vector
from zbroker.journal.reader import Gap, Log
from zbroker.spark.topics import matcher

PARTITIONS_MIN: Final = 4


@dataclass(frozen=True, slots=True)
class Range:
    """One part of a plan: `replay` yields its messages. `job` tells readers of two plans apart.

    archive: the archive directory of a source that is a directory; "" if there is none.
    credentials: for a source that is a URL; each executor reads the key from its own disk.
    """

    source: str
    first: int
    end: int
    bytes: int
    topic: str | None
    regex: bool
    instance: int
    generation: int
    job: str = field(default="", compare=False)
    archive: str = ""
    credentials: Credentials | None = field(default=None, compare=False)


def plan_ranges(  # noqa: PLR0913 - what users say of a stretch, all with defaults
    source: str | Path,
    since: Point = "epoch",
    until: Point = "now",
    min_partitions: int = PARTITIONS_MIN,
    topic: str | None = None,
    regex: bool = False,
    *,
    archive: str | Path | None = None,
    credentials: Credentials | None = None,
) -> list[Range]:
    """Ranges that together are everything from `since` to `until`, of about equal bytes.

    At least `min_partitions` of them where the stretch has that many messages.

    source: the URL of a running instance, or a data or journal directory. A directory is read as
    it is, up to the last whole batch: while an instance is running on it, that may be more than
    what is durable, so address a running instance by its URL.
    since, until: epoch, now, a bookmark, a time, a datetime or a vector, as for `subscribe`:
    `since` a bookmark begins behind it, `until` a bookmark includes it, `until` a time does not.
    archive: where archived segments of a directory are, if not in the folder `archive` of its data
    directory; all executors must see it under this path.
    credentials: for a running instance that has security on; the key file must be on each executor.
    Raises: ZBrokerError bookmark_expired, bookmark_not_found, bad_bookmark, gap, segments_missing.
    """
    if min_partitions < 1:
        raise ClientError("bad_field", f"min_partitions must be at least 1, not {min_partitions}")
    job = secrets.token_hex(4)
    matcher(topic, regex)  # a bad pattern is refused before anything is started
    what = _What(since_text(since), until_text(until), min_partitions, topic, regex)
    if "://" in str(source):
        return _plan_url(str(source), what, job, credentials)
    place = journal_directory(source)
    return _plan_directory(place, archive_directory(place, archive), what, job)


class _What(NamedTuple):
    """What is planned, as texts of the wire."""

    since: str
    until: str
    parts: int
    topic: str | None
    regex: bool


def _plan_url(url: str, what: _What, job: str, credentials: Credentials | None) -> list[Range]:
    from zbroker.client import connect  # a plan over a directory needs no ZeroMQ

    with connect(url, name=f"spark-plan-{job}", credentials=credentials) as client:
        answer = client.ranges(**what._asdict())
    here = (what.topic, what.regex, answer.instance, answer.generation, job)
    cuts = refine(list(answer.ranges), what.parts)
    return [
        Range(url, first, end, size, *here, credentials=credentials) for first, end, size in cuts
    ]


# -- directories ------------------------------------------------------------------------------


def journal_directory(source: str | Path) -> Path:
    """The directory with the segments: `source` itself, or `journal` in it.

    Raises: ZBrokerError no_journal.
    """
    for directory in (Path(source) / "journal", Path(source)):
        if any(directory.glob("*.journal")):
            return directory.absolute()
    raise ZBrokerError(
        "no_journal",
        f"{source} has no *.journal files, nor has its journal directory",
        "check the path",
    )


def archive_directory(journal: Path, archive: str | Path | None) -> Path | None:
    """The one that was given, else the folder `archive` beside the journal directory.

    Raises: ZBrokerError no_journal.
    """
    if archive is None:
        beside = journal.parent / "archive"
        return beside if beside.is_dir() else None
    if not Path(archive).is_dir():
        raise ZBrokerError("no_journal", f"there is no archive directory {archive}", "mount it")
    return Path(archive).absolute()


def _plan_directory(place: Path, archive: Path | None, what: _What, job: str) -> list[Range]:
    with closing(Log(place, archive)) as log:
        tail = log.end()
        first = locate(log, what.since, tail)
        if first == log.first_position and (what.since == EPOCH or is_time(what.since)):
            _check_missing(log)
        end = min(locate(log, what.until, tail, end=True), tail)
        marks = list(_marks(log, first, end))
        here = (what.topic, what.regex, log.instance, log.generation, job)
    cuts = refine(split(marks, what.parts), what.parts)
    there = str(archive or "")
    return [Range(str(place), start, stop, size, *here, there) for start, stop, size in cuts]


def _check_missing(log: Log) -> None:
    """A plan from the beginning must not silently begin behind segments that are elsewhere."""
    if missing := log.missing:
        raise ZBrokerError(
            "segments_missing",
            f"segments {missing[0]} to {missing[-1]} of {log.instance:016x} are not here",
            "give `archive`, the directory with the archived segments, or begin later",
        )


def locate(log: Log, point: str, tail: int, end: bool = False) -> int:
    """The position at which a range begins, or with `end` the one behind its last message.

    Raises: ZBrokerError bookmark_expired, bookmark_not_found, bad_bookmark.
    """
    if point == EPOCH:
        return log.first_position
    if point in (NOW, "now"):
        return tail
    if is_time(point):
        return log.locate_time(parse_time(point))
    if is_vector(point):
        return _checked(log, _vector_position(log, point) + 1, point, tail)
    found = [
        position
        for part in point.split(",")
        if (position := log.locate(parse_bookmark(part))) is not None
    ]
    if not found:
        raise ClientError("bookmark_not_found", f"{point} is not in the log of {log.instance:016x}")
    return (max(found) if end else min(found)) + 1


def _vector_position(log: Log, point: str) -> int:
    here = Origin(log.instance, log.generation)
    vector = parse_vector(point)
    if list(vector) != [here]:
        raise ClientError(
            "bookmark_not_found",
            f"{point} does not name the log of {here.instance:016x}.{here.generation}",
        )
    return vector[here]


def _checked(log: Log, position: int, point: str, tail: int) -> int:
    if position < log.first_position:
        raise ClientError(
            "bookmark_expired",
            f"{point} is older than {log.first_position}, the oldest position kept",
        )
    if position > tail:
        raise ClientError("bookmark_not_found", f"{point} is behind {tail}, the end of this log")
    return position


class Mark(NamedTuple):
    """`total` bytes of the log stand between the start of the stretch and `position`."""

    position: int
    total: int


def _marks(log: Log, first: int, end: int) -> Iterator[Mark]:
    """The start, and behind each batch.

    Raises: ZBrokerError gap.
    """
    mark = Mark(first, 0)
    yield mark
    if first >= end:
        return
    for found in log.headers(log.seek(first), end):
        if isinstance(found, Gap):
            raise gap_error(found)
        batch, _ = found
        size = batch.header_length + batch.body_length
        mark = Mark(min(batch.end_position, end), mark.total + size)
        yield mark


def gap_error(gap: Gap) -> ZBrokerError:
    """What a reader of this range is told instead of fewer messages."""
    return ClientError("gap", f"positions {gap.first} to {gap.end - 1} are damaged: {gap.why}")


Cut = tuple[int, int, int]


def split(marks: list[Mark], parts: int) -> list[Cut]:
    """Half-open ranges [from, to, bytes] of about equal bytes, cut between batches.

    The same as a running instance cuts; fewer than `parts` when there are fewer batches.
    """
    first, last = marks[0], marks[-1]
    targets = [last.total * part // parts for part in range(1, parts)]
    cuts = [first, *(marks[bisect_left(marks, total, key=_total)] for total in targets), last]
    return [
        (low.position, high.position, high.total - low.total)
        for low, high in pairwise(cuts)
        if low.position < high.position
    ]


def _total(mark: Mark) -> int:
    return mark.total


def refine(cuts: list[Cut], parts: int) -> list[Cut]:
    """Halves the ranges with the most messages until there are `parts`, or one message in each."""
    while cuts and len(cuts) < parts:
        at = max(range(len(cuts)), key=lambda index: cuts[index][1] - cuts[index][0])
        first, end, size = cuts[at]
        middle = (first + end) // 2
        if middle == first:
            break
        share = size * (middle - first) // (end - first)
        cuts = [*cuts[:at], (first, middle, share), (middle, end, size - share), *cuts[at + 1 :]]
    return cuts
