"""`zbroker spark audit`: errors in the sequences of a log, or differences between two.

    zbroker spark audit zbroker-data
    zbroker spark audit zbroker-data --against /mnt/copy --json

Exit code 0 if nothing was found, 1 if something was; see zbroker/spark/jobs/sequences.py.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from zbroker.cli import show
from zbroker.cli.group import EX_ERROR
from zbroker.cli.options import flag_option, json_option
from zbroker.cli.spark import job_options
from zbroker.cli.spark.job_options import LogChoice

SHOWN: Final = 100  # findings in a table; JSON has them all
_COLUMNS: Final = show.columns("kind publisher first last position")


@click.command()
@job_options.source_options
@click.option(
    "--against",
    help="The other log, a URL or a directory: says what one of them lacks or has differently.",
)
@flag_option("--strict", "A jump is a failure, too.")
@job_options.master_option
@json_option
def audit(
    *,
    chosen: LogChoice,
    against: str | None,
    strict: bool,
    master: str,
    json_here: bool,
) -> None:
    """Look for gaps, repeats and wrong order in the sequences of publishers; or compare two logs.

    SOURCE is a URL, a data directory or a journal directory. Findings: gap (issued, but not here),
    repeat, order, damaged (positions); over a URL jump (left out, perhaps never issued). With
    --against: only_here, only_there, different, unlike (too many to look into each).
    """
    with job_options.session("audit", master) as (spark, step):
        from zbroker.spark.jobs import audit as job  # needs pyarrow

        if against is None:
            report = job.audit(spark, chosen.stretch, step, chosen.parts)
        else:
            place, credentials = job_options.place_of(chosen.given, against)
            live = "://" in place
            other = chosen.stretch._replace(
                source=place, journal=None, archive=None, credentials=credentials if live else None
            )
            report = job.compare(spark, chosen.stretch, other, step, chosen.parts)
    rows = [finding.as_dict() for finding in report.findings]
    found = {**report._asdict(), "findings": len(rows)}
    show.answer(json_here, {**found, "findings": rows}, lambda: _tell(found, rows))
    if any(strict or finding.fails for finding in report.findings):
        sys.exit(EX_ERROR)


def _tell(found: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    show.table(_COLUMNS, rows[:SHOWN])
    if len(rows) > SHOWN:
        click.echo(f"and {len(rows) - SHOWN} more: --json shows all")
    show.facts(found)


if __name__ == "__main__":  # the file that `spark-submit` is given
    audit()
