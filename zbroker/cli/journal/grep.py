"""`zbroker-admin journal grep`: find messages by topic, publisher, time and content.

Reads the files, newest data too while the instance runs. Batch headers are read first: a body is
read only if its batch may hold what is wanted, so a rare topic or publisher is found fast.
Answer: a line per message, with --json as `journal dump` prints it; with --count only their number.

    zbroker-admin journal grep '"id": 4711' --topic orders --since -1h
    zbroker-admin journal grep --publisher pricer --since 20260801T000000Z --count
"""

from __future__ import annotations

from itertools import islice

import click

from zbroker.cli import progress, show
from zbroker.cli.journal import opened, points, printing
from zbroker.cli.journal.matching import LogSearch, MessageCriteria
from zbroker.control.target import Target


@click.command()
@click.argument("text", required=False, default="")
@click.option("--regex", is_flag=True, help="TEXT is an RE2 pattern, found anywhere in a payload.")
@click.option("-i", "--ignore-case", is_flag=True, help="Upper and lower case are the same.")
@click.option("--topic", help="A topic, or an RE2 pattern of whole topic names.")
@click.option("--publisher", help="A client name, or a publisher id as in bookmarks.")
@points.since_option
@points.until_option
@click.option("--limit", type=click.IntRange(min=1), help="Stop after so many messages.")
@click.option("--count", is_flag=True, help="Print only how many there are.")
@show.json_option
@click.pass_obj
def grep(  # noqa: PLR0913 - click passes each option by itself
    target: Target,
    text: str,
    regex: bool,
    ignore_case: bool,
    topic: str | None,
    publisher: str | None,
    since: str | None,
    until: str | None,
    limit: int | None,
    count: bool,
    json_here: bool,
) -> None:
    """Find messages whose payload holds TEXT, or all of a topic, publisher or time.

    Exit code 0, also if nothing was found; 1 if damaged ranges could not be searched.

    Example: zbroker-admin journal grep '"id": 4711' --topic orders --since -1h
    """
    wanted = MessageCriteria(
        text, regex=regex, ignore_case=ignore_case, topic=topic, publisher=publisher
    )
    in_json = show.wants_json(target, json_here)
    with opened.log(target) as log, progress.bar("messages") as step:
        search = LogSearch(log, wanted, points.span(log, since, until), step)
        if count:
            printing.number(search.count(), in_json=in_json)
        else:
            printing.lines(target, islice(search.messages(), limit), in_json=in_json)
    printing.end_with_gaps(search.gaps)
