"""Checks of the machine: its disks and limits, who has locks and ports, what a kill left."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from zbroker import endpoints, limits
from zbroker.cli.doctor.case import SILENT, Case, Finding, LeftOut, name_of, quoted
from zbroker.cli.show import size
from zbroker.config import Config, listen_endpoints
from zbroker.endpoints import is_loopback
from zbroker.errors import ZBrokerError
from zbroker.log.disk import lock_holder
from zbroker.paths import Paths

OWN_FILES: Final = 256  # segments, sockets, threads: what a process has open beside its connections
COMPRESS_SEGMENTS: Final = 2  # so many segments must be free, or compressing only fails
KEEPER_PART: Final = 2  # a queue that needs half of the log or more is named
OPEN_FILES_MIN: Final = 1_024  # for clients of this host only
_EVERYWHERE: Final = frozenset({"*", "0.0.0.0", "[::]", "::"})


def disk(case: Case, paths: Paths) -> Iterator[Finding]:
    """Whether the disks of the log have free space."""
    seen = set()
    for path in (paths.journal, paths.archive, paths.data):
        if not path.is_dir() or path.stat().st_dev in seen:
            continue
        seen.add(path.stat().st_dev)
        use = psutil.disk_usage(str(path))
        yield from full(path, use.percent, use.free, case)


def full(path: Path, percent: float, free_bytes: int, case: Case) -> Iterator[Finding]:
    """A disk of which more is used than should be."""
    if percent > case.options.disk_percent:
        yield Finding(
            f"the disk of {path} is {percent:.0f} % full, {size(free_bytes)} are free",
            "when it is full, publishers are refused with disk_full; reading goes on",
            _fix(path, free_bytes, case),
        )


def _fix(path: Path, free_bytes: int, case: Case) -> str:
    """Which command frees space. Compressing writes a new file before the old one goes."""
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
        rows = case.target.ask("/queues")["queues"]
        most = max(rows, key=lambda row: row["bytes"], default=None)
        if most is not None and most["bytes"]:
            return str(most["name"]), int(most["bytes"]), int(case.status["journal"]["bytes"])
    return "", 0, 0


def open_files(case: Case, config: Config) -> Iterator[Finding]:
    """Whether the instance may have as many connections as its config allows."""
    yield from too_few(_limit(case), needed(config))


def needed(config: Config) -> int:
    """How many files a process has to have open at most."""
    listeners = (config.listen.ingest, config.listen.delivery, config.listen.queues)
    open_to_others = not all(map(is_loopback, listeners))
    set_by_hand = config.limits.connections != limits.CONNECTIONS_MAX
    if open_to_others or set_by_hand:
        return config.limits.connections + OWN_FILES
    return OPEN_FILES_MIN


def too_few(limit: int, wanted: int) -> Iterator[Finding]:
    """The system's limit is below what is wanted."""
    if limit < wanted:
        yield Finding(
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


# -- processes --------------------------------------------------------------------------------


def lock(case: Case, paths: Paths) -> Iterator[Finding]:
    """Whether a process has locked the data directory and does not answer."""
    if case.instance != SILENT or case.status_error is None:
        return
    if case.status_error.code not in ("not_found", "not_ready"):
        return  # it answers, but not us: see `answer`
    pid = case.lock_pid or 0
    yield Finding(
        f"{name_of(pid)} has {paths.data} locked, and no instance answers there",
        "it starts, stops or hangs; no other instance starts on this directory meanwhile",
        f"ps -fp {pid or 'PID'}; wait if it recovers a long log (its log says so), else kill it",
    )


def journal_lock(_: Case, paths: Paths) -> Iterator[Finding]:
    """Whether a tool works on the files of the log while no instance runs."""
    pid = lock_holder(paths.journal)
    if pid is not None:
        yield Finding(
            f"{name_of(pid)} has the journal directory {paths.journal} locked",
            "a tool moves, compresses or removes segments; no instance starts until it ends",
            f"ps -fp {pid or 'PID'}; wait until it has ended",
        )


def stale(case: Case, paths: Paths) -> Iterator[Finding]:
    """Whether an instance was killed: it removes what it says of itself when it stops."""
    if not paths.running.exists():
        return
    when = f", since {case.running['started']}" if case.running.get("started") else ""
    yield Finding(
        f"the instance on {paths.data} was killed (pid {case.running.get('pid', '?')}{when})",
        "nothing acknowledged is lost; clients cannot connect until it is started",
        case.start(),
    )


def ports(_: Case, config: Config) -> Iterator[Finding]:
    """Whether other processes have the ports of an instance that does not run."""
    try:
        found = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        raise LeftOut("this user may not see who listens") from None
    listeners = [one for one in found if one.status == psutil.CONN_LISTEN]
    yield from taken(listen_endpoints(config), listeners)


def taken(wanted: dict[str, str], listeners: Iterable[Any]) -> Iterator[Finding]:
    """Listeners that cannot be opened, since one of these connections of psutil has their port."""
    for process, endpoint in wanted.items():
        at = endpoints.split(endpoint)
        mine = [
            one for one in listeners if one.laddr.port == at.port and _meet(at.host, one.laddr.ip)
        ]
        if at.port and mine:
            pid = next((one.pid for one in mine if one.pid), 0)
            yield Finding(
                f"{name_of(pid)} listens on {endpoint}, the listener of {process}",
                "the instance does not start; publishers keep what is not acknowledged",
                f"kill {pid}" if pid else f"ss -ltnp 'sport = :{at.port}' names it; stop it",
            )


def _meet(one: str, other: str) -> bool:
    """True if both addresses cannot be listened on at one port."""
    one = "127.0.0.1" if one == "localhost" else one.strip("[]")
    return one == other or one in _EVERYWHERE or other in _EVERYWHERE
