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

from zbroker.filters import values
from zbroker.filters.limits import (
    PATTERN_MAX_CHARS,
    PATTERN_MEMORY_BYTES,
    PATTERN_STEPS_MAX,
    REPLACE_STEP_BYTES_MAX,
    STEP_BYTES_MAX,
    TEXT_MAX_CHARS,
)
from zbroker.filters.values import Truth

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


class TooDear(Exception):
    """A replacement takes too many steps."""


class TextPattern:
    """A compiled pattern. `plain` is (text, where) if it is nothing but text.

    steps: of its program; none, if it is plain. most: the longest text, in bytes, that is searched.
    """

    __slots__ = ("_in_bytes", "_in_text", "most", "plain", "search", "steps", "text")

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_MAX_CHARS:
            raise BadPattern(f"a pattern has at most {PATTERN_MAX_CHARS} characters")
        self.text = text
        self._in_bytes = _compiled(text.encode())
        self._in_text: Any = None  # made for a replacement; its places are those of characters
        found = _ONLY_TEXT.fullmatch(text)
        self.plain = (found[2], _WHERE[found[1], found[3]]) if found else None
        self.steps = 0 if self.plain else max(1, int(self._in_bytes.programsize))
        self.most = STEP_BYTES_MAX // max(1, self.steps)
        self.search: Callable[[str], Truth] = self._searching()

    def _searching(self) -> Callable[[str], Truth]:
        if self.plain is None:
            return self._searched
        wanted, where = self.plain
        if where == "anywhere":
            return lambda text: wanted in text
        if where == "begin":
            return lambda text: text.startswith(wanted)
        return wanted.__eq__ if where == "whole" else lambda text: text.endswith(wanted)

    def _searched(self, text: str) -> Truth:
        """None for a text that is too long."""
        data = text.encode()
        return None if len(data) > self.most else self._in_bytes.search(data) is not None

    def truth(self, item: Any) -> Truth:  # noqa: ANN401 - what a payload may hold
        """Whether it is in a value, or in any element of an array; all of them are one text."""
        if self.steps and item.__class__ is list:
            texts = [values.text(each) or "" for each in item if each.__class__ is not list]
            if sum(map(len, texts)) > self.most:
                return None
        return values.of_text(item, self.search)

    def check_replacement(self, text: str) -> None:
        """Raises: BadPattern, unless `text` names groups of this pattern only."""
        for escape in re.finditer(r"\\(.?)", text, re.DOTALL):
            if escape[1] != "\\" and not escape[1].isdecimal():
                raise BadPattern(r"a replacement has \0 to \9 and \\ only")
            if escape[1].isdecimal() and int(escape[1]) > self._in_bytes.groups:
                raise BadPattern(f"the pattern has no group {escape[1]}")

    def replace(self, text: str, replacement: str) -> str | None:
        """`text` with all that matches replaced; None if that would take or be too long."""
        if len(text) > self.most:
            return None
        parts: list[str] = []
        length = 0
        try:
            for part in self._replaced(text, replacement):
                length += len(part)
                if length > TEXT_MAX_CHARS:
                    return None
                parts.append(part)
        except TooDear:
            return None
        return "".join(parts)

    def _replaced(self, text: str, replacement: str) -> Iterator[str]:
        if self._in_text is None:
            self._in_text = _compiled(self.text)
        end, left = 0, REPLACE_STEP_BYTES_MAX // max(1, self.steps)
        for match in self._in_text.finditer(text):
            left -= len(text) - match.start()
            if left < 0:
                raise TooDear
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
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise BadPattern(text) from None
    if made.programsize > PATTERN_STEPS_MAX:
        raise BadPattern(f"it has {made.programsize} steps, at most {PATTERN_STEPS_MAX}")
    return made
