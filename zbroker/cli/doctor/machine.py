"""Checks of the machine: disks and limits."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from zbroker import limits
from zbroker.cli.doctor.case import Case, quoted
from zbroker.cli.doctor.finding import Finding
from zbroker.cli.show import size
from zbroker.config import Config
from zbroker.endpoints import is_loopback
from zbroker.errors import ZBrokerError

OWN_FILES: Final = 256  # segments, sockets, threads: what a room has open beside its connections
COMPRESS_SEGMENTS: Final = 2  # so many segments must be free, or compressing only fails
KEEPER_PART: Final = 2  # a queue that needs half of the log or more is named
OPEN_FILES_MIN: Final = 1_024  # for clients of this host only


def disk(case: Case) -> Iterator[Finding]:
    """Whether the disks of the log have room."""
    assert case.paths is not None, "CHECKS says that they are needed"
    seen = set()
    for path in (case.paths.journal, case.paths.archive, case.paths.data):
        if not path.is_dir() or path.stat().st_dev in seen:
            continue
        seen.add(path.stat().st_dev)
        state = os.statvfs(path)
        # what only root may use is neither free nor used
        total = state.f_blocks - (state.f_bfree - state.f_bavail)
        free = state.f_bavail * state.f_frsize
        used = 100 * (1 - state.f_bavail / total) if total > 0 else 0.0
        yield from full(path, used, free, case)


def full(path: Path, percent: float, free_bytes: int, case: Case) -> Iterator[Finding]:
    """A disk of which more is used than should be."""
    if percent > case.options.disk_percent:
        yield Finding(
            "disk",
            f"the disk of {path} is {percent:.0f} % full, {size(free_bytes)} are free",
            "when it is full, publishers are refused with disk_full; reading goes on",
            _fix(path, free_bytes, case),
        )


def _fix(path: Path, free_bytes: int, case: Case) -> str:
    """Which command makes room. Compressing writes a new file before the old one goes."""
    name, needs, log_bytes = _keeper(case)
    if name and needs * KEEPER_PART >= log_bytes:
        return (
            f"queue {name} needs {size(needs)} of the log, which cannot be removed: "
            + case.command(f"queue explain {quoted(name)}")
            + " says why; queue purge lets go (docs/howto/the-disk-is-full.md)"
        )
    segment = case.config.journal.segment_size if case.config is not None else 0
    roomy = free_bytes > COMPRESS_SEGMENTS * segment
    what = "journal compress --all-sealed" if roomy else "journal remove --before -7d"
    return (
        f"du -xh {quoted(path)} | sort -h | tail; then "
        + case.command(f"{what} --dry-run")
        + ", or [retention] in the config (docs/howto/keep-the-journal-small.md)"
    )


def _keeper(case: Case) -> tuple[str, int, int]:
    """The queue that needs most of the log, how much that is, and how long the log is."""
    if case.status is None:
        return "", 0, 0
    with suppress(ZBrokerError):  # of an old instance, or while the queues process starts
        rows = case.admin.ask("/queues")["queues"]
        most = max(rows, key=lambda row: row["bytes"], default=None)
        if most is not None and most["bytes"]:
            return str(most["name"]), int(most["bytes"]), int(case.status["journal"]["bytes"])
    return "", 0, 0


def open_files(case: Case) -> Iterator[Finding]:
    """Whether the instance may have as many connections as its config allows."""
    assert case.config is not None, "CHECKS says that it is needed"
    yield from too_few(_limit(case), needed(case.config))


def needed(config: Config) -> int:
    """How many files a room has to have open at most."""
    doors = (config.listen.ingest, config.listen.delivery, config.listen.queues)
    open_to_others = not all(is_loopback(door) for door in doors)
    set_by_hand = config.limits.connections != limits.CONNECTIONS_MAX
    if open_to_others or set_by_hand:
        return config.limits.connections + OWN_FILES
    return OPEN_FILES_MIN


def too_few(limit: int, wanted: int) -> Iterator[Finding]:
    """The system's limit is below what is wanted."""
    if limit < wanted:
        yield Finding(
            "open_files",
            f"a process may have {limit} files open, limits.connections needs {wanted}",
            "nothing is lost; fewer clients can connect than limits.connections says",
            f"ulimit -n {wanted} before the start, LimitNOFILE={wanted} in the systemd unit, or "
            "lower limits.connections",
        )


def _limit(case: Case) -> int:
    """The limit of the instance, if it runs here, else that of this user."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if case.lock_pid:
        with suppress(OSError):  # of another user: this one's is the best guess
            soft, _ = resource.prlimit(case.lock_pid, resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 62
