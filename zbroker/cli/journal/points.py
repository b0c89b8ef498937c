"""Points in the log as people write them: a position, a bookmark, a time, -1h, epoch, now, point:x.

`--since` a position, time or named point begins there, a bookmark after its message. `--until` one
of the first three ends before it, a bookmark with its message. So it is for subscriptions too.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import click

from zbroker.cli.journal.folded import folded
from zbroker.cli.sub import ago
from zbroker.clock import SystemClock, is_time, parse_time
from zbroker.errors import ClientError, ZBrokerError, unknown_point
from zbroker.ids import POINT, Vector, format_bookmark, parse_bookmark, parse_vector
from zbroker.journal.sessions import Sessions
from zbroker.log.cover import Cover
from zbroker.log.format import KIND_PUBLISH
from zbroker.log.reader import Gap, Log
from zbroker.log.records import POINT as POINT_RECORD

_FORMS: Final = "a position, a bookmark, a time YYYYmmddTHHMMSS, -1h, point:NAME, epoch or now"

since_option = click.option(
    "--since", metavar="POINT", help=f"Begin here: {_FORMS}; after a bookmark."
)
until_option = click.option(
    "--until", metavar="POINT", help="End before this position or time, or with this bookmark."
)


def span(log: Log, since: str | None, until: str | None) -> tuple[int, int]:
    """Positions [first, end) between two points. Raises: ZBrokerError, click.UsageError."""
    end = log.end()
    first = max(edge(log, since), log.first_position) if since else log.first_position
    return min(first, end), min(edge(log, until), end) if until else end


def edge(log: Log, text: str) -> int:
    """The position at which this point begins or ends a range: after a bookmark's message."""
    found = exactly(log, text)
    return found + 1 if is_bookmark(text) else found


def exactly(log: Log, text: str) -> int:
    """The position that a point names: of a bookmark's message, of the first one from a time on.

    Raises: ZBrokerError not_found, unknown_point, click.UsageError.
    """
    if text.startswith(POINT):
        return named(log, text.removeprefix(POINT))
    if text in ("epoch", "now"):
        return log.first_position if text == "epoch" else log.end()
    if text.isascii() and text.isdigit():
        return int(text)
    at_ns = time_ns(text)
    if at_ns is not None:
        return log.locate_time(at_ns)
    return _of_bookmark(log, text)


def named(log: Log, name: str) -> int:
    """The place with this name: messages at lower positions are before it.

    Raises: ZBrokerError unknown_point.
    """
    sessions = folded(log).sessions
    shared = sessions.named.shared.meant(name)
    if shared is not None:
        return _first_left(log, sessions, parse_vector(shared.covers))
    row = sessions.named.points.get(name)
    vector = parse_vector(POINT_RECORD.decode(row.body).vector) if row is not None else {}
    own = [origin for origin in vector if origin.instance == log.instance]
    if not own:
        raise unknown_point(name)
    newest = max(own)
    return min(vector[newest] + 1, log.end_of(newest.generation) or log.end())


def _first_left(log: Log, sessions: Sessions, vector: Vector) -> int:
    """The first message that a vector does not cover; the end of the log if there is none."""
    cover = Cover(sessions.origins.closed.fill(vector), sessions.origins.ties)
    for item in log.headers(log.seek(log.first_position), log.end()):
        if isinstance(item, Gap) or item[0].kind != KIND_PUBLISH:
            continue
        batch = item[0]
        if runs := cover.left(batch):
            return batch.position + runs[0][0] - batch.sequence
    return log.end()


def time_ns(text: str) -> int | None:
    """Nanoseconds since 1970 of a time, or of -1h; None if it is neither.

    Raises: click.UsageError for a time that does not exist.
    """
    back = ago(text)
    if back is not None:
        return SystemClock().wall_ns() - back // timedelta(microseconds=1) * 1_000
    try:
        return parse_time(text) if is_time(text) else None
    except ClientError as error:
        raise click.UsageError(error.reason) from None


def is_bookmark(text: str) -> bool:
    """True if it has the form of a bookmark of a message."""
    return text.count("|") == 2


def _of_bookmark(log: Log, text: str) -> int:
    try:
        bookmark = parse_bookmark(text)
    except ClientError:
        raise click.UsageError(f"{text!r} is not a point of the log; write {_FORMS}") from None
    position = log.locate(bookmark)
    if position is None:
        reason = f"the log does not hold {format_bookmark(*bookmark)}"
        hint = "it may be older than the oldest segment: `journal info` says where the log begins"
        raise ZBrokerError("not_found", reason, hint)
    return position
