"""The state of a queue besides the log: in the tables, and how far it was delivered. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

#: for name and declaration of a queue: no message from that position on was sent, as was noted
Noted = Callable[[str, int], int | None]


class SavedQueue(NamedTuple):
    """What the tables hold of a queue: its state when the log was folded up to `position`."""

    position: int
    horizon: int
    rows: dict[str, bytes]
