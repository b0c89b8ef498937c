"""The options of all jobs: which part of which log, and where Spark is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, NamedTuple

import click

from zbroker.cli import progress
from zbroker.cli.options import ConnectionOptions, connection_options, with_default
from zbroker.cli.progress import Step
from zbroker.cli.sub import point
from zbroker.clock import SystemClock, to_datetime
from zbroker.formats import TYPES
from zbroker.recording import TYPE_DEFAULT
from zbroker.spark.jobs.job_runner import Stretch

LINES_S: Final = 10.0  # between two lines if there is no progress bar


class LogChoice(NamedTuple):
    """The part of the log; whether it was said where it begins and ends."""

    stretch: Stretch
    parts: int
    since_given: bool
    until: str | None


def source_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds SOURCE and what chooses of it; the command gets them as `chosen`, and `given`."""

    @wraps(function)
    def collected(
        *args: object,
        given: ConnectionOptions,
        source: str | None,
        partitions: int,
        since: str | None,
        until: str | None,
        filter_: str | None,
        **kwargs: Any,  # noqa: ANN401 - what is left is named as in Stretch
    ) -> object:
        place, credentials = place_of(given, source)
        now = to_datetime(SystemClock().wall_ns())
        mine = {name: kwargs.pop(name) for name in _FIELDS}
        stretch = Stretch(
            place,
            since=point(since, now) if since is not None else "epoch",
            until=point(until, now) if until is not None else "now",
            filter=filter_ or "",
            credentials=credentials if "://" in place else None,
            **mine,
        )
        chosen = LogChoice(stretch, partitions, since is not None, until)
        return function(*args, given=given, chosen=chosen, **kwargs)

    for option in reversed(_OPTIONS):
        collected = option(collected)
    return connection_options(collected)


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
def steps() -> Iterator[Step]:
    """A bar on a terminal, else a line now and then, on stderr."""
    with progress.bar() as bar:
        yield _Lines() if bar is progress.silent else bar


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


_FIELDS: Final = ("topic", "regex", "filter_type", "journal", "archive")
_OPTIONS: Final = (
    click.argument("source", metavar="[SOURCE]", required=False),
    click.option("--journal", help="With a URL: a directory of the same log, which is read first."),
    click.option("--archive", help="Archived segments of a directory, if not beside its journal."),
    click.option("--topic", help="Only this topic. Default: all."),
    click.option("--regex", is_flag=True, help="--topic is an RE2 pattern for whole names."),
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
master_option = click.option(
    "--master", default="", help="For a new session. Default: all cores of this machine."
)
