"""The log as the journal's turn writes it: space, groups, syncs; the loop and all rigs use this.

A sync is done at once, or in a helper thread as long as syncs are slow: then the turn goes on
receiving, and Synced comes later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from zbroker.config.units import format_micros
from zbroker.engine import effects as e
from zbroker.engine.events import Synced
from zbroker.journal import effects as je
from zbroker.journal.events import Reserved, SpaceFound, Written
from zbroker.journal.helper_threads import Helpers
from zbroker.journal.space import Space
from zbroker.log.writer import Writer
from zbroker.server.process import Process, Stats

SLOW_SYNC_S: Final = 0.02  # from here on a helper thread syncs, until syncs are fast again
LATE_TELL_MS: Final = 10_000  # between two warnings of late flushes; all are counted


class LogPort:
    """Performs what the core decides about the log. `performers`: by type of effect."""

    def __init__(
        self, writer: Writer, space: Space, now_ms: Callable[[], int],
        written: Callable[[], object] = lambda: None,
    ) -> None:  # fmt: skip
        """written: called after each group, such as to prepare the next segment."""
        self.writer, self.space = writer, space
        self._now_ms, self._after_write = now_ms, written
        self.performers: dict[type, Callable[[Any], Any]] = {
            je.Reserve: self.reserve,
            je.LookForSpace: self.look_for_space,
            je.WriteGroup: self.write,
            e.Sync: self.sync,
            je.KeepFrom: self.keep_from,
        }

    def reserve(self, effect: je.Reserve) -> Reserved:
        accepting = self.space.admit(effect.bytes, self._now_ms())
        return Reserved(accepting, self.space.state_fits, self.space.room)

    def look_for_space(self, _effect: je.LookForSpace) -> SpaceFound:
        self.space.beat(self._now_ms())
        return SpaceFound(self.space.accepting, self.space.state_fits)

    def write(self, effect: je.WriteGroup) -> Written:
        self.writer.write(effect.batches, effect.log_time)
        self._after_write()
        return Written(self.writer.serial)

    def sync(self, _effect: e.Sync) -> Synced | None:
        """Makes what was written durable."""
        return Synced(self.writer.sync())

    def keep_from(self, effect: je.KeepFrom) -> None:
        self.writer.keep_from(effect.oldest)


class TimedLogPort(LogPort):
    """The same for a disk that may be slow: measures, warns, and lets a helper thread sync."""

    def __init__(
        self, process: Process, writer: Writer, helpers: Helpers, written: Callable[[], object]
    ) -> None:
        space = Space(writer, process.paths.journal, process.log)
        super().__init__(writer, space, process.clock.mono_ms, written)
        self._helpers, self._log = helpers, process.log
        self._flush_us = process.config.journal.flush_interval  # a write is durable within it
        self._written_s = self.sync_s = 0.0
        self.flush_late = 0
        self._told_ms: int | None = None

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
        if self._told_ms is None or now_ms >= self._told_ms + LATE_TELL_MS:
            self._told_ms = now_ms
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
