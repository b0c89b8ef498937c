"""What the policy decides by, gathered: segments, holders, disks, and the time that ages go by."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final, NamedTuple

from zbroker.admin.alarms import DiskUsage
from zbroker.admin.catalog import Catalog
from zbroker.admin.history import History
from zbroker.admin.journal_link import AdminJournalLink
from zbroker.admin.leases import HoldLeases
from zbroker.admin.view import RetentionView, clock_of_ages
from zbroker.clock import Clock
from zbroker.config import Config
from zbroker.errors import StorageError
from zbroker.limits import U63_MAX
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
        """Who needs what, by the journal. Raises: ClientError not_ready."""
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
        """Of the journal, and of the archive if it is another one. Raises: StorageError."""
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
