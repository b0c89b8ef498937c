"""Points in the log that a client names, and what the journal's answers make of them.

A point is asked as one or several values (a list of bookmarks); each gets its own Locate. An answer
is a position: the range begins or ends before it. The question says which side of a message or time
that is (`Cut`), so a begin and an end are looked up alike.

A range begins at the oldest point of a list that is found, and ends at the latest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from zbroker.clock import is_time
from zbroker.errors import ClientError
from zbroker.ids import (
    EPOCH,
    NOW,
    Cut,
    Origin,
    check_point,
    format_vector,
    is_range,
    is_vector,
    parse_bookmark,
    parse_range,
    point_name,
)
from zbroker.wire.internal import Located

LIST_MAX: Final = 1_000  # bookmarks in one list: one look-up each
UNTIL_NOW: Final = "now"


class Point(Struct, frozen=True):
    """A place in the log: the first position after it, and where to look for that.

    serial, offset: a batch at or before it (0: not known). time_ns: set when the point is a time
    later than everything in the log; the first message at or after that time is meant then.
    passed, passed_at, mixed, tied, at_end, forked: as in Located.
    """

    position: int
    serial: int = 0
    offset: int = 0
    time_ns: int | None = None
    passed: tuple[tuple[Origin, int], ...] = ()
    passed_at: int = 0
    mixed: bool = False
    tied: tuple[tuple[int, int, int], ...] = ()
    at_end: tuple[tuple[Origin, int], ...] = ()
    forked: bool = False


class RangePoints(NamedTuple):
    """Points to be located: where a range begins, and where it ends; none, if it does not."""

    first: list[str]
    last: list[str]
    first_cut: Cut = ""
    last_cut: Cut = ""


def wanted(bookmark: str | None, until: str | None) -> RangePoints:
    """What a command's `bookmark` (NOW if it has none) and `until` ask for.

    Raises: ClientError bad_bookmark or too_many.
    """
    if bookmark is not None and is_range(bookmark):
        if until is not None:
            raise ClientError("bad_bookmark", "a range has its own end: leave out `until`")
        text = parse_range(bookmark)
        last = _located(text.last, end=True) if text.last else []
        return RangePoints(_located(text.first, end=False), last, text.first_cut, text.last_cut)
    first = values(NOW if bookmark is None else bookmark)
    return RangePoints(first, values(until, end=True) if until is not None else [])


def values(text: str, *, end: bool = False) -> list[str]:
    """Points to be located for the value `text`. end: it is an `until`, which is not a list.

    Raises: ClientError bad_bookmark or too_many.
    """
    found = _located(text, end=end)
    if end and len(found) > 1:
        raise ClientError("bad_bookmark", '`until` takes one bookmark, time or vector, or "now"')
    return found


def _located(text: str, *, end: bool) -> list[str]:
    if end and text == UNTIL_NOW:
        return [NOW]
    if is_time(text) or is_vector(text):
        check_point(text)
    elif text not in (EPOCH, NOW) and point_name(text) is None:
        return _bookmarks(text)
    return [text]


def _bookmarks(text: str) -> list[str]:
    found = text.split(",")
    if len(found) > LIST_MAX:
        raise ClientError("too_many", f"a list has at most {LIST_MAX} bookmarks")
    for value in found:
        if value not in (EPOCH, NOW):
            parse_bookmark(value)
    return found


def refused(answers: Sequence[Located], *, end: bool = False) -> Located | None:
    """The answer that says why these values have no point; None if they have one.

    Not here yet outranks unknown, as it may be found later. A begin that is expired is refused even
    if others of its list were found: to begin at those would skip what came between.
    """
    for code in () if end else ("bookmark_expired",):
        if (expired := _with(answers, code)) is not None:
            return expired
    if any(not answer.code for answer in answers):
        return None
    return _with(answers, "bookmark_pending") or _with(answers, "bookmark_expired") or answers[0]


def _with(answers: Sequence[Located], code: str) -> Located | None:
    return next((answer for answer in answers if answer.code == code), None)


def settle(answers: Sequence[Located], here: Origin, *, end: bool = False) -> Point:
    """The point of all answers: the oldest of those found, the latest if a range ends there.

    Raises: ClientError with the journal's code.
    """
    no = refused(answers, end=end)
    if no is not None:
        raise refusal(no, here)
    found = sorted((one for one in answers if not one.code), key=lambda one: one.position)
    best = found[-1] if end else found[0]
    return Point(
        best.position, best.serial, best.offset, best.time_ns, rows(best.passed), best.passed_at,
        best.mixed, tuple(best.tied), rows(best.at_end), best.forked,
    )  # fmt: skip


def rows(passed: Sequence[tuple[int, int, int]]) -> tuple[tuple[Origin, int], ...]:
    """A vector of the journal."""
    return tuple((Origin(instance, generation), at) for instance, generation, at in passed)


def refusal(answer: Located, here: Origin) -> ClientError:
    """The error that a client gets instead of a point."""
    reason = answer.reason
    if answer.code == "bookmark_expired":
        oldest = format_vector(dict(rows(answer.passed)) or {here: answer.log_start - 1})
        reason += f"; the oldest one kept follows the vector {oldest}"
    return ClientError(answer.code, reason)
