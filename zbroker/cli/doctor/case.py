"""What all checks of the doctor share: what they know of an instance, and what they find."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from zbroker.cli import progress
from zbroker.config import Config
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError
from zbroker.log.disk import lock_holder
from zbroker.paths import Paths

RUNNING: Final = "running"
STOPPED: Final = "stopped"
SILENT: Final = "silent"  # its lock is held, and its admin does not answer
ABSENT: Final = "absent"  # none was ever started there


class Finding(NamedTuple):
    """A fault. means: for the data and those who use it. fix: a command. check: which found it."""

    what: str
    means: str
    fix: str
    check: str = ""  # the one that runs, if it says nothing


class LeftOut(Exception):
    """A check that could not be made, and why."""


class DoctorOptions(NamedTuple):
    """disk_percent: that may be used. full: read a log of any length."""

    disk_percent: float = 80.0
    full: bool = False
    step: progress.Step = progress.silent


@dataclass(slots=True)
class Case:
    """Facts that are gathered once. What could not be had is None; `*_error` says why."""

    target: Target
    options: DoctorOptions
    config: Config | None = None
    config_error: ZBrokerError | None = None
    paths: Paths | None = None  # of this host
    status: Mapping[str, Any] | None = None
    status_error: ZBrokerError | None = None
    running: Mapping[str, Any] = field(default_factory=dict)  # run/instance.json
    lock_pid: int | None = None  # the process that has locked the data directory; 0: unknown

    @property
    def instance(self) -> str:
        """Running, stopped, silent or absent."""
        if self.status is not None:
            return RUNNING
        if self.lock_pid is not None:
            return SILENT
        there = self.paths is not None and self.paths.identity.exists()
        return STOPPED if there or self.target.url else ABSENT

    def command(self, text: str) -> str:
        """A command of zbroker-admin for this instance."""
        return f"zbroker-admin {self._place()} {text}".replace("  ", " ")

    def start(self, more: str = "") -> str:
        """The command that starts it."""
        return f"zbroker start {self._place()} {more}".replace("  ", " ").strip()

    def _place(self) -> str:
        target = self.target
        given = {"--url": target.url, "-c": target.config_path, "--data-dir": target.data_dir}
        return " ".join(f"{flag} {quoted(value)}" for flag, value in given.items() if value)


def quoted(path: object) -> str:
    """As a shell wants it."""
    return shlex.quote(str(path))


def gather(target: Target, options: DoctorOptions) -> Case:
    """Everything that more than one check wants to know."""
    case = Case(target, options)
    if not target.url:
        try:
            case.config = target.config()
            case.paths = case.config.paths(0)
        except ZBrokerError as error:
            case.config_error = error
            return case
    try:
        admin = target.admin() if target.url else target.running()
        if admin is None:
            raise ZBrokerError("not_found", "no instance runs there")
        case.status = admin.ask("/status")
        if target.url:
            case.paths = target.paths()
    except ZBrokerError as error:
        case.status_error = error
    if case.paths is not None:
        case.paths = replace(case.paths, instance=_instance(case.paths.identity))
        case.running = _document(case.paths.running)
        case.lock_pid = lock_holder(case.paths.lock)
    return case


def _document(path: Path) -> Mapping[str, Any]:
    """The content of a JSON file; empty if it cannot be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _instance(path: Path) -> int:
    """Its id; 0 if it cannot be read, which is a finding of its own."""
    try:
        return int(str(_document(path).get("instance", "0")), 16)
    except ValueError:
        return 0


def name_of(pid: int) -> str:
    """A process for people: its number and command."""
    if not pid:
        return "another process"
    try:
        command = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({command}{', this one' if pid == os.getpid() else ''})"
