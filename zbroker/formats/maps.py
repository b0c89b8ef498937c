"""Decides which maps of msgpack are read: those that chosen keys cannot make slow.

The hash of text and of binary has a secret seed. That of a number or an array has
none: keys can be computed that all collide, and a map of n of them takes n * n
steps to build. So a map of more than `ODD_KEYS_MAX` entries has keys of text or binary, or its
payload is unreadable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgpack

from zbroker.formats.pairs import Malformed

ODD_KEYS_MAX: Final = 64  # entries of a map with other keys; 64 * 64 / 2 steps are 0.2 ms at worst
_SEEDED: Final = frozenset({str, bytes})
_HEADS: Final = ((b"\xde", 2), (b"\xdf", 4))  # of maps with more than 15 entries; width of a count


def suspect(payloads: Sequence[bytes]) -> bool:
    """True if one of them may hold a big map.

    Most payloads have no byte that such a map begins with, which two searches in all of them show.
    """
    room = max(map(len, payloads), default=0) // 2  # entries of the longest: two bytes or more each
    together = b"".join(payloads)
    return any(_announced(together, head, width, room) for head, width in _HEADS)


def check(data: bytes) -> None:
    """Raises: Malformed, if a big map has a key that is neither text nor binary."""
    if not suspect((data,)):
        return
    try:
        msgpack.unpackb(data, object_pairs_hook=_check_keys, strict_map_key=False)
    except (ValueError, msgpack.UnpackException) as error:  # Malformed is a ValueError
        raise Malformed(str(error) or type(error).__name__) from None


def _announced(data: bytes, head: bytes, width: int, room: int) -> bool:
    """True if a map with more entries, but no more than there is room for, may begin somewhere."""
    at = data.find(head)
    while at >= 0:
        if ODD_KEYS_MAX < int.from_bytes(data[at + 1 : at + 1 + width], "big") <= room:
            return True
        at = data.find(head, at + 1)
    return False


def _check_keys(pairs: list[tuple[Any, Any]]) -> None:
    if len(pairs) > ODD_KEYS_MAX and not _SEEDED.issuperset([type(key) for key, _ in pairs]):
        raise Malformed(f"a map of more than {ODD_KEYS_MAX} entries has keys of text or binary")
