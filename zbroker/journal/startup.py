"""From the directories to an open journal: recovery, publisher table and index in one walk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from logging import Logger

from zbroker import known_log
from zbroker.bookmarks.index import Index
from zbroker.bookmarks.rebuild import RebuildProgress, batches_of, catch_up
from zbroker.errors import StorageError
from zbroker.journal.core import JournalCore, Settings
from zbroker.journal.fold import Fold
from zbroker.journal.locate import Locator
from zbroker.log import owner
from zbroker.log.disk import RealDisk
from zbroker.log.inventory import RecoveryFinding
from zbroker.log.places import SegmentPlace, SegmentPlaces
from zbroker.log.reader import Cursor, Log
from zbroker.log.recovery import Begin, Recovered, recover
from zbroker.log.writer import Writer
from zbroker.paths import Paths
from zbroker.server.process import Process


@dataclass(slots=True)
class Opened:
    """The parts of an open journal. leftovers: files whose removal was interrupted."""

    core: JournalCore
    writer: Writer
    log: Log
    locator: Locator
    index: Index
    disk: RealDisk
    archive: RealDisk
    findings: list[RecoveryFinding]
    leftovers: list[SegmentPlace]

    def use(self, index: Index) -> None:
        """Another index, which holds the same, takes the place of the one that is used."""
        index.set_generation(self.core.generation)
        self.index = index
        self.locator = Locator(self.log, index, self.core.sessions)
        self.forget_removed()

    def forget_removed(self) -> None:
        """What the index knows of removed segments goes with its next commits."""
        self.index.forget_before(self.core.floor)


def open_journal(process: Process, disk: RealDisk, archive: RealDisk) -> Opened:
    """Everything below the core's `persisted` is durable. Raises: StorageError."""
    config, paths = process.config.journal, process.paths
    places = SegmentPlaces(disk, archive, paths.instance)
    owner.check_apart(places)
    owner.check(places)
    index = Index(paths.index, paths.instance, progress=process.progress)
    log = Log(paths.journal, paths.archive)
    index.forget_later_generations(log.end_of)
    fold = Fold(paths.instance)
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
    core = _core(process, fold, recovered)
    core.serial, core.state_serial = writer.serial, fold.state_serial
    if core.state_serial < core.serial != 1:
        core.want_state()  # the last process ended before the one for this segment was complete
    log.refresh()
    locator = Locator(log, index, fold.sessions)
    opened = Opened(
        core, writer, log, locator, index, disk, archive, recovered.findings, recovered.leftovers
    )  # fmt: skip
    opened.forget_removed()
    return opened


def _known(paths: Paths) -> list[known_log.KnownLog]:
    """What the data directory knows of the log besides its index, which may be deleted."""
    found = (known_log.read(place, paths.instance) for place in (paths.data, paths.queues))
    return [known for known in found if known is not None]


def _claim(places: SegmentPlaces, log: Logger) -> None:
    """So that no other instance archives there. Copying a segment claims it, too, if this cannot:
    a read-only or full disk is no reason not to start."""
    if places.archive is None or not places.archive.exists("."):
        return
    try:
        owner.claim(places)
    except StorageError as error:
        if error.code == "foreign_instance":
            raise
        log.warning("journal.archive_not_claimed: %s; the next archiving tries it again", error)


def beginning(index: Index, fold: Fold, progress: Callable[[str], None]) -> Begin:
    """Where recovery's walk begins. Before it the index gets what it lacks, loses what was lost.

    Not by that walk: an index needs few of the batches, and the table not all of the log.
    """

    def begin(log: Log, limit: int) -> tuple[Cursor, str]:
        if index.stamp.generation not in (0, *log.generations):
            index.forget_after(0)  # it was made with another copy of this log
        index.set_generation(log.generation)
        if limit < index.end:
            index.forget_after(limit)
        catch_up(index, batches_of(log), limit, told)
        return fold.begin(log, limit)

    def told(at: RebuildProgress) -> None:
        progress(f"making the bookmark index: position {at.position:,} of {at.until:,}")

    return begin


def _core(process: Process, fold: Fold, recovered: Recovered) -> JournalCore:
    config = process.config.journal
    settings = Settings(
        process.paths.instance, process.incarnation, config.durability,
        config.time == "publisher", names_max=process.config.limits.names_per_principal,
        staged_max_bytes=process.config.limits.staged_per_principal,
    )  # fmt: skip
    core = JournalCore(
        settings,
        fold.sessions,
        recovered.generation,
        recovered.next_position,
        recovered.last_log_time,
    )
    core.floor = recovered.floor
    return core


def _tell(recovered: Recovered, index: Index, log: Logger) -> None:
    for finding in recovered.findings:
        log.warning("%s: %s; %s", finding.code, finding.means, finding.next)
    if index.found:
        log.warning("the bookmark index is made anew from the log: %s", index.found)
