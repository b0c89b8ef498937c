"""A note of how far each queue was delivered, in memory that survives the process.

    header   magic, id (16 bytes), instance, generation             64 bytes, zero after it
    slots    hash of name and declaration, position after the highest one sent   16 bytes each

The log knows a horizon, written ahead: messages before it may have been delivered, so after a crash
they are flagged. This note, in a file system that a kill does not touch and a reboot empties, says
how much of that was sent. It can only narrow the horizon. It counts if its id is that in the data
directory, which each start replaces before anything is sent: so a note that is missing, foreign or
older counts for nothing, and neither does one of a process that could not keep it up. A position is
in the note before the message is sent.
"""

from __future__ import annotations

import secrets
import struct
from contextlib import suppress
from hashlib import blake2b
from itertools import takewhile
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from zbroker import durable_files, memory_notes
from zbroker.errors import StorageError
from zbroker.ids import Origin

if TYPE_CHECKING:
    from zbroker.queues.effects import Give, TrackDeliveries

SLOTS_MAX: Final = 60_000  # declarations of queues of one process; the horizon holds for more
_HEAD: Final = struct.Struct("<8s16sQQ")
_SLOTS_AT: Final = 64
_SLOT: Final = struct.Struct("<QQ")
_POSITION: Final = struct.Struct("<Q")
_MAGIC: Final = b"zb-sent\x01"
_BYTES: Final = _SLOTS_AT + SLOTS_MAX * _SLOT.size
_FIRST_BYTES: Final = 4_096  # have memory at first, for 252 declarations; then twice as many

Key = tuple[str, int]  # name and declaration of a queue


class Delivered:
    """The note of one process. `before`: the one of the process before it."""

    def __init__(self, id_file: Path, directory: Path = memory_notes.SHARED_MEMORY) -> None:
        self._id_file, self._directory = id_file, directory
        self._note: memory_notes.MemoryNote | None = None
        self._at: dict[Key, int] = {}  # offsets of positions
        self._highest: dict[Key, int] = {}
        self._before: dict[int, int] = {}

    def open(self, origin: Origin) -> str:
        """Reads the old note and begins a new one. Returns: why there is none, or "".

        Raises: StorageError, if the old note cannot be taken away.
        """
        assert self._note is None, "offsets are those of one note"
        path = memory_notes.place(self._directory, origin.instance, "sent")
        self._before = self._read(path, origin)
        try:
            path.unlink(missing_ok=True)  # it is ours by its name, and counts no more
        except OSError as error:
            reason = f"{path} cannot be removed, and would be believed: {error}"
            raise StorageError("disk_error", reason, "remove it by hand") from None
        try:
            self._make(path, origin, _new_id(self._id_file))
        except OSError as error:
            return str(error)
        return ""

    def before(self, name: str, declaration: int) -> int | None:
        """No message from this position on was sent; None: it is not known."""
        return self._before.get(_hash((name, declaration)))

    def _read(self, path: Path, origin: Origin) -> dict[int, int]:
        try:
            wanted = self._id_file.read_bytes()
        except OSError:
            return {}
        data = memory_notes.read(path, _BYTES)
        if len(data) < _SLOTS_AT or _HEAD.unpack_from(data) != (_MAGIC, wanted, *origin):
            return {}
        slots = _SLOT.iter_unpack(data[_SLOTS_AT : len(data) // _SLOT.size * _SLOT.size])
        return dict(takewhile(itemgetter(0), slots))

    def _make(self, path: Path, origin: Origin, id_: bytes) -> None:
        note = memory_notes.MemoryNote(path, _BYTES, min(_FIRST_BYTES, _BYTES))
        note.memory[: _HEAD.size] = _HEAD.pack(_MAGIC, id_, *origin)
        self._note = note

    def begin(self, effect: TrackDeliveries) -> None:
        """A queue of which nothing from its position on was sent, by whomever."""
        key, at = (effect.queue, effect.declaration), _SLOTS_AT + len(self._at) * _SLOT.size
        if self._note is None or key in self._at or not self._has_memory(at + _SLOT.size):
            return
        self._note.memory[at : at + _SLOT.size] = _SLOT.pack(_hash(key), effect.position)
        self._at[key] = at + _POSITION.size
        self._highest[key] = effect.position

    def _has_memory(self, end: int) -> bool:
        """The note takes more of it if need be. Without, the horizon holds for this queue."""
        assert self._note is not None
        taken = self._note.taken
        if taken < end <= _BYTES:
            with suppress(OSError):
                self._note.take(min(2 * taken, _BYTES))
        return end <= self._note.taken

    def sending(self, give: Give) -> None:
        """Before anything is sent: after a crash it is known to be the second time."""
        key, position = (give.to.queue, give.declaration), give.positions.max()
        at = self._at.get(key)
        if at is None or self._note is None or position < self._highest[key]:
            return
        self._highest[key] = position + 1
        self._note.memory[at : at + _POSITION.size] = _POSITION.pack(position + 1)

    def close(self) -> None:
        """The note stays."""
        if self._note is not None:
            self._note.close()
            self._note = None


def _hash(key: Key) -> int:
    name, declaration = key
    data = blake2b(f"{name}\0{declaration}".encode(), digest_size=8).digest()
    return int.from_bytes(data, "little") or 1


def _new_id(path: Path) -> bytes:
    """Durable when it returns: a note with another id is known to be older."""
    made = secrets.token_bytes(16)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    durable_files.write(path, made)
    return made
