"""Escapes output, so that it cannot control the terminal: payloads and names are foreign text.

A publisher could set the title, clear the screen or fill the clipboard of the user (OSC 0 and
52, CSI 2J), or turn text around. So on a terminal every control character but tab and line feed is
written as `\\u001b`, which JSON reads as the same character. In a pipe nothing is changed.

`guarded` puts that between the programs and the terminal, so that a new command is safe, too.
What draws by itself (rich) goes past it, to `raw`, and asks `safe` for each text of others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

#: C0 and C1 without tab and line feed, DEL, and what changes the direction of text
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def safe(text: str) -> str:
    """`text` with control characters as `\\uXXXX`."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def raw(stream: Any) -> TextIO:  # noqa: ANN401 - one that may be guarded
    """The terminal itself, for what draws on it."""
    found: TextIO = stream.stream if isinstance(stream, SafeTerminal) else stream
    return found


@contextmanager
def guarded() -> Iterator[None]:
    """stdout and stderr write safe text, where they are terminals."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_guard(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _guard(stream: TextIO) -> Any:  # noqa: ANN401 - it behaves like one
    return SafeTerminal(stream) if stream is not None and stream.isatty() else stream


class _Stream:
    """Everything but writing is the stream's own."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - of text or of bytes
        self.stream = stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the stream
        return getattr(self.stream, name)


class SafeTerminal(_Stream):
    """A terminal as a text stream."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.buffer = _ByteStream(stream.buffer)

    def write(self, text: str) -> int:
        self.stream.write(safe(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)


class _ByteStream(_Stream):
    """The same as a binary stream; bytes that are not UTF-8 are written as `\\xff`."""

    def write(self, data: bytes) -> int:
        text = bytes(data).decode("utf-8", "backslashreplace")
        self.stream.write(safe(text).encode("utf-8", "backslashreplace"))
        return len(data)
