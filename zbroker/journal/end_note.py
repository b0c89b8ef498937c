"""A note of where the log ended last: a start whose log still ends there need ask no peer.

    magic, instance, position, CRC of the group that ends there, CRC of these     32 bytes

It is written after each group, before anybody hears of that: a link may send it before it is
durable. Memory keeps the note when a process is killed, and loses it with a reboot. Between a group
and its note there may be a kill, so the log may have one group more. A note that is further back is
of another time (a release that wrote none, a start without peers), and counts for nothing.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from zbroker import memory_notes
from zbroker.checksums import crc32c

_NOTE: Final = struct.Struct("<8sQQI")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = b"zb-sync\x01"
_BYTES: Final = _NOTE.size + _CRC.size


class GroupEnd(NamedTuple):
    """The position after a group, and its CRC; 0: of the beginning of a segment."""

    position: int
    crc: int


class Proof(Enum):
    """What the note says of the end that a start has found."""

    PROVED = "proved"  # it is the one that there was
    UNKNOWN = "unknown"
    LOST = "lost"  # there was more


def proof(noted: GroupEnd | None, last: GroupEnd, before: GroupEnd) -> Proof:
    """last, before: the newest group of the log that was found, and the one before it."""
    if noted is None:
        return Proof.UNKNOWN
    if noted in (last, before):
        return Proof.PROVED
    return Proof.LOST if noted.position > last.position else Proof.UNKNOWN


class EndNote:
    """The note of one instance. `before`: what the process before this one noted last."""

    def __init__(self, instance: int, directory: Path = memory_notes.SHARED_MEMORY) -> None:
        self._instance = instance
        self._path = memory_notes.place(directory, instance, "synced")
        self._note: memory_notes.MemoryNote | None = None
        self.before = self._read()

    def _read(self) -> GroupEnd | None:
        data = memory_notes.read(self._path, _BYTES)
        if len(data) < _BYTES or _CRC.pack(crc32c(data[: _NOTE.size])) != data[_NOTE.size :]:
            return None
        magic, instance, position, crc = _NOTE.unpack_from(data)
        known = magic == _MAGIC and instance == self._instance
        return GroupEnd(position, crc) if known else None

    def forget(self) -> None:
        """It is not kept up from now on."""
        with suppress(OSError):  # a foreign file is not read, either
            self._path.unlink(missing_ok=True)

    def write(self, end: GroupEnd) -> None:
        """The log ends there. Without memory there is no note: the next start asks."""
        if self._note is None:
            self.forget()
            with suppress(OSError):
                self._note = memory_notes.MemoryNote(self._path, _BYTES, _BYTES)
        if self._note is not None:
            said = _NOTE.pack(_MAGIC, self._instance, *end)
            self._note.memory[:_BYTES] = said + _CRC.pack(crc32c(said))

    def close(self) -> None:
        """The note stays."""
        if self._note is not None:
            self._note.close()
            self._note = None
