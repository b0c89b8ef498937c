"""Finds ids in JSON that its readers would round: integers above 2**53 - 1 (RFC 8259)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

SAFE_MAX: Final = (1 << 53) - 1
#: counted upwards from the time in ns; a bookmark has the number exactly, as text
COUNTED: Final = frozenset(
    {"sequence", "prev", "session", "acked", "first", "last", "time_ns", "log_time_ns"}
)


def rounded(document: Any, path: str = "") -> Iterator[str]:
    """Where there is an integer that is too large for a reader with doubles."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key not in COUNTED or isinstance(value, dict | list):
                yield from rounded(value, f"{path}.{key}")
    elif isinstance(document, list):
        for value in document:
            yield from rounded(value, f"{path}[]")
    elif isinstance(document, int) and abs(document) > SAFE_MAX:
        yield path
