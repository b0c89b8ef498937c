"""From the directories to an open journal: recovery, publisher table and index in one walk."""

from __future__ import annotations

from collections.abc import Callable
from logging import Logger

from msgspec import Struct

from zbroker import known_log
from zbroker.bookmarks.index import Index
from zbroker.bookmarks.rebuild import RebuildProgress, batches_of, catch_up
from zbroker.config import log_readers
from zbroker.errors import StorageError
from zbroker.journal.core import JournalCore, JournalSettings, LogEnd, RetentionSettings
from zbroker.journal.end_note import EndNote, GroupEnd, proof
from zbroker.journal.fold import LogFold
from zbroker.journal.locate import Locator
from zbroker.log import owner
from zbroker.log.disk import RealDisk
from zbroker.log.inventory import RecoveryFinding
from zbroker.log.places import SegmentPlaces
from zbroker.log.reader import Cursor, Log
from zbroker.log.recovery import Begin, Recovered, recover
from zbroker.log.writer import Writer
from zbroker.paths import Paths
from zbroker.server.process import Process


class OpenJournal(Struct):
    """The parts of an open journal."""

    core: JournalCore
    writer: Writer
    log: Log
    locator: Locator
    index: Index
    disk: RealDisk
    archive: RealDisk
    findings: list[RecoveryFinding]
    note: EndNote | None = None  # only a start with peers needs it

    def use(self, index: Index) -> None:
        """Another index, which holds the same, takes the place of the one that is used."""
        index.set_generation(self.core.origin.generation)
        self.index = index
        self.locator = Locator(self.log, index, self.core.commit.sessions)
        self.index.forget_before(self.core.commit.log_start)


def open_journal(process: Process, disk: RealDisk, archive: RealDisk) -> OpenJournal:
    """Everything below the core's `persisted` is durable. Raises: StorageError."""
    config, paths = process.config.journal, process.paths
    places = SegmentPlaces(disk, archive, paths.instance)
    owner.check_apart(places)
    owner.check(places)
    index = Index(paths.index, paths.instance, progress=process.progress)
    log = Log(paths.journal, paths.archive)
    index.forget_later_generations(log.end_of)
    fold = LogFold(paths.instance)
    recovered = recover(
        disk,
        paths.instance,
        archive=archive,
        evidence=[index.stamp, *_known(paths)],
        accept_loss=config.accept_tail_loss,
        accept_missing=config.accept_missing,
        on_batch=fold,
        begin=beginning(index, fold, process.progress),
        progress=process.progress,
        segment_bytes=config.segment_size,
    )
    _tell(recovered, index, process.log)
    _claim(places, process.log)
    writer = Writer(
        disk, recovered.tail, segment_bytes=config.segment_size, files=config.files_ahead
    )
    note = EndNote(paths.instance)
    core = _core(process, fold, recovered, writer, note)
    log.refresh()
    locator = Locator(log, index, fold.sessions)
    index.forget_before(recovered.log_start)
    if not core.commit.settings.peers:
        note.forget()
    kept = note if core.commit.settings.peers else None
    return OpenJournal(core, writer, log, locator, index, disk, archive, recovered.findings, kept)


def _known(paths: Paths) -> list[known_log.KnownLog]:
    """What the data directory knows of the log besides its index, which may be deleted."""
    found = (known_log.read(place, paths.instance) for place in (paths.data, paths.queues))
    return [known for known in found if known is not None]


def _claim(places: SegmentPlaces, log: Logger) -> None:
    """Keeps other instances from archiving there. Copying a segment claims it, too, if this cannot:
    the journal also starts on a read-only or full disk."""
    if places.archive is None or not places.archive.exists("."):
        return
    try:
        owner.claim(places)
    except StorageError as error:
        if error.code == "foreign_instance":
            raise
        log.warning("journal.archive_not_claimed: %s; the next archiving tries it again", error)


def beginning(index: Index, fold: LogFold, progress: Callable[[str], None]) -> Begin:
    """Where recovery's walk begins. Before it the index gets what it lacks, loses what was lost.

    Not by that walk: an index needs few of the batches, and the table not all of the log.
    """

    def begin(log: Log, limit: int) -> tuple[Cursor, str]:
        if index.stamp.generation not in (0, *log.generations):
            index.forget_after(0)  # it was made with another copy of this log
        index.set_generation(log.generation)
        if limit < index.end:
            index.forget_after(limit)
        catch_up(index, batches_of(log), limit, report)
        return fold.begin(log, limit)

    def report(at: RebuildProgress) -> None:
        progress(f"making the bookmark index: position {at.position:,} of {at.until:,}")

    return begin


def _core(
    process: Process, fold: LogFold, recovered: Recovered, writer: Writer, note: EndNote
) -> JournalCore:
    config, limits = process.config.journal, process.config.limits
    settings = JournalSettings(
        process.paths.instance, process.incarnation, config.durability,
        config.time == "publisher", names_max=limits.names_per_principal,
        staged_max_bytes=limits.staged_per_principal,
        peers=tuple(one.name for one in process.config.destination),
    )  # fmt: skip
    readers = log_readers(process.config)
    return core_of(
        settings, RetentionSettings(readers, limits.staged_per_principal), fold, recovered, writer,
        note.before,
    )  # fmt: skip


def core_of(
    settings: JournalSettings, retention: RetentionSettings, fold: LogFold, recovered: Recovered,
    writer: Writer, noted: GroupEnd | None = None,
) -> JournalCore:  # fmt: skip
    """The core of a log that was recovered; rigs begin with it, too."""
    end = LogEnd(
        recovered.generation, recovered.next_position, recovered.last_log_time, recovered.log_start,
        writer.serial, fold.state_serial,
        proof(noted, GroupEnd(*recovered.last), GroupEnd(*recovered.before)), fold.opened,
    )  # fmt: skip
    if recovered.leftovers:
        retention = retention._replace(leftovers=writer.oldest - 1)
    return JournalCore(settings, retention, fold.sessions, end)


def _tell(recovered: Recovered, index: Index, log: Logger) -> None:
    for finding in recovered.findings:
        log.warning("%s: %s; %s", finding.code, finding.means, finding.next)
    if index.found:
        log.warning("the bookmark index is rebuilt from the log: %s", index.found)
