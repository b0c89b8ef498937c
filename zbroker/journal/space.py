"""The space on the journal's disk: may publishers go on, and when is it time to warn.

    accepting --a group finds no room--> full --there is room for such a group--> accepting

Publishers are refused `disk_full` before a group of theirs would need a file that there is no space
for (see writer.py); everything else goes on, and so do smaller groups that still find room. Space
is looked for on each beat only, since each attempt allocates; so publishing resumes by itself
within a beat and the time after which publishers try again.
"""

from __future__ import annotations

import os
from logging import Logger
from pathlib import Path
from typing import Final

from zbroker.journal.snapshot_writer import STATE_PART_BYTES
from zbroker.limits import BEAT_MS
from zbroker.log.writer import Writer

WARN_PERCENT: Final = 80  # of the disk: from here on somebody should look
QUIET_PERCENT: Final = 2  # below that the warning may come again
TELL_MS: Final = 60_000  # between two warnings: near the edge each large batch may flip it


class Space:
    """Of one journal. `accepting`: False from a group that was refused until it would find room.

    state_fits: a part of a state snapshot has room; it may use the reserve.
    """

    def __init__(self, writer: Writer, directory: Path, log: Logger) -> None:
        self._writer = writer
        self._directory = directory
        self._log = log
        self._refused_bytes = 0  # of the smallest group that found no room since the last beat
        self._next_ms = 0
        self._told_ms: int | None = None
        self._told = self._warned = False
        self.accepting = True
        self.free_bytes = self.disk_bytes = 0

    @property
    def state_fits(self) -> bool:
        return self.accepting or self.room >= STATE_PART_BYTES

    @property
    def room(self) -> int:
        """Bytes that a group of the broker's own has at most; it may use the reserve."""
        return self._writer.room

    @property
    def used_percent(self) -> int:
        """Of the disk, as df counts: without what is reserved for root."""
        return 100 - 100 * self.free_bytes // self.disk_bytes if self.disk_bytes else 0

    def admit(self, needed_bytes: int, now_ms: int) -> bool:
        """May publishers write a group of that size? Raises: StorageError."""
        if self._writer.has_room(needed_bytes):
            return True
        if now_ms >= self._next_ms and self._writer.secure(needed_bytes):
            return True
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + BEAT_MS
            self._refused_bytes = needed_bytes
            self._refuse(now_ms)
        self._refused_bytes = min(self._refused_bytes, needed_bytes)
        return False

    def beat(self, now_ms: int) -> None:
        """Looks how much there is, and for space if there was none. Raises: StorageError."""
        self._look()
        if not self.accepting and self._writer.secure(self._refused_bytes):
            self.accepting, self._next_ms = True, 0
            if self._told:
                self._told = False
                self._log.info("journal.space_back: there is space again; publishing goes on")

    def _refuse(self, now_ms: int) -> None:
        self.accepting = False
        if self._told_ms is not None and now_ms < self._told_ms + TELL_MS:
            return
        self._told, self._told_ms = True, now_ms
        self._log.warning(
            "journal.disk_full: no space for the next segment in %s; publishers are refused and "
            "keep their messages, reading goes on; free space, publishing resumes by itself",
            self._directory,
        )

    def _look(self) -> None:
        try:
            state = os.statvfs(self._directory)
        except OSError:
            return  # only for people; a disk that is gone is found by the next write
        self.free_bytes = state.f_bavail * state.f_frsize
        used = state.f_blocks - state.f_bfree
        self.disk_bytes = (used + state.f_bavail) * state.f_frsize
        if self.used_percent >= WARN_PERCENT and not self._warned:
            self._warned = True
            self._log.warning(
                "journal.disk_80: the disk of %(directory)s is %(used_percent)d %% full, "
                "%(free_bytes)d bytes are free; %(so_far)s; free space, or let [retention] remove "
                "old segments",
                {
                    "directory": str(self._directory),
                    "used_percent": self.used_percent,
                    "free_bytes": self.free_bytes,
                    "so_far": "nothing is refused yet"
                    if self.accepting
                    else "publishers are refused",
                },
            )
        elif self.used_percent < WARN_PERCENT - QUIET_PERCENT:
            self._warned = False
