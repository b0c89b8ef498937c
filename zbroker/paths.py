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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

IPC_MAX_BYTES: Final = 100  # of the 107 that the system allows


@dataclass(frozen=True, slots=True)
class Paths:
    """The places of one instance."""

    data: Path
    journal: Path
    archive: Path
    instance: int

    @property
    def identity(self) -> Path:
        return self.data / "instance.json"

    @property
    def lock(self) -> Path:
        return self.data / "lock"

    @property
    def index(self) -> Path:
        return self.data / "index"

    @property
    def queues(self) -> Path:
        return self.data / "queues"

    @property
    def conflicts(self) -> Path:
        return self.data / "conflicts"

    @property
    def actions(self) -> Path:
        return self.data / "actions"

    @property
    def audit(self) -> Path:
        return self.data / "audit"

    @property
    def run(self) -> Path:
        return self.data / "run"

    @property
    def running(self) -> Path:
        """What a running instance says of itself: url, endpoints, pid."""
        return self.run / "instance.json"

    @property
    def token_key(self) -> Path:
        return self.run / "token.key"

    @property
    def disconnects(self) -> Path:
        """Which clients an operator disconnected since the start of the instance."""
        return self.run / "disconnects.json"

    @property
    def admin_token(self) -> Path:
        """What the admin wants to see before it changes anything; readable by the owner only."""
        return self.run / "admin.token"

    @property
    def admin_read_token(self) -> Path:
        """The token that it requires for reading, with security on; likewise."""
        return self.run / "admin-read.token"

    @property
    def sockets_note(self) -> Path:
        """Names the directory of the ipc sockets."""
        return self.run / "sockets"

    @property
    def sockets(self) -> Path:
        """The directory that the note names; without a note, one without listeners."""
        try:
            return Path(self.sockets_note.read_text().rstrip("\n"))
        except (OSError, ValueError):
            name = f"zbroker-{os.getuid()}-{self.instance:016x}"
            return sockets_parent() / name

    def ipc(self, name: str) -> str:
        """The endpoint of one internal socket: journal, marks, live, desk or supervisor."""
        return f"ipc://{self.sockets / name}"


def sockets_parent() -> Path:
    """Where directories of sockets are made; their paths have to stay short."""
    place = Path(tempfile.gettempdir())
    return place if len(os.fsencode(place)) < IPC_MAX_BYTES - 60 else Path("/tmp")
