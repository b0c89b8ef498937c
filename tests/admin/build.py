"""Segments and states for the tests of the policy: one segment per minute, 100 positions each."""

from __future__ import annotations

from typing import Any

from zbroker.admin.retention import Copy, RetentionView, SegmentView
from zbroker.config import RetentionConfig

MINUTE_NS = 60_000_000_000
MINUTE = 60_000
NOW_NS = 1_000 * MINUTE_NS

RAW = Copy(archived=False, packed=False, bytes=100)
PACKED = Copy(archived=False, packed=True, bytes=40)
ARCHIVED = Copy(archived=True, packed=False, bytes=100)
ARCHIVED_PACKED = Copy(archived=True, packed=True, bytes=40)


def state(*copies: tuple[Copy, ...] | Copy, **changes: Any) -> RetentionView:
    """Sealed segments 1, 2, ... with these copies, then the open one.

    The last message of the newest sealed one is one minute old, of the one before it two, ...
    """
    count = len(copies)
    sealed = [
        SegmentView(
            serial,
            (copy,) if isinstance(copy, Copy) else copy,
            100,
            serial * 100 + 1,
            NOW_NS - (count - serial + 1) * MINUTE_NS,
        )
        for serial, copy in enumerate(copies, 1)
    ]
    newest = SegmentView(count + 1, (RAW,), 100, None, None)
    made = RetentionView((*sealed, newest), NOW_NS, count + 1, 1_000_000)
    return made._replace(**changes)


def settings(**keys: int) -> RetentionConfig:
    return RetentionConfig(**{"remove_share_max": 100, **keys})
