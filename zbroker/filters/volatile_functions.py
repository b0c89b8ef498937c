"""Functions whose value is another one each time: the clock and chance.

A filter with one of them is asked for what is true now, so it is refused wherever a filter must
mean the same everywhere and for ever (`vocabulary.FIXED`).
"""

from __future__ import annotations

import secrets
import uuid
from typing import Final

from zbroker.clock import SystemClock

_CLOCK: Final = SystemClock()
_VERSION: Final = 7 << 76
_VARIANT: Final = 2 << 62
_RANDOM_A_BITS: Final = 12
_RANDOM_B_BITS: Final = 62


def unix_timestamp() -> float:
    """Seconds since 1970."""
    return _CLOCK.wall_ns() / 1_000_000_000


def uuid7() -> str:
    """A UUID of version 7 (RFC 9562): it rises with the milliseconds since 1970."""
    value = _CLOCK.wall_ns() // 1_000_000 << 80
    value |= _VERSION | secrets.randbits(_RANDOM_A_BITS) << 64
    value |= _VARIANT | secrets.randbits(_RANDOM_B_BITS)
    return str(uuid.UUID(int=value))
