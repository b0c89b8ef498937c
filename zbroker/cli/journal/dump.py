"""`zbroker-admin journal dump`: the content of the log, as JSON lines.

Reads the files, also while the instance runs. A message is {position, topic, bookmark, time, data},
with key, headers and expires where it has them; a control record has a kind in place of topic and
bookmark; a damaged range is {gap: {...}}.

    zbroker-admin journal dump --from 1000 --limit 10
    zbroker-admin journal dump --topic orders --since -1h
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from zbroker.cli.group import EX_ERROR
from zbroker.cli.journal import opened, points, printer
from zbroker.cli.journal.grep import MessageCriteria
from zbroker.cli.journal.printer import PayloadRenderer
from zbroker.cli.journal.rows import READ_BYTES, control_row, header_row, unpack
from zbroker.control.target import Target
from zbroker.errors import ClientError
from zbroker.log import format as f
from zbroker.log.reader import Gap, Log


@click.command()
@click.option("--from", "first", type=click.IntRange(min=0), help="The first position to show.")
@click.option("--to", "end", type=click.IntRange(min=0), help="The position to end before.")
@points.since_option
@points.until_option
@click.option("--topic", help="Only messages of this topic, or RE2 pattern of whole names.")
@click.option("--limit", type=click.IntRange(min=0), help="How many lines to print at most.")
@click.option("--headers", is_flag=True, help="A line per record batch, without its messages.")
@click.option("--json", is_flag=True, expose_value=False, help="It is JSON lines always.")
@click.pass_obj
def dump(  # noqa: PLR0913 - click passes each option by itself
    target: Target,
    first: int | None,
    end: int | None,
    since: str | None,
    until: str | None,
    topic: str | None,
    limit: int | None,
    headers: bool,
) -> None:
    """Print messages and control records as JSON lines.

    A message is {position, topic, bookmark, time, data}, with key, headers and expires where it has
    them; data or a key that is not UTF-8 is given as data_base64 or key_base64, a binary
    header as {base64: ...}. A control record has a kind in place of topic and bookmark. A damaged
    range is {gap: {first, end, why}}, and the exit code is 1 then.

    Example: zbroker-admin journal dump --topic orders --since -1h --limit 10
    """
    with opened.log(target) as log:
        begin, stop = points.span(log, since, until)
        span = max(begin, first or 0), stop if end is None else min(stop, end)
        dumped = Dump(log, span, PayloadRenderer(target), topic)
        rows = dumped.headers() if headers else dumped.messages()
        printer.write(printer.json_lines(rows), limit)
    if dumped.bad:
        click.echo(f"journal dump: {dumped.bad} ranges could not be read, see above", err=True)
        sys.exit(EX_ERROR)


class Dump:
    """Positions [first, end) of a log as rows.

    topic: only messages of such topics, no control records. bad: damaged ranges met so far.
    """

    def __init__(
        self, log: Log, span: tuple[int, int], payloads: PayloadRenderer, topic: str | None = None
    ) -> None:
        self.bad = 0
        self._log = log
        self._first, self._end = span
        self._payloads = payloads
        self._wanted = MessageCriteria(topic=topic) if topic is not None else None

    def messages(self) -> Iterator[dict[str, Any]]:
        """A row per message or control record."""
        if self._first >= self._end:
            return
        cursor = self._log.seek(self._first)
        while cursor.position < self._end:
            items, cursor = self._log.read(cursor, self._end, READ_BYTES)
            if not items:
                return
            for item in items:
                yield from self._rows(item)

    def headers(self) -> Iterator[dict[str, Any]]:
        """A row per record batch."""
        if self._first >= self._end:
            return
        for item in self._log.headers(self._log.seek(self._first), self._end):
            if isinstance(item, Gap):
                yield from self._gap(item)
            elif self._wanted is None or self._wanted.may_hold(item[0]):
                yield header_row(item[0], item[1].serial)

    def _rows(self, item: f.Batch | Gap) -> Iterator[dict[str, Any]]:
        if isinstance(item, Gap):
            yield from self._gap(item)
        elif self._wanted is not None and not self._wanted.may_hold(item):
            return
        elif item.kind != f.KIND_PUBLISH:
            if item.position >= self._first:
                yield control_row(item)
        else:
            yield from self._messages(item)

    def _messages(self, batch: f.Batch) -> Iterator[dict[str, Any]]:
        try:
            messages = unpack(batch)
        except ClientError as error:
            yield from self._gap(Gap(batch.position, batch.end_position, error.reason))
            return
        for message in messages:
            wanted = self._wanted is None or self._wanted.has_topic(message.topic)
            if wanted and self._first <= message.position < self._end:
                yield self._payloads.row(message)

    def _gap(self, gap: Gap) -> Iterator[dict[str, Any]]:
        if gap.end > self._first:
            self.bad += 1
            yield {"gap": gap._asdict()}
