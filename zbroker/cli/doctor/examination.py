"""Which checks there are, which of them can be made now, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zbroker.cli.doctor import files, live, machine, settings
from zbroker.cli.doctor.case import RUNNING, SILENT, Case, DoctorOptions, Finding, LeftOut, gather
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError


class Check(NamedTuple):
    """One check.

    needs: attributes of Case without which it cannot be made; it gets them. at_rest: it is about an
    instance that does not run, and finds nothing in one that does.
    """

    name: str
    run: Callable[..., Iterable[Finding]]
    needs: tuple[str, ...] = ()
    at_rest: bool = False


#: in the order in which one would look: what stops a start first
CHECKS: Final = (
    Check("config", settings.settings),
    Check("security_key", settings.security_key, ("config",)),
    Check("access_file", settings.access_file, ("config",)),
    Check("client_key", settings.client_key),
    Check("data_directory", files.data_directory, ("paths",)),
    Check("identity", files.identity, ("paths",)),
    Check("archive_directory", files.archive_directory, ("paths", "config")),
    Check("sockets_directory", files.sockets_directory, ("paths",)),
    Check("secrets", files.secrets, ("paths",)),
    Check("lock", machine.lock, ("paths",)),
    Check("journal_lock", machine.journal_lock, ("paths",), at_rest=True),
    Check("stale", machine.stale, ("paths",), at_rest=True),
    Check("ports", machine.ports, ("config",), at_rest=True),
    Check("segments", files.segments, ("paths",)),
    Check("foreign_segments", files.foreign_segments, ("paths",)),
    Check("damage", files.damage, ("paths",)),
    Check("index", files.index, ("paths",), at_rest=True),
    Check("queue_tables", files.queue_tables, ("paths",), at_rest=True),
    Check("clock", files.clock, ("paths", "config")),
    Check("disk", machine.disk, ("paths",)),
    Check("open_files", machine.open_files, ("config",)),
    Check("answer", live.answer),
    Check("rooms", live.processes, ("status",)),
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
        if not missing:
            _make(check, case, found)
        # if no instance is expected, a stopped one is not a finding
        elif missing != ["status"] or found.instance == RUNNING:
            found.left_out[check.name] = _WHY_NOT[missing[0]]
    return found


def _make(check: Check, case: Case, found: Examination) -> None:
    known = (getattr(case, need) for need in check.needs)
    idle = check.at_rest and case.instance in (RUNNING, SILENT)
    try:
        for finding in () if idle else check.run(case, *known):
            found.findings.append(finding._replace(check=finding.check or check.name))
        found.checked.append(check.name)
    except LeftOut as reason:
        found.left_out[check.name] = str(reason)
    except (ZBrokerError, OSError) as error:
        found.left_out[check.name] = f"it failed: {error}"
