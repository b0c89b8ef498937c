"""Checks of running processes: locks, ports, and leftovers of a killed instance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from zbroker import endpoints
from zbroker.cli.doctor.case import RUNNING, SILENT, Case
from zbroker.cli.doctor.finding import Finding, LeftOut
from zbroker.cli.doctor.locks import holder, name_of
from zbroker.config import doors

_EVERYWHERE: Final = frozenset({"*", "0.0.0.0", "[::]", "::"})


def lock(case: Case) -> Iterator[Finding]:
    """Whether somebody has the data directory and does not answer."""
    assert case.paths is not None, "CHECKS says that they are needed"
    if case.instance != SILENT or case.status_error is None:
        return
    if case.status_error.code not in ("not_found", "not_ready"):
        return  # it answers, but not us: see `answer`
    pid = case.lock_pid or 0
    yield Finding(
        "lock",
        f"{name_of(pid)} has {case.paths.data} locked, and no instance answers there",
        "it starts, stops or hangs; no other instance starts on this directory meanwhile",
        f"ps -fp {pid or 'PID'}; wait if it recovers a long log (its log says so), else kill it",
    )


def journal_lock(case: Case) -> Iterator[Finding]:
    """Whether somebody works on the files of the log while no instance runs."""
    assert case.paths is not None, "CHECKS says that they are needed"
    if case.instance in (RUNNING, SILENT):
        return
    pid = holder(case.paths.journal)
    if pid is not None:
        yield Finding(
            "journal_lock",
            f"{name_of(pid)} has the journal directory {case.paths.journal} locked",
            "a tool moves, compresses or removes segments; no instance starts until it ends",
            f"ps -fp {pid or 'PID'}; wait until it has ended",
        )


def stale(case: Case) -> Iterator[Finding]:
    """Whether an instance was killed: it removes what it says of itself when it stops."""
    assert case.paths is not None, "CHECKS says that they are needed"
    running = case.paths.running
    if case.instance in (RUNNING, SILENT) or not running.exists():
        return
    when = f", since {case.running['started']}" if case.running.get("started") else ""
    yield Finding(
        "stale",
        f"the instance on {case.paths.data} was killed (pid {case.running.get('pid', '?')}{when})",
        "nothing acknowledged is lost; clients cannot connect until it is started",
        case.start(),
    )


class ListeningPort(NamedTuple):
    """A process that listens on a port. host: an address; pid: 0 if the system does not say."""

    host: str
    port: int
    pid: int


def ports(case: Case) -> Iterator[Finding]:
    """Whether other processes have the ports of an instance that does not run."""
    assert case.config is not None, "CHECKS says that it is needed"
    if case.instance in (RUNNING, SILENT):
        return
    import psutil

    try:
        found = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        raise LeftOut("this user may not see who listens") from None
    listeners = [
        ListeningPort(one.laddr.ip, one.laddr.port, one.pid or 0)
        for one in found
        if one.status == psutil.CONN_LISTEN
    ]
    yield from taken(doors(case.config), listeners)


def taken(wanted: dict[str, str], listeners: Iterable[ListeningPort]) -> Iterator[Finding]:
    """Doors that cannot be opened, since somebody listens there."""
    for room, endpoint in wanted.items():
        at = endpoints.split(endpoint)
        mine = [one for one in listeners if one.port == at.port and _meet(at.host, one.host)]
        if at.port and mine:
            pid = next((one.pid for one in mine if one.pid), 0)
            yield Finding(
                "ports",
                f"{name_of(pid)} listens on {endpoint}, the door of {room}",
                "the instance does not start; publishers keep what is not acknowledged",
                f"kill {pid}" if pid else f"ss -ltnp 'sport = :{at.port}' names it; stop it",
            )


def _meet(one: str, other: str) -> bool:
    """True if both addresses cannot be listened on at one port."""
    one = "127.0.0.1" if one == "localhost" else one.strip("[]")
    return one == other or one in _EVERYWHERE or other in _EVERYWHERE
