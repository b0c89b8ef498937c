"""Regular expressions of filters: RE2, so time is linear in the text and memory is bounded.

A search by RE2 costs a microsecond or more: less in bytes, where no places of characters are
counted. A pattern that is only text, perhaps with `^` or `$`, is searched as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Literal

import re2

from zbroker.filters.limits import (
    PATTERN_MAX_CHARS,
    PATTERN_MEMORY_BYTES,
    PATTERN_STEPS_MAX,
    TEXT_MAX_CHARS,
)

_ONLY_TEXT: Final = re.compile(r"(\^?)([\w \-/:;,@#%&=<>~'\"!`]+)(\$?)")
_GROUP: Final = re.compile(r"\\([0-9\\])")

Where = Literal["anywhere", "begin", "end", "whole"]
_WHERE: Final[dict[tuple[str, str], Where]] = {
    ("", ""): "anywhere",
    ("^", ""): "begin",
    ("", "$"): "end",
    ("^", "$"): "whole",
}


class BadPattern(ValueError):
    """RE2 does not take it, or it is over a limit; says why."""


class Pattern:
    """A compiled pattern. `plain` is (text, where) if it is nothing but text."""

    __slots__ = ("_in_bytes", "_in_text", "plain", "search", "text")

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_MAX_CHARS:
            raise BadPattern(f"a pattern has at most {PATTERN_MAX_CHARS} characters")
        self.text = text
        self._in_bytes = _compiled(text.encode())
        self._in_text: Any = None  # made for a replacement; its places are those of characters
        found = _ONLY_TEXT.fullmatch(text)
        self.plain = (found[2], _WHERE[found[1], found[3]]) if found else None
        self.search: Callable[[str], bool] = self._searching()

    def _searching(self) -> Callable[[str], bool]:
        if self.plain is None:
            searched = self._in_bytes.search
            return lambda text: searched(text.encode()) is not None
        wanted, where = self.plain
        if where == "anywhere":
            return lambda text: wanted in text
        if where == "begin":
            return lambda text: text.startswith(wanted)
        return wanted.__eq__ if where == "whole" else lambda text: text.endswith(wanted)

    def check_replacement(self, text: str) -> None:
        """Raises: BadPattern, unless `text` names groups of this pattern only."""
        for escape in re.finditer(r"\\(.?)", text, re.DOTALL):
            if escape[1] != "\\" and not escape[1].isdecimal():
                raise BadPattern(r"a replacement has \0 to \9 and \\ only")
            if escape[1].isdecimal() and int(escape[1]) > self._in_bytes.groups:
                raise BadPattern(f"the pattern has no group {escape[1]}")

    def replace(self, text: str, replacement: str) -> str | None:
        """`text` with all that matches replaced; None if that would be too long."""
        parts: list[str] = []
        length = 0
        for part in self._replaced(text, replacement):
            length += len(part)
            if length > TEXT_MAX_CHARS:
                return None
            parts.append(part)
        return "".join(parts)

    def _replaced(self, text: str, replacement: str) -> Iterator[str]:
        if self._in_text is None:
            self._in_text = _compiled(self.text)
        end = 0
        for match in self._in_text.finditer(text):
            yield text[end : match.start()]
            yield _GROUP.sub(partial(_named, match), replacement)
            end = match.end()
        yield text[end:]


def _named(match: Any, group: re.Match[str]) -> str:  # noqa: ANN401 - re2 has no types
    return "\\" if group[1] == "\\" else match[int(group[1])] or ""


def _compiled(text: str | bytes) -> Any:  # noqa: ANN401 - re2 has no types
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES
    options.log_errors = False
    try:
        made = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "RE2 does not take it"
        told = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise BadPattern(told) from None
    if made.programsize > PATTERN_STEPS_MAX:
        raise BadPattern(f"it has {made.programsize} steps, at most {PATTERN_STEPS_MAX}")
    return made
