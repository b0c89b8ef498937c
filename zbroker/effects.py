"""What every core with clients wants done, as values; its loop does it in this order. Pure."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct


class Send(Struct, gc=False):
    """One message to one connection. If its peer is gone, tell the core."""

    rid: bytes
    header: bytes
    body: bytes | None = None


class Note(NamedTuple):
    """A line for the log: what happened, what it means for the data, what comes next."""

    name: str
    text: str
