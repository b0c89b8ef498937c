"""What the delivery core wants done, as values; loop.py does it in this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from zbroker.delivery.points import Point
from zbroker.engine.effects import Note, Send
from zbroker.wire.internal import Locate


class Ask(NamedTuple):
    """Send this to the journal."""

    locate: Locate


class Plan(NamedTuple):
    """Split the log between two points by bytes; a long log takes several turns.

    persisted: what the journal said; marks that tell it may come later. Done with `Core.plans`.
    """

    rid: bytes
    cid: str | None
    start: Point
    end: int
    parts: int
    persisted: int


Effect = Send | Ask | Plan | Note


@dataclass(slots=True)
class Counts:
    """What was done, since the start."""

    messages_out: int = 0
    bytes_out: int = 0
    dropped: int = 0  # unrecorded messages for subscriptions without credit
    errors: int = 0
    rewound: int = 0
