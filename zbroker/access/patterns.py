"""Patterns of topics and names: `*` matches any characters, everything else itself. Pure.

The parts between the stars are searched from left to right, each at its first occurrence. That
finds a match if there is one, without backtracking.
"""

from __future__ import annotations

import re
from typing import Final

from zbroker.limits import TOPIC_MAX_BYTES

ANY: Final = "*"
_STARS: Final = re.compile(r"\*+")


class AccessPattern:
    """A compiled pattern. text: its shortest form; equal texts fit the same."""

    __slots__ = ("_first", "_last", "_middle", "_shortest", "text")

    def __init__(self, text: str) -> None:
        """Raises: ValueError for one that nothing can fit."""
        if not text or not text.isprintable():
            raise ValueError(f"{text[:64]!r} is not printable text")
        self.text = _STARS.sub(ANY, text)
        first, *middle = self.text.split(ANY)
        self._first = first
        self._last = middle.pop() if middle else None
        self._middle = middle
        self._shortest = len(self.text) - self.text.count(ANY)
        if self._shortest > TOPIC_MAX_BYTES:
            raise ValueError(f"{text[:64]!r} is longer than {TOPIC_MAX_BYTES} bytes")

    def __call__(self, name: str) -> bool:
        """True if the whole of `name` fits."""
        if self._last is None:
            return name == self._first
        if len(name) < self._shortest or not name.startswith(self._first):
            return False
        at, end = len(self._first), len(name) - len(self._last)
        for part in self._middle:
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return name.endswith(self._last)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"
