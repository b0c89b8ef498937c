"""`zbroker-admin journal grep`: find messages by topic, publisher, time and content.

Reads the files, newest data too while the instance runs. A batch header has publisher and topics,
so a batch that cannot hold what is sought costs its header only, and a rare topic or publisher is
found fast. Neighbours that may hold it are read together, up to a megabyte at a time.
Answer: a line per message, with --json as `journal dump` prints it; with --count only their number.

    zbroker-admin journal grep '"id": 4711' --topic orders --since -1h
    zbroker-admin journal grep --publisher pricer --since 20260801T000000Z --count
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import click
import re2

from zbroker.cli import progress, show
from zbroker.cli.group import AdminCommand
from zbroker.cli.journal import opened, points, printer
from zbroker.cli.journal.rows import READ_BYTES, MessageRow, unpack
from zbroker.cli.options import count_option, flag_option
from zbroker.cli.progress import Step, silent
from zbroker.control.target import Target
from zbroker.errors import ClientError
from zbroker.ids import publisher_id
from zbroker.log.format import FLAG_ZSTD, KIND_PUBLISH, Batch
from zbroker.log.reader import Cursor, Gap, Log
from zbroker.log.summaries import read_summary

_STEP_POSITIONS: Final = 10_000  # between two looks at the progress bar


@click.command(cls=AdminCommand)
@click.argument("text", required=False, default="")
@flag_option("--regex", "TEXT is an RE2 pattern, found anywhere in a payload.")
@click.option("-i", "--ignore-case", is_flag=True, help="Upper and lower case are the same.")
@click.option("--topic", help="A topic, or an RE2 pattern of whole topic names.")
@click.option("--publisher", help="A client name, or a publisher id as in bookmarks.")
@points.since_option
@points.until_option
@count_option("--limit", "Stop after so many messages.")
@flag_option("--count", "Print only how many there are.")
def grep(
    target: Target,
    since: str | None,
    until: str | None,
    limit: int | None,
    count: bool,
    **criteria: Any,  # noqa: ANN401 - named as in MessageCriteria
) -> None:
    """Find messages whose payload holds TEXT, or all of a topic, publisher or time.

    Exit code 0, also if nothing was found; 1 if damaged ranges could not be searched.

    Example: zbroker-admin journal grep '"id": 4711' --topic orders --since -1h
    """
    with opened.log(target) as log, progress.bar("messages") as step:
        search = LogSearch(log, MessageCriteria(**criteria), points.span(log, since, until), step)
        if count:
            number = search.count()
            show.answer(target.as_json, {"count": number}, str(number))
        else:
            printer.write_messages(target, islice(search.messages(), limit))
    printer.end_with_gaps(search.gaps)


class MessageCriteria:
    """What a message has to be like.

    Raises: click.UsageError, for patterns that RE2 does not take.
    """

    def __init__(
        self,
        text: str = "",
        *,
        regex: bool = False,
        ignore_case: bool = False,
        topic: str | None = None,
        publisher: str | None = None,
    ) -> None:
        self.content = _content(text, regex=regex, ignore_case=ignore_case) if text else None
        self._anywhere = None if regex else self.content  # a pattern may look at ends of payloads
        self.by_header = topic is not None or publisher is not None
        self.everything = not self.by_header and self.content is None
        self._topics = printer.whole(topic) if topic is not None else None
        self._publishers = _ids(publisher) if publisher is not None else None

    def may_hold(self, batch: Batch) -> bool:
        """True if the header does not rule it out."""
        if batch.kind != KIND_PUBLISH:
            return False
        if self._publishers is not None and batch.publisher not in self._publishers:
            return False
        return self._topics is None or any(map(self.has_topic, batch.topics))

    def has_topic(self, topic: str) -> bool:
        """True if messages of this topic are wanted."""
        return self._topics is None or self._topics(topic)

    def may_contain(self, batch: Batch) -> bool:
        """False if the body rules it out as a whole: a text that is not in it is in no payload."""
        if self._anywhere is None or batch.flags & FLAG_ZSTD:
            return True
        return self._anywhere(bytes(batch.body))


def _content(text: str, *, regex: bool, ignore_case: bool) -> Callable[[bytes], bool]:
    if not regex and not ignore_case:
        wanted = text.encode()
        return lambda data: wanted in data
    pattern = _compiled(text if regex else re2.escape(text), ignore_case=ignore_case)
    return lambda data: pattern.search(data) is not None


def _compiled(pattern: str, *, ignore_case: bool = False) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        why = error.args[0] if error.args else ""
        reason = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
        raise click.UsageError(f"the pattern {pattern!r} cannot be used: {reason}") from None


def _ids(publisher: str) -> set[int]:
    """A number may be an id or a client's name."""
    found = {publisher_id(publisher)}
    return found | {int(publisher)} if publisher.isascii() and publisher.isdigit() else found


class _BatchRun(NamedTuple):
    """Neighbouring batches that may hold something."""

    start: Cursor
    end: int
    size: int


class LogSearch:
    """Looks through positions [first, end) of a log.

    gaps: damaged ranges that could not be looked at.
    """

    def __init__(
        self, log: Log, wanted: MessageCriteria, span: tuple[int, int], step: Step = silent
    ) -> None:
        self.gaps: list[Gap] = []
        self._log = log
        self._wanted = wanted
        self._first, self._end = span
        self._step = step
        self._stepped = 0

    def messages(self) -> Iterator[MessageRow]:
        """Those that are wanted, in order. Segments and batches without any are not read."""
        batches = self._batches() if self._wanted.by_header else self._read_all()
        return (item for item in self._items(batches) if isinstance(item, MessageRow))

    def items(self) -> Iterator[MessageRow | Batch | Gap]:
        """The same, with control records unless some messages are wanted, and with damaged ranges.

        All of the range is read.
        """
        return self._items(self._read_all())

    def headers(self) -> Iterator[tuple[Batch, Cursor] | Gap]:
        """Headers of what `items` looks at, and damaged ranges."""
        if self._first >= self._end:
            return
        for item in self._log.headers(self._log.seek(self._first), self._end):
            if isinstance(item, Gap):
                yield from self._missed(item)
            elif self._wanted.everything or self._wanted.may_hold(item[0]):
                yield item

    def count(self) -> int:
        """How many there are; bodies are read only to look at their content."""
        if self._wanted.content is not None:
            return sum(1 for _ in self.messages())
        return sum(self._counted(batch) for batch, _ in self._likely())

    def _items(self, batches: Iterable[Batch | Gap]) -> Iterator[MessageRow | Batch | Gap]:
        for item in batches:
            if isinstance(item, Gap):
                yield item
            elif item.kind != KIND_PUBLISH:
                if self._wanted.everything and item.position >= self._first:
                    yield item
            elif self._wanted.may_hold(item) and self._wanted.may_contain(item):
                yield from self._unpacked(item)

    def _unpacked(self, batch: Batch) -> Iterator[MessageRow | Gap]:
        try:
            messages = unpack(batch, self._wanted.content)
        except ClientError as error:
            yield from self._missed(Gap(batch.position, batch.end_position, error.reason))
            return
        for message in messages:
            within = self._first <= message.position < self._end
            if within and self._wanted.has_topic(message.topic):
                yield message

    def _read_all(self) -> Iterator[Batch | Gap]:
        """Every batch with its body."""
        if self._first < self._end:
            yield from self._read(self._log.seek(self._first), self._end)

    def _batches(self) -> Iterator[Batch | Gap]:
        """Batches with their bodies, if the header does not rule them out."""
        run: _BatchRun | None = None
        for batch, cursor in self._likely():
            if run is not None and (cursor.position != run.end or run.size >= READ_BYTES
                                    or cursor.serial != run.start.serial):  # fmt: skip
                yield from self._read(run.start, run.end)
                run = None
            start, size = (run.start, run.size) if run is not None else (cursor, 0)
            run = _BatchRun(start, batch.end_position, size + batch.body_length)
        if run is not None:
            yield from self._read(run.start, run.end)

    def _likely(self) -> Iterator[tuple[Batch, Cursor]]:
        """Headers of the batches that may hold something."""
        for first, end in self._parts():
            for item in self._log.headers(self._log.seek(first), end):
                if isinstance(item, Gap):
                    self._missed(item)
                    continue
                self._passed(item[1].position)
                if self._wanted.may_hold(item[0]):
                    yield item
        self._step("looked at", self._end - self._first, self._end - self._first)

    def _parts(self) -> Iterator[tuple[int, int]]:
        """Positions [first, end) that may hold something: segments that cannot are left out."""
        first = self._first
        starts = self._log.starts
        for at, start in enumerate(starts):
            after = starts[at + 1].position if at + 1 < len(starts) else self._end
            if after > first and self._is_ruled_out(start.serial):
                if start.position > first:
                    yield first, min(start.position, self._end)
                first = after
        if first < self._end:
            yield first, self._end

    def _is_ruled_out(self, serial: int) -> bool:
        """True if a summary is kept of this segment that says so."""
        segment = self._log.segment(serial)
        if segment is None or segment.header is None or segment.end_position is None:
            return False
        kept = read_summary(self._log.places, segment.header)
        if kept is None or kept.topics_capped or kept.missing:
            return False
        return not any(map(self._wanted.has_topic, kept.topics))

    def _read(self, cursor: Cursor, end: int) -> Iterator[Batch | Gap]:
        while cursor.position < end:
            items, cursor = self._log.read(cursor, end, READ_BYTES)
            if not items:
                return
            for item in items:
                yield from self._missed(item) if isinstance(item, Gap) else (item,)
            self._passed(cursor.position)

    def _missed(self, gap: Gap) -> list[Gap]:
        """Notes a damaged range, if it reaches into what is looked at; it, or nothing."""
        found = [gap] if gap.end > self._first else []
        self.gaps += found
        return found

    def _passed(self, position: int) -> None:
        done = min(position, self._end) - self._first
        if done - self._stepped >= _STEP_POSITIONS or done < self._stepped:
            self._stepped = done
            self._step("looked at", max(done, 0), self._end - self._first)

    def _counted(self, batch: Batch) -> int:
        """How many of its messages are wanted, as far as the header tells."""
        skip = batch.skip + max(self._first - batch.position, 0)
        stop = batch.count - batch.cut - max(batch.end_position - self._end, 0)
        columns = batch.columns
        if columns is None or columns.index is None:
            return stop - skip
        index = array("H", columns.index)
        wanted = {at for at, topic in enumerate(batch.topics) if self._wanted.has_topic(topic)}
        return sum(1 for i in range(skip, stop) if index[i] in wanted)
