"""Checks of the settings."""

from __future__ import annotations

from collections.abc import Iterator

from zbroker.cli.doctor.case import Case, quoted
from zbroker.cli.doctor.finding import Finding


def config(case: Case) -> Iterator[Finding]:
    """Whether an instance could start with it."""
    error, path = case.config_error, case.target.config_path
    if error is None:
        return
    check = f"zbroker config check -c {quoted(path)}" if path else "zbroker config check"
    yield Finding(
        "config",
        error.reason,
        "an instance does not start with it; one that runs goes on with what it read before",
        f"{error.hint}; then {check}" if error.hint else check,
    )
