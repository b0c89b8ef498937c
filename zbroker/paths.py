"""Where an instance keeps what: one data directory, and a short one for its ipc sockets.

    <data>/instance.json     the instance id, made once
    <data>/journal.json      how far the log was, at least
    <data>/lock              flock of the supervisor
    <data>/journal/          segments, acked-through note, flock of the journal process
    <data>/archive/          archived segments
    <data>/conflicts         what came twice with another content, bounded
    <data>/actions           what was done to segments, and why, bounded
    <data>/audit             who changed what over HTTP, and who was refused, bounded
    <data>/index/            LMDB: may be deleted at any time
    <data>/queues/           LMDB, state of queues: may be deleted at any time, the log has it, too
    <data>/run/              instance.json of the running instance, keys of tokens, log
    <data>/run/sockets       where its ipc sockets are

ipc paths longer than 107 bytes do not bind, so sockets are in the system's directory for temporary
files, in a 0700 directory that each start makes: its name cannot be guessed.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from msgspec import Struct

IPC_MAX_BYTES: Final = 100  # of the 107 that the system allows


class _DataPath:
    """A path in the data directory of the instance whose Paths it is read from."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __get__(self, paths: Paths, _kind: type[Paths]) -> Path:
        return paths.data.joinpath(*self._parts)


class Paths(Struct, frozen=True):
    """The places of one instance. known_sockets: where its sockets are, without asking a file."""

    data: Path
    journal: Path
    archive: Path
    instance: int
    known_sockets: Path | None = None

    identity = _DataPath("instance.json")
    lock = _DataPath("lock")
    index = _DataPath("index")
    queues = _DataPath("queues")
    conflicts = _DataPath("conflicts")
    actions = _DataPath("actions")
    audit = _DataPath("audit")
    run = _DataPath("run")
    running = _DataPath("run", "instance.json")  # what a running instance says of itself
    token_key = _DataPath("run", "token.key")
    disconnects = _DataPath("run", "disconnects.json")  # by operators, since the start
    admin_token = _DataPath("run", "admin.token")  # required for changes; only its owner reads it
    admin_read_token = _DataPath("run", "admin-read.token")  # for reading, with security on
    sockets_note = _DataPath("run", "sockets")  # names the directory of the ipc sockets

    @property
    def sockets(self) -> Path:
        """The directory that the note names; without a note, one without listeners."""
        if self.known_sockets is not None:
            return self.known_sockets
        try:
            return Path(self.sockets_note.read_text().rstrip("\n"))
        except (OSError, ValueError):
            return sockets_parent() / f"zbroker-{os.getuid()}-{self.instance:016x}"

    def ipc(self, name: str) -> str:
        """The endpoint of an internal socket: `journal`, `marks`, `live`, `desk`, `supervisor`."""
        return f"ipc://{self.sockets / name}"


def sockets_parent() -> Path:
    """Where directories of sockets are made; their paths have to stay short."""
    place = Path(tempfile.gettempdir())
    return place if len(os.fsencode(place)) < IPC_MAX_BYTES - 60 else Path("/tmp")
