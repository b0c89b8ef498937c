"""Processes that append to the journal, and which of them may send what. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from zbroker.errors import Bug
from zbroker.wire import internal as m


@dataclass(slots=True)
class Requester:
    """A process that appends: only the newest connection of each one is listened to."""

    rid: bytes
    process: str
    incarnation: int
    number: int = 0  # of its Hello
    unconfirmed: deque[m.ReceiptItem] = field(default_factory=deque)
    fresh: int = 0  # items at the right end that were not sent yet


def demand(requester: Requester, process: str) -> None:
    """Raises: Bug if another process sent this."""
    if requester.process != process:
        raise Bug(f"{requester.process} sent what only {process} may send")
