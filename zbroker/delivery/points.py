"""Points in the log that a client names, and what the journal's answers make of them.

A point is asked as one or several values (a list of bookmarks); each gets its own Locate. All
answers are the first position *behind* the point (at or after it, for a time), so the same position
starts a subscription behind a bookmark and ends one that includes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zbroker.clock import is_time, parse_time
from zbroker.errors import ClientError
from zbroker.ids import EPOCH, NOW, Origin, format_vector, is_vector, parse_bookmark, parse_vector
from zbroker.wire.internal import Located

LIST_MAX: Final = 1_000  # bookmarks in one list: one look-up each
UNTIL_NOW: Final = "now"


@dataclass(slots=True, frozen=True)
class Point:
    """A place in the log: the first position behind it, and where to look for that.

    serial, offset: a batch at or before it (0: not known). time_ns: set when the point is a time
    later than everything in the log; the first message at or after that time is meant then.
    """

    position: int
    serial: int = 0
    offset: int = 0
    time_ns: int | None = None


def values(text: str, *, end: bool = False) -> list[str]:
    """What has to be located for `text`; `end`: it is an `until`.

    Raises: ClientError bad_bookmark or too_many.
    """
    if text in (EPOCH, NOW):
        return [text]
    if end and text == UNTIL_NOW:
        return [NOW]
    if is_time(text):
        parse_time(text)
        return [text]
    if is_vector(text):
        parse_vector(text)
        return [text]
    return _bookmarks(text, end=end)


def _bookmarks(text: str, *, end: bool) -> list[str]:
    found = text.split(",")
    if end and len(found) > 1:
        raise ClientError("bad_bookmark", '`until` takes one bookmark, time or vector, or "now"')
    if len(found) > LIST_MAX:
        raise ClientError("too_many", f"a list has at most {LIST_MAX} bookmarks")
    for value in found:
        if value not in (EPOCH, NOW):
            parse_bookmark(value)
    return found


def settle(answers: list[Located], here: Origin) -> Point:
    """The point of all answers: the oldest of those found.

    Raises: ClientError with the journal's code. An expired bookmark is an error even if others of
    its list were found: to start at those would skip what came between.
    """
    refusals = [_refusal(answer, here) for answer in answers]
    for refusal in refusals:
        if refusal is not None and refusal.code == "bookmark_expired":
            raise refusal
    found = [answer for answer, no in zip(answers, refusals, strict=True) if no is None]
    if not found:
        raise next(refusal for refusal in refusals if refusal is not None)
    first = min(found, key=lambda answer: answer.position)
    return Point(first.position, first.serial, first.offset, first.time_ns)


def _refusal(answer: Located, here: Origin) -> ClientError | None:
    if not answer.code:
        return None
    reason = answer.reason
    if answer.code == "bookmark_expired":
        oldest = format_vector({here: answer.floor - 1})
        reason += f"; the oldest one kept follows the vector {oldest}"
    return ClientError(answer.code, reason)
