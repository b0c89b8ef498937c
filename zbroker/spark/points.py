"""Where in the log of a directory a point is: a bookmark, a time, a vector, an end of it."""

from __future__ import annotations

from zbroker.clock import is_time, parse_time
from zbroker.errors import ClientError
from zbroker.ids import EPOCH, NOW, Origin, is_vector, parse_bookmark, parse_vector
from zbroker.log.reader import Log


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
