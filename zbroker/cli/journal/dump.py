"""`zbroker-admin journal dump`: the content of the log, as JSON lines.

Reads the files, also while the instance runs. A message is {position, topic, bookmark, time, data},
with key, headers and expires where it has them; a control record has a kind in place of topic and
bookmark; a damaged range is {gap: {...}}.

    zbroker-admin journal dump --from 1000 --limit 10
    zbroker-admin journal dump --topic orders --since -1h
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from zbroker.cli import show
from zbroker.cli.group import EX_ERROR
from zbroker.cli.journal import opened, points, printer
from zbroker.cli.journal.grep import LogSearch, MessageCriteria
from zbroker.cli.journal.printer import PayloadRenderer
from zbroker.cli.journal.rows import header_row
from zbroker.cli.options import flag_option
from zbroker.control.target import Target
from zbroker.log.reader import Gap


@click.command()
@click.option("--from", "first", type=click.IntRange(min=0), help="The first position to show.")
@click.option("--to", "end", type=click.IntRange(min=0), help="The position to end before.")
@points.since_option
@points.until_option
@click.option("--topic", help="Only messages of this topic, or RE2 pattern of whole names.")
@click.option("--limit", type=click.IntRange(min=0), help="How many lines to print at most.")
@flag_option("--headers", "A line per record batch, without its messages.")
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
        search = LogSearch(log, MessageCriteria(topic=topic), span)
        if headers:
            rows = _rows(search.headers(), lambda found: header_row(found[0], found[1].serial))
        else:
            rows = _rows(search.items(), PayloadRenderer(target).row)
        printer.write(printer.json_lines(rows), limit)
    if search.gaps:
        show.warn(f"journal dump: {len(search.gaps)} ranges could not be read, see above")
        sys.exit(EX_ERROR)


def _rows(items: Iterable[Any], row: Callable[[Any], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row for each item and damaged range."""
    return ({"gap": item._asdict()} if isinstance(item, Gap) else row(item) for item in items)
