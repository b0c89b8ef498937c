"""The log as the journal's turn writes it: space, groups, syncs; the loop and all rigs use this.

A sync is done at once, or in a helper thread as long as syncs are slow: then the turn goes on
receiving, and Synced comes later.

    accepting --a group finds no space--> full --there is space for such a group--> accepting

Publishers are refused `disk_full` before a group of theirs would need a file that does not fit on
the disk (see writer.py); all else goes on, and so do smaller groups that still find space. Each
look for space allocates, so only a beat looks; publishing resumes within a beat and the time after
which publishers try again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from logging import Logger
from pathlib import Path
from typing import Any, Final

from zbroker.config.units import format_micros
from zbroker.engine import effects as e
from zbroker.engine.events import Synced
from zbroker.errors import StorageError
from zbroker.journal import effects as je
from zbroker.journal.end_note import EndNote, GroupEnd
from zbroker.journal.events import GenerationBegun, Reserved, SpaceFound, Written
from zbroker.journal.helper_threads import Helpers
from zbroker.journal.snapshot import STATE_PART_BYTES
from zbroker.limits import BEAT_MS
from zbroker.log.writer import Writer
from zbroker.server.process import Process, Stats

SLOW_SYNC_S: Final = 0.02  # from here on a helper thread syncs, until syncs are fast again
LATE_TELL_MS: Final = 10_000  # between two warnings of late flushes; all are counted
WARN_PERCENT: Final = 80  # of the disk: from here on somebody should look
QUIET_PERCENT: Final = 2  # below that the warning may come again
TELL_MS: Final = 60_000  # between two warnings: near the edge each large batch may flip it


class LogPort:
    """Performs what the core decides about the log. `performers`: by type of effect."""

    def __init__(self, writer: Writer, space: Space, now_ms: Callable[[], int]) -> None:
        self.writer, self.space, self._now_ms = writer, space, now_ms
        self.note: EndNote | None = None
        self.performers: dict[type, Callable[[Any], Any]] = {
            je.Reserve: self.reserve,
            je.LookForSpace: self.look_for_space,
            je.WriteGroup: self.write,
            e.Sync: self.sync,
            je.KeepFrom: self.keep_from,
            je.BeginGeneration: self.begin_generation,
        }

    def reserve(self, effect: je.Reserve) -> Reserved:
        accepting = self.space.admit(effect.bytes, self._now_ms())
        return Reserved(accepting, self.space.state_fits, self.space.left_bytes)

    def look_for_space(self, _effect: je.LookForSpace) -> SpaceFound:
        self.space.beat(self._now_ms())
        return SpaceFound(self.space.accepting, self.space.state_fits)

    def write(self, effect: je.WriteGroup) -> Written:
        self.writer.write(effect.batches, effect.log_time)
        if self.note is not None:  # before anybody hears of it: it may be sent before it is durable
            self.note.write(GroupEnd(self.writer.position, self.writer.group_crc))
        return Written(self.writer.serial)

    def sync(self, _effect: e.Sync) -> Synced | None:
        """Makes what was written durable."""
        return Synced(self.writer.sync())

    def keep_from(self, effect: je.KeepFrom) -> None:
        self.writer.keep_from(effect.oldest)

    def begin_generation(self, effect: je.BeginGeneration) -> GenerationBegun:
        try:
            self.writer.begin_generation(effect.generation)
        except StorageError as error:
            if error.code != "disk_full":
                raise
            return GenerationBegun(0)
        if self.note is not None:
            self.note.write(GroupEnd(self.writer.synced, self.writer.group_crc))
        return GenerationBegun(self.writer.serial)


class TimedLogPort(LogPort):
    """The same for a disk that may be slow: measures, warns, and lets a helper thread sync."""

    def __init__(self, process: Process, writer: Writer, helpers: Helpers) -> None:
        space = Space(writer, process.paths.journal, process.log)
        super().__init__(writer, space, process.clock.mono_ms)
        self._helpers, self._log = helpers, process.log
        self._flush_us = process.config.journal.flush_interval  # a write is durable within it
        self._written_s = self.sync_s = 0.0
        self.flush_late = 0
        self._late_logged_ms: int | None = None

    def write(self, effect: je.WriteGroup) -> Written:
        self._written_s = time.perf_counter()
        return super().write(effect)

    def sync(self, effect: e.Sync) -> Synced | None:
        """Answers later if the last one was slow."""
        if self.sync_s > SLOW_SYNC_S:
            self._helpers.submit(self._timed, self._durable)
            return None
        return self._durable(self._timed())

    def _timed(self) -> int:
        begun = time.perf_counter()
        position = self.writer.sync()
        self.sync_s = time.perf_counter() - begun
        return position

    def _durable(self, position: int) -> Synced:
        took_s = time.perf_counter() - self._written_s
        if took_s * 1e6 > self._flush_us:
            self.late(took_s)
        return Synced(position)

    def late(self, took_s: float) -> None:
        """A write took longer than [journal] flush_interval to become durable."""
        self.flush_late += 1
        now_ms = self._now_ms()
        if self._late_logged_ms is None or now_ms >= self._late_logged_ms + LATE_TELL_MS:
            self._late_logged_ms = now_ms
            self._log.warning(
                "journal.flush_late: a write took %(took_ms)d ms to become durable, flush_interval "
                "is %(flush_interval)s; nothing is lost, its ack waited as long; look at the disk "
                "(%(count)d so far)",
                {
                    "took_ms": round(took_s * 1_000),
                    "flush_interval": format_micros(self._flush_us),
                    "count": self.flush_late,
                },
            )

    def stats(self) -> Stats:
        """What `status` shows of the disk."""
        space = self.space
        return {
            "accepting": int(space.accepting),
            "free_bytes": space.free_bytes,
            "disk_bytes": space.disk_bytes,
            "disk_used_percent": space.used_percent,
            "flush_late": self.flush_late,
            "unprepared": self.writer.unprepared,
            "sync_ms": round(self.sync_s * 1_000, 3),
        }


class Space:
    """The space of one journal.

    accepting: False from a group that was refused until it would find space.
    state_fits: a part of a state snapshot has space; it may use the reserve.
    """

    def __init__(self, writer: Writer, directory: Path, log: Logger) -> None:
        self._writer = writer
        self._directory = directory
        self._log = log
        self._refused_bytes = 0  # of the smallest group that found no space since the last beat
        self._next_ms = 0
        self._refusal_logged_ms: int | None = None
        self._refusal_logged = self._warned = False
        self.accepting = True
        self.free_bytes = self.disk_bytes = 0

    @property
    def state_fits(self) -> bool:
        return self.accepting or self.left_bytes >= STATE_PART_BYTES

    @property
    def left_bytes(self) -> int:
        """Bytes that a group of the broker's own has at most; it may use the reserve."""
        return self._writer.left_bytes

    @property
    def used_percent(self) -> int:
        """Percent of the disk, as df counts: without the bytes reserved for root."""
        return 100 - 100 * self.free_bytes // self.disk_bytes if self.disk_bytes else 0

    def admit(self, needed_bytes: int, now_ms: int) -> bool:
        """May publishers write a group of that size? Raises: StorageError."""
        if self._writer.has_space(needed_bytes):
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
            if self._refusal_logged:
                self._refusal_logged = False
                self._log.info("journal.space_back: there is space again; publishing goes on")

    def _refuse(self, now_ms: int) -> None:
        self.accepting = False
        logged_ms = self._refusal_logged_ms
        if logged_ms is not None and now_ms < logged_ms + TELL_MS:
            return
        self._refusal_logged, self._refusal_logged_ms = True, now_ms
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
