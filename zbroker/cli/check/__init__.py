"""`zbroker-admin check`: one verdict on an instance, for monitoring.

Asks the running instance (GET /status, /subscriptions, /journal). Exit code 0 ok, 1 warning,
2 critical, 3 unknown: nothing could be found out. An instance that does not answer is critical if
one should run there: at the URL that was given, or on a data directory that an instance made.

    zbroker-admin --data-dir /var/lib/zbroker check --lag-warning 100000 --disk-critical 95
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from zbroker.cli.check.verdict import (
    CRITICAL,
    FORMS,
    UNKNOWN,
    AdminAnswers,
    HealthLimits,
    HealthVerdict,
    Reason,
    Thresholds,
    judge,
)
from zbroker.cli.group import AdminCommand
from zbroker.cli.options import F, flag_option, with_default
from zbroker.control.target import Target
from zbroker.errors import ZBrokerError

_PERCENT: Final = click.FloatRange(0, 100)
_COUNT: Final = click.FloatRange(min=0)


class VerdictCommand(AdminCommand):
    """A command whose exit code is a verdict: wrong usage does not mean a critical instance."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:  # noqa: ANN401 - click's
        try:
            return super().make_context(*args, **kwargs)
        except click.UsageError as error:
            setattr(error, "exit_code", UNKNOWN)  # noqa: B010 - click has it in the class
            raise


def _bounds(
    name: str, what: str, kind: click.FloatRange = _COUNT, defaults: tuple[Any, Any] = (None, None)
) -> Callable[[F], F]:
    """`--NAME-warning` and `--NAME-critical`."""
    warning = with_default(f"--{name}-warning", defaults[0], what, kind)
    critical = with_default(f"--{name}-critical", defaults[1], "The same, critical.", kind)
    return lambda function: warning(critical(function))


@click.command(cls=VerdictCommand)
@with_default(
    "--format",
    "nagios",
    "nagios: a line with performance data; prometheus: for a textfile collector.",
    click.Choice(list(FORMS)),
    "form",
)
@_bounds("lag", "The largest lag of a subscription, in messages.")
@_bounds("lag-s", "The largest lag, in seconds of log time.")
@_bounds("disk", "Percent of a log's disk.", _PERCENT, (80.0, 90.0))
@_bounds("sync-ms", "Milliseconds that the last sync may take.")
@_bounds("clients", "Clients that may be logged on.")
@_bounds("replication-lag", "The largest lag of a destination, in positions of the log.")
@flag_option("--warn-alarms", "An alarm is a warning, never critical.")
def check(target: Target, /, form: str, warn_alarms: bool, **given: float) -> None:
    """Say in one line whether an instance is well; exit code 0, 1, 2, 3 as Nagios wants it.

    Every bound holds for what is above it. An alarm is a warning; disk_full, damage, index_failed,
    access_file and sync_unreachable are critical.

    Example: zbroker-admin check --lag-warning 100000 --lag-critical 1000000
    """
    bounds = {
        name: Thresholds(given.get(f"{name}_warning"), given.get(f"{name}_critical"))
        for name in HealthLimits._fields
    }
    try:
        found = ask(target)
        if isinstance(found, AdminAnswers):
            found = judge(found, HealthLimits(**bounds), warn_alarms)
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        # whatever answers there is not the admin of an instance
        found = HealthVerdict((Reason(UNKNOWN, f"its answer cannot be read: {error}"),))
    click.echo("\n".join(FORMS["json" if target.as_json else form](found)))
    sys.exit(found.code)


def ask(target: Target) -> AdminAnswers | HealthVerdict:
    """What the instance says, or the verdict where it says nothing.

    Raises: ValueError, TypeError, AttributeError, where something else answers.
    """
    try:
        status = target.ask("/status")
        if status.get("state") == "starting":  # what knows the rest is not there yet
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
    import psutil

    found: dict[int, tuple[str, float]] = {}
    for key in ("directory", "archive_directory"):
        directory = str(journal.get(key) or "")
        try:
            device, used = Path(directory).stat().st_dev, psutil.disk_usage(directory).percent
        except OSError:
            continue  # it was moved, or is on the instance's host
        found.setdefault(device, (directory, used))
    return dict(found.values())
