"""Actions on segments and their reasons: <data>/actions, one JSON object per line, newest last.

An action has a line when it begins and one when it ends; of two lines with the same id the later
one counts. An action without a second line after a restart was interrupted. The file is bounded:
over FILE_MAX_BYTES it is rewritten with the newest half. Each line has its format version, `v`. A
line that cannot be read, or of a newer version, is left out, and a history that cannot be written
costs the history only: no action waits for it or fails by it.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zbroker import durable_files

FILE_MAX_BYTES: Final = 2 << 20  # some ten thousand lines; read whole at each start
ENTRIES_MAX: Final = 1_000  # kept in memory, and in GET /actions
INTERRUPTED: Final = "the admin ended before it did; its leftovers are finished or thrown away now"


class JobProgress(Struct, frozen=True):
    """Bytes for archiving and compressing, segments for a removal."""

    done: int = 0
    total: int = 0


class HistoryEntry(Struct, frozen=True):
    """One action. time: text form, when it was asked for; took_s: of the work, without waiting."""

    id: int
    time: str
    action: str
    by: str
    why: str
    serials: list[int]
    bytes: int = 0
    result: str = "queued"
    reason: str = ""
    took_s: float = 0.0
    progress: JobProgress = JobProgress()

    @property
    def ended(self) -> bool:
        """Nothing happens to it any more."""
        return self.result not in ("queued", "running")


VERSION: Final = 1


class _OfVersion(Struct):
    """The version of a line, which is read first."""

    v: int = VERSION


_VERSION_OF: Final = msgspec.json.Decoder(_OfVersion)
_DECODER: Final = msgspec.json.Decoder(HistoryEntry)
_ENCODER: Final = msgspec.json.Encoder()
_VERSION: Final = b'{"v":%d,' % VERSION


def encode(entry: HistoryEntry) -> bytes:
    """A line of the file."""
    return _VERSION + _ENCODER.encode(entry)[1:] + b"\n"


def decode(line: bytes) -> HistoryEntry | None:
    """The entry in a line of the file; None if it cannot be read."""
    try:
        return _DECODER.decode(line) if _VERSION_OF.decode(line).v <= VERSION else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class History:
    """Thread-safe: the worker writes, those who answer requests read."""

    def __init__(self, path: Path, log: logging.Logger) -> None:
        self._path = path
        self._log = log
        self._lock = threading.Lock()
        self._entries: dict[int, HistoryEntry] = {}
        self._bytes = 0
        self._failed = False
        self._load()

    def _load(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            self._tell(error)
            return
        self._bytes = len(data)
        for line in data.splitlines():
            entry = decode(line)
            if entry is not None:
                self._entries[entry.id] = entry
        self._forget()
        if not data.endswith(b"\n"):
            self._append(b"\n")  # a line that was cut off must not swallow the next one

    def interrupted(self) -> list[HistoryEntry]:
        """The actions that were under way when the last process ended."""
        with self._lock:
            return [entry for entry in self._entries.values() if not entry.ended]

    def new(self, entry: HistoryEntry) -> HistoryEntry:
        """Writes a new action under the next free number."""
        with self._lock:
            entry = replace(entry, id=max(self._entries, default=0) + 1)
            self._write(entry)
            return entry

    def get(self, number: int) -> HistoryEntry | None:
        """The action with this id."""
        with self._lock:
            return self._entries.get(number)

    def newest(self) -> list[HistoryEntry]:
        """All entries, newest first."""
        with self._lock:
            return [self._entries[number] for number in sorted(self._entries, reverse=True)]

    def add(self, entry: HistoryEntry) -> None:
        """Writes what has become of an action."""
        with self._lock:
            self._write(entry)

    def progress(self, number: int, done: int, total: int) -> None:
        """Changes the progress in memory; it is not written."""
        with self._lock:
            entry = self._entries.get(number)
            if entry is not None:
                self._entries[number] = replace(entry, progress=JobProgress(done, total))

    def _write(self, entry: HistoryEntry) -> None:
        self._entries[entry.id] = entry
        self._forget()
        self._append(encode(entry), durable=entry.ended)
        if self._bytes > FILE_MAX_BYTES:
            self._rewrite()

    def _forget(self) -> None:
        ended = [number for number, entry in sorted(self._entries.items()) if entry.ended]
        for number in ended[: max(0, len(self._entries) - ENTRIES_MAX)]:
            del self._entries[number]

    def _append(self, data: bytes, *, durable: bool = False) -> None:
        try:
            durable_files.append(self._path, data, sync=durable)
            self._bytes += len(data)
            self._failed = False
        except OSError as error:
            self._tell(error)

    def _rewrite(self) -> None:
        """The newest entries, at most half of the bound, in a new file in place of the old one."""
        lines: list[bytes] = []
        size = 0
        for number in sorted(self._entries, reverse=True):
            line = encode(self._entries[number])
            size += len(line)
            if size <= FILE_MAX_BYTES // 2 or not self._entries[number].ended:
                lines.append(line)
        try:
            durable_files.replace(self._path, b"".join(reversed(lines)))
        except OSError as error:
            self._tell(error)
        self._bytes = sum(map(len, lines))

    def _tell(self, error: OSError) -> None:
        """Once per failure that lasts; losing a line loses no data."""
        if not self._failed:
            self._log.warning("the history of actions cannot be kept: %s; actions go on", error)
        self._failed = True
