"""Asks an instance for what `check` judges, or finds out whether one should answer there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zbroker.cli.check.judging import CRITICAL, UNKNOWN, AdminAnswers, HealthVerdict, Reason
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError


def ask(target: Target) -> AdminAnswers | HealthVerdict:
    """What the instance says, or the verdict where it says nothing.

    Raises: ValueError, TypeError, AttributeError, where something else answers.
    """
    try:
        status = target.ask("/status")
        if status.get("state") == "starting":  # the rooms that know the rest are not there yet
            return AdminAnswers(status, {}, None)
        subscriptions = target.ask("/subscriptions?limit=1")
        return AdminAnswers(status, subscriptions, _disks(target.ask("/journal")))
    except ZBrokerError as error:
        absent = error.code in ("not_found", "not_ready", "internal")
        code = CRITICAL if absent and _should_run(target) else UNKNOWN
        return HealthVerdict((Reason(code, f"{error.code}: {error.reason}", error.hint),))


def _should_run(target: Target) -> bool:
    """True at a URL that was given, and where an instance keeps its log."""
    if target.url:
        return True
    try:
        return target.config().paths(0).identity.exists()
    except (ZBrokerError, OSError):
        return False


def _disks(journal: dict[str, Any]) -> dict[str, float]:
    """Percent used of each disk of the log, as far as they are of this host."""
    found: dict[int, tuple[str, float]] = {}
    for directory in _directories(journal):
        try:
            state = os.statvfs(directory)
            device = Path(directory).stat().st_dev
        except OSError:
            continue  # it was moved, or is on the instance's host
        # what only root may use is neither free nor used
        total = state.f_blocks - (state.f_bfree - state.f_bavail)
        if total > 0:
            found.setdefault(device, (directory, 100 * (1 - state.f_bavail / total)))
    return dict(found.values())


def _directories(journal: dict[str, Any]) -> Iterator[str]:
    for key in ("directory", "archive_directory"):
        if journal.get(key):
            yield str(journal[key])
