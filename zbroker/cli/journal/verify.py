"""`zbroker-admin journal verify`: reads and checks every byte of the log.

Reads the files of both directories past the page cache, also while the instance runs, and changes
nothing. Answer: counts, holes, gaps, damaged places, the verdict. Exit code 0 only if nothing is
damaged and nothing is missing.

    zbroker-admin --data-dir /var/lib/zbroker journal verify
"""

from __future__ import annotations

import sys

import click

from zbroker.cli import progress, show
from zbroker.cli.group import EX_ERROR
from zbroker.cli.journal import opened, verifying
from zbroker.control.target import Target


@click.command()
@show.json_option
@click.pass_obj
def verify(target: Target, json_here: bool) -> None:
    """Read and check every byte; exit code 0 only if nothing is damaged or missing.

    Holes are sequences of a publisher that are missing; gaps are positions that cannot be served;
    damaged are places in the files whose checksums are wrong.

    Example: zbroker-admin --data-dir /var/lib/zbroker journal verify
    """
    paths = opened.find(target)
    with progress.bar() as step:
        report = verifying.verify(paths.journal, step, paths.archive)
    if show.wants_json(target, json_here):
        show.as_json(report.as_dict())
    else:
        click.echo("\n".join(report.lines()))
    if not report.ok:
        sys.exit(EX_ERROR)
