"""From what `consume` is given to the command for the broker. Pure."""

from __future__ import annotations

from typing import Literal

from zbroker.client.subscriber import points
from zbroker.client.subscriber.options import filter_text
from zbroker.errors import ZBrokerError
from zbroker.ids import NOW, is_range
from zbroker.limits import NAME_MAX_BYTES
from zbroker.wire.queue_messages import BACKLOG_MAX, Consume


def wanted(  # noqa: PLR0913 - every option by its name
    queue: str,
    *,
    backlog: int | None,
    filter: str | None,  # noqa: A002 - the word of the field
    since: points.Point | None,
    selector: str | None,
    until: points.End | None,
    bookmark_not_found: Literal["fail", "epoch", "now"],
    credit: int,
) -> Consume:
    """The command. Raises: ZBrokerError bad_field, bad_bookmark; TypeError."""
    return Consume(
        "", _name(queue), backlog=_backlog(backlog), filter=filter_text(filter), credit=credit,
        since=None if since is None else _since(since),
        selector=None if selector is None else _selector(selector),
        until=None if until is None else _place(until),
        bookmark_not_found=_choice(bookmark_not_found),
    )  # fmt: skip


def _name(queue: str) -> str:
    if not isinstance(queue, str):
        raise TypeError(f"the name of a queue is a str, not {type(queue).__name__}")
    if not 0 < len(queue.encode()) <= NAME_MAX_BYTES:
        raise ZBrokerError("bad_field", f"queue={queue!r} is not 1 to {NAME_MAX_BYTES} bytes")
    return queue


def _backlog(backlog: int | None) -> int:
    if backlog is None:
        return 0
    if isinstance(backlog, bool) or not isinstance(backlog, int) or not 0 < backlog <= BACKLOG_MAX:
        raise ZBrokerError("bad_field", f"backlog={backlog!r} is not 1 to {BACKLOG_MAX}")
    return backlog


def _choice(text: str) -> str:
    if text not in ("fail", "epoch", "now"):
        raise ZBrokerError("bad_field", f"bookmark_not_found={text!r} is not fail, epoch or now")
    return text


def _since(point: points.Point) -> str:
    if isinstance(point, points.Range) or (isinstance(point, str) and is_range(point)):
        return points.since_text(point)
    return _place(point)


def _place(point: points.Point) -> str:
    """As `since` of a subscription."""
    if isinstance(point, points.Range) or (isinstance(point, str) and is_range(point)):
        raise ZBrokerError("bad_bookmark", "a range is in `since`, and brings its own end")
    return NOW if point == "now" else points.since_text(point)


def _selector(text: str) -> str:
    found = filter_text(text)
    if found is None:
        raise ZBrokerError("bad_field", "an empty selector selects nothing", "leave it out")
    return found
