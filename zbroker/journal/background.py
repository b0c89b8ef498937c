"""What the journal does beside its log: the next segment, the index, conflicts, statistics.

Each runs in a helper thread and ends in the loop's; nothing that is acknowledged waits for any of
them. A failure of the next segment is one of the disk: this process ends.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from zbroker import known_log
from zbroker.config.units import format_micros
from zbroker.ids import Origin
from zbroker.journal import group_builder
from zbroker.journal.conflicts import Conflict, Conflicts
from zbroker.journal.helper_threads import Helpers
from zbroker.journal.index_rebuild import Reindexing
from zbroker.journal.space import Space
from zbroker.journal.startup import Opened
from zbroker.limits import MIB
from zbroker.log.inventory import RecoveryFinding
from zbroker.server.process import Process, Stats

INDEX_COMMIT_BYTES: Final = 32 * MIB  # log bytes per LMDB transaction; what is lost is rebuilt
FILL_PAUSE_S: Final = 0.005  # between steps of filling ahead of time: syncs go first
FINDINGS_TOLD: Final = 10  # of a start, in the statistics; all are in the log
FINDING_CHARS: Final = 200
LATE_TELL_MS: Final = 10_000  # between two warnings of late flushes; all are counted
COUNT_MS: Final = 5_000  # between two looks into the directories


class Chores:
    """Of one open journal. Call `prepare` after each write and `beat` on each beat."""

    def __init__(self, process: Process, opened: Opened, helpers: Helpers) -> None:
        self._process = process
        self._opened = opened
        self._helpers = helpers
        self._filling = self._indexing = self._keeping = False
        self._conflicts = Conflicts(process.paths.conflicts)
        self.reindexing = Reindexing(process, opened, helpers)
        self.space = Space(opened.writer, process.paths.journal, process.log)
        self.flush_late = 0
        self._late_ms: int | None = None
        self._segments = self._bytes = self._oldest = 0
        self._counted_serial = self._count_ms = 0
        self._noted_serial = 0
        self._noting = False

    # -- the next segment ---------------------------------------------------------------------

    def prepare(self) -> None:
        """Has a helper thread fill the next segment with zeros, if it is time."""
        if not self._filling and self._opened.writer.wants_preparing:
            self._filling = True
            self._helpers.submit(self._fill, self._filled)

    def _fill(self) -> None:
        writer = self._opened.writer
        while not self._process.stopping and writer.prepare_step():
            if not writer.behind:
                time.sleep(FILL_PAUSE_S)

    def _filled(self, _: None) -> None:
        self._filling = False

    # -- beats --------------------------------------------------------------------------------

    def beat(self, now_ms: int) -> None:
        """Raises: StorageError."""
        index = self._opened.index
        if not self._indexing:
            self.reindexing.finish()
            index = self._opened.index
        if not self._indexing and (index.forgetting or index.pending_bytes >= INDEX_COMMIT_BYTES):
            self._indexing = True
            self._helpers.submit(partial(index.commit, index.take()), self._indexed)
        self._keep_conflicts()
        self._note()
        self.prepare()
        self.space.beat(now_ms)

    def _indexed(self, _: None) -> None:
        self._indexing = False

    def _note(self) -> None:
        """Keeps beside the log how far it is, at the start and with each new segment."""
        serial = self._opened.writer.serial
        if not self._noting and serial != self._noted_serial:
            self._noting, self._noted_serial = True, serial
            core = self._opened.core
            origin = Origin(core.settings.instance, core.generation)
            work = partial(self._write_note, origin, core.persisted)
            self._helpers.submit(work, self._noted)

    def _noted(self, _: None) -> None:
        self._noting = False

    def _write_note(self, origin: Origin, position: int) -> None:
        """Best effort: a log that vanishes is found out by the index as well, if that is there."""
        try:
            known_log.write(self._process.paths.data, origin, position)
        except OSError as error:
            self._process.log.warning("journal.not_noted: %s; nothing depends on it now", error)

    def _keep_conflicts(self) -> None:
        if self._keeping:
            return
        found = self._opened.core.take_conflicts()
        if found:
            self._keeping = True
            records = [_record(one) for one in found]
            self._helpers.submit(partial(self._conflicts.keep, records), self._kept)

    def _kept(self, _: None) -> None:
        self._keeping = False
        if self._conflicts.failed:
            self._process.log.warning(
                "journal.conflict_not_kept: %s; what came twice with another content is counted "
                "only",
                self._conflicts.failed,
            )

    def late(self, took_s: float) -> None:
        """A write took longer than [journal] flush_interval to become durable."""
        self.flush_late += 1
        now_ms = self._process.clock.mono_ms()
        if self._late_ms is None or now_ms >= self._late_ms + LATE_TELL_MS:
            self._late_ms = now_ms
            self._process.log.warning(
                "journal.flush_late: a write took %(took_ms)d ms to become durable, flush_interval "
                "is %(flush_interval)s; nothing is lost, its ack waited as long; look at the disk "
                "(%(count)d so far)",
                {
                    "took_ms": round(took_s * 1_000),
                    "flush_interval": format_micros(self._process.config.journal.flush_interval),
                    "count": self.flush_late,
                },
            )

    # -- statistics ---------------------------------------------------------------------------

    def stats(self, now_ms: int) -> Stats:
        """What `status` and the alarms know of the log and its disk."""
        opened, core, space = self._opened, self._opened.core, self.space
        if opened.writer.serial != self._counted_serial or now_ms >= self._count_ms:
            self._count(now_ms)
        return {
            "first_position": core.floor,
            "written": core.written,
            "persisted": core.persisted,
            "generation": core.generation,
            "segments": self._segments,
            "bytes": self._bytes,
            "durability": core.settings.durability,
            "oldest": self._oldest,
            "stated": core.state_serial,
            "accepting": int(space.accepting),
            "free_bytes": space.free_bytes,
            "disk_bytes": space.disk_bytes,
            "disk_used_percent": space.used_percent,
            "findings": len(opened.findings),
            "damage": sum(1 for finding in opened.findings if finding.end > finding.first),
            "finding_texts": _told(opened.findings),
            "messages": core.messages,
            "publishers": len(core.sessions),
            "duplicates": core.duplicates,
            "refused": core.refused,
            "conflicts": core.conflicts,
            "conflicts_kept": self._conflicts.kept,
            "flush_late": self.flush_late,
            "unprepared": opened.writer.unprepared,
            "index_failed": opened.index.failed,
        }

    def _count(self, now_ms: int) -> None:
        """Looks into the directories; not on each beat, since a log may have many segments."""
        copies = self._opened.log.places.by_serial()
        self._segments = len(copies)
        self._bytes = sum(place.file_bytes for found in copies.values() for place in found)
        self._oldest = min(copies, default=0)
        self._counted_serial, self._count_ms = self._opened.writer.serial, now_ms + COUNT_MS

    def close(self) -> None:
        """Writes what the index has, and how far the log is; helper threads have ended."""
        core = self._opened.core
        origin = Origin(core.settings.instance, core.generation)
        self._write_note(origin, self._opened.writer.synced)
        index = self._opened.index
        if not self._indexing:
            index.commit(index.take())
        index.close()


def _record(one: group_builder.Conflict) -> Conflict:
    entry = one.entry
    return Conflict(
        time_ns=one.log_time,
        publisher=entry.publisher,
        name=one.name,
        session=entry.session,
        seq=entry.seq,
        count=entry.count,
        crc=entry.crc,
        original_position=one.position,
        topics=entry.topics,
        codec=entry.codec,
        body=one.body,
    )


def _told(findings: list[RecoveryFinding]) -> str:
    texts = [f"{one.code}: {one.means}"[:FINDING_CHARS] for one in findings[:FINDINGS_TOLD]]
    more = len(findings) - len(texts)
    return "; ".join(texts) + (f"; and {more} more, see the log" if more > 0 else "")
