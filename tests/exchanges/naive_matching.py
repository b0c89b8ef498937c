"""A slow reading of patterns and header arguments, written from the rules: what compiled ones are
compared with. It shares nothing with the package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def topic_matches(pattern: str, key: str) -> bool:
    """Each word is written with a dot after it; then a regular expression says it all."""
    written = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    expression = "".join(written.get(word, re.escape(word) + r"\.") for word in _words(pattern))
    return re.fullmatch(expression, "".join(f"{word}." for word in _words(key))) is not None


def _words(key: str) -> list[str]:
    return key.split(".") if key else []


def headers_match(arguments: Mapping[str, Any], headers: Mapping[str, Any] | None) -> bool:
    """One by one."""
    found = []
    for name, value in arguments.items():
        if name == "x-match" or (name[:2] == "x-" and "with-x" not in arguments["x-match"]):
            continue
        there = name in (headers or {})
        found.append(there and (value is None or is_same(value, (headers or {})[name])))
    return any(found) if arguments["x-match"][:3] == "any" else all(found)


def is_same(asked: Any, found: Any) -> bool:
    if isinstance(asked, str | bytes) and isinstance(found, str | bytes):
        one, other = (each.encode() if isinstance(each, str) else each for each in (asked, found))
        return one == other
    return isinstance(asked, bool) is isinstance(found, bool) and asked == found
