"""`zbroker-admin doctor`: looks for what is wrong, and says what to do about it.

Works with and without a running instance: on the config, the files, the machine, and what the
instance says of itself. Changes nothing. Exit code 0 if nothing was found, 1 if something was.

    zbroker-admin -c /etc/zbroker.toml doctor
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from zbroker.cli import progress, show
from zbroker.cli.doctor.case import Finding
from zbroker.cli.group import EX_ERROR, AdminCommand
from zbroker.cli.options import flag_option, with_default
from zbroker.control.target import Target

if TYPE_CHECKING:
    from zbroker.cli.doctor.examination import Examination


@click.command(cls=AdminCommand)
@flag_option("--full", "Read every byte of the log, however long it is.")
@with_default(
    "--disk-warning", 80.0, "Percent of a disk that may be used.", click.FloatRange(0, 100)
)
def doctor(target: Target, full: bool, disk_warning: float) -> None:
    """Find out what is wrong, and which command mends it; exit code 1 if something is.

    With credentials it also looks whether the broker knows your key. A log of more than 1 GiB is
    read with --full only.

    Example: zbroker-admin -c /etc/zbroker.toml doctor
    """
    from zbroker.cli.doctor.case import DoctorOptions  # it needs half of the package
    from zbroker.cli.doctor.examination import examine

    with progress.bar() as step:
        found = examine(target, DoctorOptions(disk_warning, full, step))
    show.answer(target.as_json, document(found), lambda: _tell(found))
    if found.findings:
        sys.exit(EX_ERROR)


def document(found: Examination) -> dict[str, Any]:
    """With stable keys, for JSON."""
    return {
        "instance": found.instance,
        "data_dir": found.data_dir,
        "findings": [{"check": one.check, **one._asdict()} for one in found.findings],
        "checked": found.checked,
        "not_checked": [{"check": name, "why": why} for name, why in found.left_out.items()],
    }


def _tell(found: Examination) -> None:
    for text in lines(found.findings):
        click.echo(text)
    if not found.findings:
        where = f" on {found.data_dir}" if found.data_dir else ""
        click.echo(
            f"nothing is wrong: {len(found.checked)} checks; instance {found.instance}{where}"
        )
    for why in dict.fromkeys(found.left_out.values()):
        names = ", ".join(name for name, reason in found.left_out.items() if reason == why)
        show.warn(f"not checked: {names}: {why}")


def lines(findings: Sequence[Finding]) -> list[str]:
    """A finding as three lines."""
    return [
        text
        for one in findings
        for text in (f"{one.check}: {one.what}", f"  means: {one.means}", f"  do: {one.fix}")
    ]
