"""`zbroker spark stats`: the content of a log, by topic and hour, and the outcome of queues'
messages.

zbroker spark stats zbroker-data
zbroker spark stats tcp://127.0.0.1:9101 --since -24h --json
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from zbroker.cli import show
from zbroker.cli.options import json_option
from zbroker.cli.spark import job_options
from zbroker.cli.spark.job_options import LogChoice

if TYPE_CHECKING:
    from zbroker.spark.jobs.stats import StatsReport

_TOPICS: Final = show.columns(
    "hour topic messages bytes per_s size_min size_mean size_p50 size_p99 size_max gap_mean_s "
    "gap_max_s",
    sizes="bytes size_min size_mean size_p50 size_p99 size_max",
)
_QUEUES: Final = show.columns(
    "queue left redelivered age_p50_s age_p99_s age_max_s age_unknown left_why redelivered_why"
)


@click.command()
@job_options.source_options
@job_options.master_option
@json_option
def stats(*, chosen: LogChoice, master: str, json_here: bool) -> None:
    """Count messages, bytes, sizes, rates and times between appends, by topic and hour (UTC).

    SOURCE is a URL, a data directory or a journal directory. For a directory it also reports the
    outcome of messages of queues: their ages when they left, and redeliveries.
    """
    with job_options.session("stats", master) as (spark, step):
        from zbroker.spark.jobs import stats as job  # needs pyarrow

        report = job.stats(spark, chosen.stretch, step, chosen.parts)
    show.answer(json_here, report._asdict(), lambda: _tell(report))


def _tell(report: StatsReport) -> None:
    show.table(_TOPICS, report.topics)
    if report.queues:
        show.table(_QUEUES, report.queues, "queues")


if __name__ == "__main__":  # the file that `spark-submit` is given
    stats()
