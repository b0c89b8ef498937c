"""`zbroker-admin check`: one verdict on an instance, for monitoring.

Asks the running instance (GET /status, /subscriptions, /journal). Exit code 0 ok, 1 warning,
2 critical, 3 unknown: nothing could be found out. An instance that does not answer is critical if
one should run there: at the URL that was given, or on a data directory that an instance made.

    zbroker-admin --data-dir /var/lib/zbroker check --lag-warning 100000 --disk-critical 95
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from zbroker.cli.check import asking, forms
from zbroker.cli.check.judging import (
    UNKNOWN,
    HealthLimits,
    HealthVerdict,
    Reason,
    Thresholds,
    judge,
)
from zbroker.cli.group import AdminCommand
from zbroker.control.target import Target

FORMS: Final = {"nagios": forms.nagios, "json": forms.as_json, "prometheus": forms.prometheus}
_PERCENT: Final = click.FloatRange(0, 100)
_COUNT: Final = click.FloatRange(min=0)


class VerdictCommand(AdminCommand):
    """A command whose exit code is a verdict: wrong usage does not mean a critical instance."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            setattr(error, "exit_code", UNKNOWN)  # noqa: B010 - click has it in the class
            raise


@click.command(cls=VerdictCommand)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMS)),
    default="nagios",
    show_default=True,
    help="nagios: a line with performance data; prometheus: for a textfile collector.",
)
@click.option("--lag-warning", type=_COUNT, help="The largest lag of a subscription, in messages.")
@click.option("--lag-critical", type=_COUNT, help="The same, critical.")
@click.option("--lag-s-warning", type=_COUNT, help="The largest lag, in seconds of log time.")
@click.option("--lag-s-critical", type=_COUNT, help="The same, critical.")
@click.option(
    "--disk-warning",
    type=_PERCENT,
    default=80.0,
    show_default=True,
    help="Percent of a log's disk.",
)
@click.option(
    "--disk-critical", type=_PERCENT, default=90.0, show_default=True, help="The same, critical."
)
@click.option("--sync-ms-warning", type=_COUNT, help="Milliseconds that the last sync may take.")
@click.option("--sync-ms-critical", type=_COUNT, help="The same, critical.")
@click.option("--clients-warning", type=_COUNT, help="Clients that may be logged on.")
@click.option("--clients-critical", type=_COUNT, help="The same, critical.")
@click.option("--warn-alarms", is_flag=True, help="An alarm is a warning, never critical.")
def check(target: Target, /, form: str, warn_alarms: bool, **given: float) -> None:
    """Say in one line whether an instance is well; exit code 0, 1, 2, 3 as Nagios wants it.

    Every bound holds for what is above it. An alarm is a warning; disk_full, damage and
    index_failed are critical.

    Example: zbroker-admin check --lag-warning 100000 --lag-critical 1000000
    """
    bounds = {
        name: Thresholds(given.get(f"{name}_warning"), given.get(f"{name}_critical"))
        for name in HealthLimits._fields
    }
    verdict = _verdict(target, HealthLimits(**bounds), warn_alarms)
    _say(verdict, "json" if target.as_json else form)


def _verdict(target: Target, limits: HealthLimits, warn_alarms: bool) -> HealthVerdict:
    try:
        found = asking.ask(target)
        return found if isinstance(found, HealthVerdict) else judge(found, limits, warn_alarms)
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        # whatever answers there is no admin of an instance
        return HealthVerdict((Reason(UNKNOWN, f"its answer cannot be read: {error}"),))


def _say(verdict: HealthVerdict, form: str) -> None:
    lines: Sequence[str] = FORMS[form](verdict)
    click.echo("\n".join(lines))
    sys.exit(verdict.code)
