"""Cuts a stretch of the log into ranges of about equal bytes, small enough to pickle.

    source: "tcp://host:port"        a running instance; its `ranges` command does the cutting
            "/path/to/zbroker-data"  a data or journal directory, read with the broker's own reader;
                                     archived segments are read, too
    journal: a directory that holds what a running instance may have removed: it is read as far as
             it goes, the rest is read from the instance

A range is half-open, [first, end), in positions of one (instance, generation) of a log; it may
begin and end within a batch. All ranges of a plan together cover the stretch without overlap.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from zbroker.client.connect_types import Credentials
from zbroker.client.subscriber.points import Point, since_text, until_text
from zbroker.errors import ClientError, ZBrokerError
from zbroker.ids import EPOCH, NOW, Origin, format_vector
from zbroker.log.reader import Log
from zbroker.recording import TYPE_DEFAULT
from zbroker.spark.batch_scan import content_test, matcher
from zbroker.spark.directories import LogDirectory, begin, locate, marks_of
from zbroker.spark.splitter import Cut, refine, split

if TYPE_CHECKING:
    from zbroker.client import Client


PARTITIONS_MIN: Final = 4


@dataclass(frozen=True, slots=True)
class LogRange:
    """One part of a plan: `replay` yields its messages. `job` tells readers of two plans apart.

    archive: the archive directory of a source that is a directory; "" if there is none.
    credentials: for a source that is a URL; each executor reads the key from its own disk.
    filter: of content, "" if there is none; filter_type: what payloads in a directory are.
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
    filter: str = ""
    filter_type: str = TYPE_DEFAULT

    @property
    def is_live(self) -> bool:
        """True if it is read from a running instance."""
        return "://" in self.source

    def open(self) -> Log:
        """The log of a range of a directory; to be closed."""
        return Log(Path(self.source), Path(self.archive) if self.archive else None)


def plan_ranges(  # noqa: PLR0913 - what users say of a stretch, all with defaults
    source: str | Path,
    since: Point = "epoch",
    until: Point = "now",
    min_partitions: int = PARTITIONS_MIN,
    topic: str | None = None,
    regex: bool = False,
    *,
    filter: str = "",  # noqa: A002 - the word of the field
    filter_type: str = TYPE_DEFAULT,
    journal: str | Path | None = None,
    archive: str | Path | None = None,
    credentials: Credentials | None = None,
) -> list[LogRange]:
    """Ranges that together are everything from `since` to `until`, of about equal bytes.

    At least `min_partitions` of them where the stretch has that many messages.

    source: the URL of a running instance, or a data or journal directory. A directory is read as
    it is, up to the last whole batch: while an instance is running on it, that may be more than
    what is durable, so address a running instance by its URL.
    since, until: epoch, now, a bookmark, a time, a datetime or a vector, as for `subscribe`:
    `since` a bookmark begins after it, `until` a bookmark includes it, `until` a time does not.
    filter: of content, as for `subscribe`. A directory does not say what type payloads have, so
    there `filter_type` does; a running instance knows.
    journal: beside a URL, a directory of the same log, read as far as it goes; the instance gives
    the rest.
    archive: where archived segments of a directory are, if not in the folder `archive` of its data
    directory; all executors must see it under this path.
    credentials: for a running instance that has security on; the key file must be on each executor.
    Raises: ZBrokerError bookmark_expired, bookmark_not_found, bad_bookmark, gap, segments_missing.
    """
    if min_partitions < 1:
        raise ClientError("bad_field", f"min_partitions must be at least 1, not {min_partitions}")
    matcher(topic, regex)  # a bad pattern or filter is refused before anything is started
    content_test(filter, filter_type)
    common = LogRange(
        "", 0, 0, 0, topic, regex, 0, 0, secrets.token_hex(4), "", credentials, filter, filter_type
    )
    what = _What(since_text(since), until_text(until), min_partitions, common)
    if "://" not in str(source):
        if journal is not None:
            raise ClientError("bad_field", "`journal` belongs to the URL of an instance")
        return _plan_directory(LogDirectory.of(source, archive), what)
    if journal is None:
        with _connect(str(source), what) as client:
            return _plan_live(client, str(source), what)
    return _plan_both(str(source), LogDirectory.of(journal, archive), what)


class _What(NamedTuple):
    """The stretch of a plan: points as texts of the wire, and what all of its ranges share."""

    since: str
    until: str
    parts: int
    common: LogRange

    def ranges(
        self, source: str, cuts: list[Cut], origin: Origin, archive: str = ""
    ) -> list[LogRange]:
        """The plan, once it is known where to cut."""
        live = self.common.credentials if "://" in source else None
        mine = replace(
            self.common, source=source, instance=origin.instance, generation=origin.generation,
            archive=archive, credentials=live,
        )  # fmt: skip
        return [replace(mine, first=first, end=end, bytes=size) for first, end, size in cuts]


# -- a running instance -----------------------------------------------------------------------


def _connect(url: str, what: _What) -> Client:
    from zbroker.client import connect  # a plan over a directory needs no ZeroMQ

    return connect(url, name=f"spark-plan-{what.common.job}", credentials=what.common.credentials)


def _plan_live(client: Client, url: str, what: _What) -> list[LogRange]:
    answer = client.ranges(
        what.common.topic,
        since=what.since,
        until=what.until,
        regex=what.common.regex,
        parts=what.parts,
    )
    cuts = refine(list(answer.ranges), what.parts)
    return what.ranges(url, cuts, Origin(answer.instance, answer.generation))


# -- a directory ------------------------------------------------------------------------------


def _plan_directory(place: LogDirectory, what: _What) -> list[LogRange]:
    with closing(place.open()) as log:
        tail = log.end()
        first = begin(log, what.since, tail)
        end = min(locate(log, what.until, tail, end=True), tail)
        return _cut(log, place, what, (first, end))


def _cut(log: Log, place: LogDirectory, what: _What, stretch: tuple[int, int]) -> list[LogRange]:
    marks = marks_of(log, *stretch, matcher(what.common.topic, what.common.regex), what.parts)
    cuts = refine(split(marks, what.parts), what.parts)
    origin = Origin(log.instance, log.generation)
    return what.ranges(str(place.journal), cuts, origin, str(place.archive or ""))


# -- both -------------------------------------------------------------------------------------


def _plan_both(url: str, place: LogDirectory, what: _What) -> list[LogRange]:
    """The directory first, then the instance from the end of the directory on."""
    with _connect(url, what) as client, closing(place.open()) as log:
        here = client.ranges(what.common.topic, regex=what.common.regex, since="now", until="now")
        _check_same(log, place, Origin(here.instance, here.generation), url)
        tail = min(log.end(), here.persisted)
        if tail < here.log_start:
            text = f"{place.journal} ends at {tail}, {url} begins at {here.log_start}"
            raise ClientError("gap", text, "give a directory that holds the segments between them")
        first = _inside(log, what.since, tail)
        end = None if what.until == "now" else _inside(log, what.until, tail, end=True)
        if first is None:
            return _plan_live(client, url, what)
        if end is not None:
            return _cut(log, place, what, (first, min(end, tail)))
        files = _cut(log, place, what, (first, tail))
        after = format_vector({Origin(here.instance, here.generation): tail - 1})
        rest = _plan_live(client, url, what._replace(since=after))
    return _balanced(files, rest, what)


def _check_same(log: Log, place: LogDirectory, origin: Origin, url: str) -> None:
    there = Origin(log.instance, log.generation)
    if there != origin:
        text = (
            f"{place.journal} has the log of {there.instance:016x}.{there.generation}, "
            f"{url} that of {origin.instance:016x}.{origin.generation}"
        )
        hint = "name a directory of the same instance and generation"
        raise ClientError("bookmark_not_found", text, hint)


def _inside(log: Log, point: str, tail: int, end: bool = False) -> int | None:
    """The position of `point` if it is before `tail`; None if the instance knows it."""
    if point == NOW:
        return None
    try:
        found = locate(log, point, tail, end) if end or point != EPOCH else begin(log, point, tail)
    except ZBrokerError as error:
        if error.code == "bookmark_not_found":
            return None
        raise
    return found if found < tail or (end and found == tail) else None


def _balanced(files: list[LogRange], rest: list[LogRange], what: _What) -> list[LogRange]:
    """As many ranges of each as fits its share of the bytes."""
    total = sum(part.bytes for part in [*files, *rest])
    plan = []
    for some in (files, rest):
        share = sum(part.bytes for part in some) / max(total, 1)
        plan += _joined(some, max(1, round(share * what.parts)))
    return plan


def _joined(ranges: list[LogRange], parts: int) -> list[LogRange]:
    """Neighbours put together, until there are no more than `parts`."""
    if len(ranges) <= parts:
        return ranges
    bounds = [len(ranges) * part // parts for part in range(parts + 1)]
    groups = [ranges[low:high] for low, high in pairwise(bounds)]
    return [
        replace(some[0], end=some[-1].end, bytes=sum(part.bytes for part in some))
        for some in groups
    ]
