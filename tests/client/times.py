"""The time as cores take it."""

from __future__ import annotations

from zbroker.engine.contract import Now


def at(ms: int) -> Now:
    """So many milliseconds after the client began."""
    return Now(ms, 0)
