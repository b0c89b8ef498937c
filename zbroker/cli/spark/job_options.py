"""The options of all jobs: which part of which log, and where Spark is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from zbroker.cli import progress
from zbroker.cli.options import (
    ConnectionOptions,
    collecting,
    connection_options,
    flag_option,
    text_option,
    with_default,
)
from zbroker.cli.progress import Step
from zbroker.cli.sub import point
from zbroker.clock import SystemClock, to_datetime
from zbroker.formats import TYPES
from zbroker.recording import TYPE_DEFAULT
from zbroker.spark.jobs import job_runner
from zbroker.spark.jobs.job_runner import Stretch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES_S: Final = 10.0  # between two lines if there is no progress bar


class LogChoice(NamedTuple):
    """The part of the log; whether it was said where it begins and ends, and how it is reached."""

    stretch: Stretch
    parts: int
    since_given: bool
    until: str | None
    given: ConnectionOptions


def place_of(given: ConnectionOptions, source: str | None) -> tuple[str, Any]:
    """A URL or directory, and credentials. Raises: UsageError, ZBrokerError."""
    if source is not None and "://" not in source:
        return source, None
    context = given.resolve(source or "")
    place = context.url or context.data_dir
    if not place:
        raise click.UsageError("give SOURCE, or a context that has a URL or a data directory")
    return place, context.credentials.credentials()


@contextmanager
def session(name: str, master: str) -> Iterator[tuple[SparkSession, Step]]:
    """A session for the job, with a bar on a terminal, else a line now and then, on stderr."""
    with progress.bar() as bar, job_runner.spark_session(f"zbroker {name}", master) as spark:
        yield spark, _Lines() if bar is progress.silent else bar


class _Lines:
    """A line when something begins, ends, or takes long."""

    def __init__(self) -> None:
        self._last = (0.0, "", -1)

    def __call__(self, what: str, done: int, total: int) -> None:
        at, before, count = self._last
        now = time.monotonic()
        is_end = done == total and count != total
        if what != before or is_end or (done != count and now - at >= LINES_S):
            self._last = (now, what, done)
            click.echo(f"{what}: {done} of {total}", err=True)


def _chosen(  # noqa: PLR0913 - every option by its name
    given: ConnectionOptions,
    source: str | None,
    journal: str | None,
    archive: str | None,
    topic: str | None,
    regex: bool,
    filter_: str | None,
    filter_type: str,
    since: str | None,
    until: str | None,
    partitions: int,
) -> LogChoice:
    place, credentials = place_of(given, source)
    now = to_datetime(SystemClock().wall_ns())
    begin = point("epoch" if since is None else since, now)
    end = point("now" if until is None else until, now)
    live = credentials if "://" in place else None
    stretch = Stretch(
        place, begin, end, topic, regex, filter_ or "", filter_type, journal, archive, live
    )
    return LogChoice(stretch, partitions, since is not None, until, given)


#: Adds SOURCE and what chooses of it to a command, which gets that as `chosen`.
source_options: Final = collecting(
    "chosen",
    _chosen,
    connection_options,
    click.argument("source", metavar="[SOURCE]", required=False),
    click.option("--journal", help="With a URL: a directory of the same log, which is read first."),
    click.option("--archive", help="Archived segments of a directory, if not beside its journal."),
    click.option("--topic", help="Only this topic. Default: all."),
    flag_option("--regex", "--topic is an RE2 pattern for whole names."),
    click.option(
        "--filter", "filter_", help="Only messages whose content it is true for: '/price > 100'."
    ),
    with_default(
        "--filter-type",
        TYPE_DEFAULT,
        "What payloads in a directory are, for --filter.",
        click.Choice([name for name in TYPES if name != "protobuf"]),
    ),
    click.option(
        "--since",
        help="epoch (default), a bookmark (after it), a UTC time YYYYmmddTHHMMSS, a vector, -1h.",
    ),
    click.option("--until", help="now (default), a bookmark (with it), a time (without it), -5m."),
    with_default(
        "--partitions",
        4,
        "At least so many tasks, as far as there are messages.",
        click.IntRange(min=1),
    ),
)
master_option: Final = text_option(
    "--master", "For a new session. Default: all cores of this machine."
)
