"""`zbroker spark export`: the log as Parquet.

    zbroker spark export zbroker-data --to /mnt/lake/log
    zbroker spark export tcp://127.0.0.1:9101 --journal /mnt/old --to /mnt/lake/log --json

Exit code 0 when everything up to --until is there; 1 after an error: run it again, it goes on.
"""

from __future__ import annotations

from pathlib import Path

import click

from zbroker.cli import show
from zbroker.cli.options import json_option, with_default
from zbroker.cli.spark import job_options
from zbroker.cli.spark.job_options import LogChoice
from zbroker.limits import MIB


@click.command()
@job_options.source_options
@click.option(
    "--to",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The directory, the same one each time; all executors have to see it.",
)
@with_default(
    "--unit-mib",
    64,
    "About so much of the log is written as a whole; a task holds it in memory.",
    click.IntRange(min=1),
)
@job_options.master_option
@json_option
def export(
    *,
    chosen: LogChoice,
    to: Path,
    unit_mib: int,
    master: str,
    json_here: bool,
) -> None:
    """Write the log, or a part of it, as Parquet: date=YYYY-MM-DD/topic=NAME, each message once.

    SOURCE is a URL, a data directory or a journal directory. A later run continues after the
    exported part; after a kill it resumes where it was.
    """
    with job_options.session("export", master) as (spark, step):
        from zbroker.spark.jobs import export as job  # needs pyarrow

        report = job.export(
            spark, chosen.stretch, to, step, since_given=chosen.since_given, parts=chosen.parts,
            unit_bytes=unit_mib * MIB,
        )  # fmt: skip
    show.answer(json_here, report._asdict(), sizes=("payload_bytes",))


if __name__ == "__main__":  # the file that `spark-submit` is given
    export()
