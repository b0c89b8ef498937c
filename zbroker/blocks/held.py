"""What conflation sends for a key: a message with the identity of another one. Pure."""

from __future__ import annotations

from typing import NamedTuple

from zbroker.wire.messages import Columns


class MessagePlace(NamedTuple):
    """Which message it is. position: 0 if not recorded; origin: None if it is this instance's."""

    position: int
    publisher: int
    sequence: int
    origin: tuple[int, int, int] | None = None


class Held(NamedTuple):
    """One key at the end of an interval: `first` names the key's first message, the rest is the
    newest one's. since: position of the first message of all that ended with it; a subscriber that
    resumes there gets all of it again, unchanged. extra: columns of one, its key, headers and
    expiry.
    """

    first: MessagePlace
    topic: str
    time_ns: int
    data: bytes
    since: int = 0
    extra: Columns | None = None
