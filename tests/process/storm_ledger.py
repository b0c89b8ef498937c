"""What a publisher that may be killed at any moment noted, and the verdict on what the log holds.

A line is one thread of one publisher; it numbers its messages from 0 on and never uses a number
again. Before a call it notes which numbers, and after the call that it returned.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from zbroker.cli.journal.rows import MessageRow

#: number of the first message, how many, returned, -: a page never ends within a note
NOTE: Final = struct.Struct("<QIHH")
assert 4_096 % NOTE.size == 0


class Call(NamedTuple):
    """One `publish` or `publish_many`."""

    first: int
    size: int
    returned: bool

    @property
    def end(self) -> int:
        return self.first + self.size


class Ledger:
    """The notes of one line, in a file that is only appended to. The page cache outlives a kill."""

    def __init__(self, path: Path) -> None:
        known = calls(path)
        self.end = known[-1].end if known else 0
        self._fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def begins(self, count: int) -> None:
        os.write(self._fd, NOTE.pack(self.end, count, 0, 0))

    def returned(self, count: int) -> None:
        os.write(self._fd, NOTE.pack(self.end, count, 1, 0))
        self.end += count

    def close(self) -> None:
        os.close(self._fd)


def calls(path: Path) -> list[Call]:
    """All calls of a line, in their order."""
    found: list[Call] = []
    data = path.read_bytes() if path.exists() else b""
    for first, count, returned, _ in NOTE.iter_unpack(data):
        if returned:
            assert found[-1] == (first, count, False), "it returned before it began"
            found.pop()
        found.append(Call(first, count, bool(returned)))
    return found


# -- messages -------------------------------------------------------------------------------------


class Content(NamedTuple):
    """What is compared of a message."""

    topic: str
    data: bytes
    key: bytes | None = None
    headers: dict[str, int] | None = None
    expires_ns: int = 0

    @property
    def plain(self) -> bool:
        return self.key is None


def contents(line: int, first: int, count: int) -> list[Content]:
    """The messages of a call. Those of one with many have one topic, and no extras."""
    topic = f"storm.{first % 3}"
    found = [Content(topic, _data(line, number)) for number in range(first, first + count)]
    if count == 1 and first % 4 == 0:
        found = [found[0]._replace(key=b"%d" % line, headers={"n": first}, expires_ns=1 + first)]
    return found


def _data(line: int, number: int) -> bytes:
    """From a few bytes to more than what a store queues without counting it."""
    size = 1_500 if number % 97 == 0 else number * 7 % 120
    return b"%d:%d:%s" % (line, number, b"." * size)


def line_of(message: MessageRow) -> int:
    return int(message.data.split(b":", 1)[0])


def content_of(message: MessageRow) -> Content:
    headers = None if message.headers is None else {k: int(v) for k, v in message.headers.items()}  # type: ignore[arg-type]
    return Content(message.topic, message.data, message.key, headers, message.expires_ns)


# -- the verdict ----------------------------------------------------------------------------------


def judge(line: int, known: Sequence[Call], found: Sequence[Content]) -> int:
    """The log has each message whose call returned, once and in order; of a call that was under way
    at a kill any number of its first ones; nothing else.

    Returns: how many messages returned.
    """
    at = returned = 0
    for call in known:
        wanted = contents(line, call.first, call.size)
        there = list(_same(wanted, found[at:]))
        if call.returned:
            assert len(there) == call.size, (
                f"line {line}: message {call.first + len(there)} is missing; there is "
                f"{found[at + len(there) : at + len(there) + 1]} after {at + len(there)}"
            )
            returned += call.size
        at += len(there)
    assert at == len(found), f"line {line}: no one published {found[at]} here"
    return returned


def _same(wanted: Sequence[Content], found: Sequence[Content]) -> Iterator[Content]:
    """As far as both begin alike."""
    for one, other in zip(wanted, found, strict=False):
        if one != other:
            return
        yield one
