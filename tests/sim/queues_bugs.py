"""Bugs that can be planted in the queues world, each a promise of the room that is not kept."""

from __future__ import annotations

from zbroker.queues.core import Core


def planted(bug: str, core: Core) -> None:
    """Makes a core of the room do something wrong."""
