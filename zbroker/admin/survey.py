"""What the rules of retention are applied to: segments, readers, disks, and the clock of ages."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from zbroker.admin.alarms import DiskUsage
from zbroker.admin.history import History
from zbroker.admin.journal_link import AdminJournalLink, HoldLeases
from zbroker.admin.retention import Copy, RetentionView, SegmentView, bounded_ages, clock_of_ages
from zbroker.clock import Clock
from zbroker.config import Config
from zbroker.errors import StorageError
from zbroker.limits import U63_MAX
from zbroker.log.format import ParseStop
from zbroker.log.places import SegmentPlace, SegmentPlaces, open_places, settled
from zbroker.log.summaries import Summary, read_summary
from zbroker.paths import Paths
from zbroker.wire import internal as m

QUEUES: Final = "queues"  # the process that needs the log for queues
HOLDERS_NAMED: Final = 3  # in a reason; `journal holders` names all


class Tools(NamedTuple):
    """What the work on segments needs."""

    config: Config
    paths: Paths
    link: AdminJournalLink
    leases: HoldLeases
    catalog: Catalog
    history: History
    clock: Clock
    log: logging.Logger


class Survey:
    """`ages` belongs to one thread, the rest to any."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._ages_ns = self._ages_mono_ms = 0
        self.clock_behind_ms = 0

    def holders(self) -> m.Holders:
        """The readers that the journal knows. Raises: ClientError not_ready."""
        return self._tools.link.ask(m.Holders, m.AskHolders)

    def state(self, holders: m.Holders, now_ns: int = 0) -> RetentionView:
        """Everything but what the worker knows of itself. Raises: StorageError."""
        paths = self._tools.paths
        named = [f"{one.who} ({one.what})" if one.what else one.who for one in holders.holdings]
        return RetentionView(
            self._tools.catalog.segments(),
            now_ns,
            holders.stated,
            disk_of(paths.journal).free_bytes,
            min((one.position for one in holders.holdings), default=U63_MAX),
            tuple(named[:HOLDERS_NAMED]),
            tuple((one.position, one.what) for one in holders.holdings if one.who == QUEUES),
            tuple(holders.silent),
            frozenset(holders.removing),
            elsewhere=not on_one_disk(paths.journal, paths.archive),
        )

    def ages(self, holders: m.Holders) -> int:
        """See RetentionConfig: the wall clock, or the newest message of the log."""
        if self._tools.config.journal.time == "publisher":
            return holders.log_time_ns
        wall_ns, mono_ms = self._tools.clock.wall_ns(), self._tools.clock.mono_ms()
        elapsed_ns = (mono_ms - self._ages_mono_ms) * 1_000_000
        self._ages_ns = clock_of_ages(self._ages_ns, elapsed_ns, wall_ns)
        self._ages_mono_ms = mono_ms
        self.clock_behind_ms = (wall_ns - self._ages_ns) // 1_000_000
        return self._ages_ns

    def disks(self) -> tuple[DiskUsage, ...]:
        """The disk of the journal, and that of the archive if it is another one.

        Raises: StorageError.
        """
        journal, archive = self._tools.paths.journal, self._tools.paths.archive
        if on_one_disk(journal, archive) or not archive.exists():
            return (disk_of(journal),)
        return disk_of(journal), disk_of(archive)


def disk_of(directory: Path) -> DiskUsage:
    """Space on its disk. Raises: StorageError."""
    try:
        state = os.statvfs(directory)
    except OSError as error:
        raise StorageError("disk_error", f"{directory}: {error.strerror}") from None
    unit = state.f_frsize
    # what only root may use is neither free nor used
    total = state.f_blocks - (state.f_bfree - state.f_bavail)
    return DiskUsage(str(directory), state.f_bavail * unit, total * unit)


def on_one_disk(one: Path, other: Path) -> bool:
    """True if what is freed in one directory is free for the other; one may not exist yet."""
    return _device(one) == _device(other)


def _device(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return path.stat().st_dev


class Catalog:
    """The segments of both directories. Thread-safe.

    Headers and summaries are read once per segment and kept; the copies are looked up each time.
    Files are closed after each look: an open one takes space on the disk after it was unlinked.
    """

    def __init__(self, journal: Path, archive: Path) -> None:
        self._journal = journal
        self._archive = archive
        self._lock = threading.Lock()
        self._known: dict[int, SegmentView] = {}  # without copies and ends

    def rows(self) -> list[SegmentView]:
        """Every segment, oldest first. Raises: StorageError."""
        return settled(self._look)

    def _look(self) -> list[SegmentView]:
        with self._lock, closing(open_places(self._journal, self._archive)) as places:
            found = places.by_serial()
            newest = max(found, default=0)
            self._known = {
                serial: self._learned(places, copies[0], is_open=serial == newest)
                for serial, copies in found.items()
            }
            known = list(self._known.values())
        ends = [*(after.first for after in known[1:]), None]
        return [
            one._replace(copies=_copies(found[one.serial]), end=end, is_open=one.serial == newest)
            for one, end in zip(known, ends, strict=True)
        ]

    def segments(self) -> tuple[SegmentView, ...]:
        """The same for the policy: damaged segments have the bounds that newer ones prove."""
        return bounded_ages(self.rows())

    def learn(self, serial: int, summary: Summary | None) -> None:
        """The summary of a sealed segment; None: there can be none."""
        with self._lock:
            known = self._known.get(serial)
            if known is not None:
                self._known[serial] = _summarized(known, summary)

    def _learned(self, places: SegmentPlaces, place: SegmentPlace, *, is_open: bool) -> SegmentView:
        known = self._known.get(place.serial)
        if known is not None and (is_open or known.summarized):
            return known
        header = places.header(place)
        if isinstance(header, ParseStop):
            return SegmentView(place.serial, (), places.size(place))
        first = header.first_position
        if is_open:
            return SegmentView(place.serial, (), place.file_bytes, first=first)
        summary, size = read_summary(places, header), places.size(place)
        made = SegmentView(place.serial, (), size, first=first)
        return made if summary is None else _summarized(made, summary)


def _summarized(view: SegmentView, found: Summary | None) -> SegmentView:
    """None: there can be no summary of it."""
    if found is not None:
        view = view._replace(first_time=found.first_time, last_time=found.last_time)
    return view._replace(summarized=True)


def _copies(places: list[SegmentPlace]) -> tuple[Copy, ...]:
    return tuple(Copy(one.archived, one.packed, one.file_bytes) for one in places)
