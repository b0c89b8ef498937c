"""Which checks there are, which of them can be made now, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zbroker.cli.doctor import files, keys, live, machine, places, processes, settings
from zbroker.cli.doctor.case import RUNNING, Case, DoctorOptions, gather
from zbroker.cli.doctor.finding import Finding, LeftOut
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError


class Check(NamedTuple):
    """One check. needs: attributes of Case without which it cannot be made."""

    name: str
    run: Callable[[Case], Iterable[Finding]]
    needs: tuple[str, ...] = ()


#: in the order in which one would look: what stops a start first
CHECKS: Final = (
    Check("config", settings.config),
    Check("security_key", keys.security_key, ("config",)),
    Check("access_file", keys.access_file, ("config",)),
    Check("client_key", keys.client_key),
    Check("data_directory", places.data_directory, ("paths",)),
    Check("identity", places.identity, ("paths",)),
    Check("archive_directory", places.archive_directory, ("config", "paths")),
    Check("sockets_directory", places.sockets_directory, ("paths",)),
    Check("secrets", places.secrets, ("paths",)),
    Check("lock", processes.lock, ("paths",)),
    Check("journal_lock", processes.journal_lock, ("paths",)),
    Check("stale", processes.stale, ("paths",)),
    Check("ports", processes.ports, ("config",)),
    Check("segments", files.segments, ("paths",)),
    Check("foreign_segments", files.foreign_segments, ("paths",)),
    Check("damage", files.damage, ("paths",)),
    Check("index", files.index, ("paths",)),
    Check("queue_tables", files.queue_tables, ("paths",)),
    Check("clock", files.clock, ("paths", "config")),
    Check("disk", machine.disk, ("paths",)),
    Check("open_files", machine.open_files, ("config",)),
    Check("answer", live.answer),
    Check("rooms", live.rooms, ("status",)),
    Check("version", live.version, ("status",)),
    Check("alarms", live.alarms, ("status",)),
    Check("rules", live.rules, ("status",)),
    Check("stuck_subscriptions", live.stuck_subscriptions, ("status",)),
    Check("held", live.held, ("status",)),
)
_WHY_NOT: Final = {
    "config": "the settings are not known",
    "paths": "its files are not on this host",
    "status": "the instance does not run",
}


@dataclass(slots=True)
class Examination:
    """The result. left_out: checks that could not be made, and why."""

    instance: str
    data_dir: str
    findings: list[Finding] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def examine(target: Target, options: DoctorOptions) -> Examination:
    """Makes every check that can be made."""
    case = gather(target, options)
    found = Examination(case.instance, str(case.paths.data) if case.paths else "")
    for check in CHECKS:
        missing = [need for need in check.needs if getattr(case, need) is None]
        if missing:
            # if no instance is expected, a stopped one is not a finding
            if missing != ["status"] or found.instance == RUNNING:
                found.left_out[check.name] = _WHY_NOT[missing[0]]
            continue
        _make(check, case, found)
    return found


def _make(check: Check, case: Case, found: Examination) -> None:
    try:
        found.findings += check.run(case)
        found.checked.append(check.name)
    except LeftOut as reason:
        found.left_out[check.name] = str(reason)
    except (ZBrokerError, OSError) as error:
        found.left_out[check.name] = f"it failed: {error}"
