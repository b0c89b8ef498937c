"""`zbroker spark backfill`: a table into a topic, once.

    zbroker spark backfill flights.csv tcp://127.0.0.1:9101 --topic flights
    zbroker spark backfill /mnt/lake/log tcp://127.0.0.1:9101 --payload payload \\
        --topic-column topic --order-by position

Exit code 0 when all rows are published, now or by an earlier run under the same publish id.
"""

from __future__ import annotations

from typing import Any

import click

from zbroker.cli import show
from zbroker.cli.options import (
    ConnectionOptions,
    broker_of,
    connection_options,
    json_option,
    text_option,
    url_argument,
)
from zbroker.cli.spark import job_options


@click.command()
@click.argument("path", metavar="INPUT")
@url_argument
@text_option("--topic", "The topic of all rows; wins over --topic-column.", "to_topic")
@text_option("--topic-column", "The column that holds each row's topic.", "topic")
@text_option("--format", "parquet, csv, json, ... Default: by names.")
@text_option("--payload", "The column that is published. Default: the row, as JSON.")
@text_option("--key-column", "The column that holds each row's key.")
@click.option(
    "--order-by",
    "order",
    multiple=True,
    help="A column; may be given several times. Default: no order.",
)
@text_option(
    "--publish-id",
    "What runs under one id publishes once. Default: by paths, sizes and times of the files.",
)
@job_options.master_option
@json_option
@connection_options
def backfill(
    *,
    given: ConnectionOptions,
    url: str | None,
    to_topic: str,
    publish_id: str,
    master: str,
    json_here: bool,
    **table: Any,  # noqa: ANN401 - what is left is named as in job.Input
) -> None:
    """Publish the rows of INPUT, whatever Spark reads, to the broker at URL: all, and once.

    Run again with the same files it adds nothing. Without URL it is the broker of the context.
    """
    from zbroker.spark.jobs import backfill as job
    from zbroker.spark.jobs.job_runner import JobTarget, announce

    broker = broker_of(given, url)
    to = JobTarget(broker.url, to_topic, broker.credentials)
    announce(broker.credentials)
    what = job.Input(key=table.pop("key_column"), **table)
    with job_options.session("backfill", master) as (spark, step):
        report = job.backfill(spark, what, to, step, publish_id)
    show.answer(json_here, report._asdict())


if __name__ == "__main__":  # the file that `spark-submit` is given
    backfill()
