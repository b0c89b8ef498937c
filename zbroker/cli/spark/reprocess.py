"""`zbroker spark reprocess`: a part of the log through a function into a topic, once.

    zbroker spark reprocess zbroker-data fixes:late tcp://127.0.0.1:9101 --topic orders \\
        --until 20261122T000000Z
    zbroker spark reprocess tcp://127.0.0.1:9101 fixes:late --checkpoint /mnt/late --to-topic late

Exit code 0 when all is published, now or by an earlier run under the same id.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from zbroker.cli import show
from zbroker.cli.options import json_option, text_option, with_default
from zbroker.cli.spark import job_options
from zbroker.cli.spark.job_options import LogChoice


@click.command()
@job_options.source_options
@click.argument("function", metavar="MODULE:FUNCTION")
@click.argument("to_url", metavar="[TO]", required=False)
@text_option("--to-topic", "The topic of all; wins over what it yields.")
@with_default(
    "--form",
    "messages",
    "What the function gets: a list of messages, or a pyarrow.RecordBatch.",
    click.Choice(["messages", "arrow"]),
)
@text_option("--publish-id", "Default: made of the range and the function.")
@click.option("--checkpoint", help="Goes on where the last run with this directory ended.")
@click.option(
    "--every", type=click.FloatRange(min=0), help="With --checkpoint: for ever, every so many s."
)
@job_options.master_option
@json_option
def reprocess(  # noqa: PLR0913 - every option by its name
    *,
    chosen: LogChoice,
    function: str,
    to_url: str | None,
    to_topic: str,
    form: Literal["messages", "arrow"],
    publish_id: str,
    checkpoint: str | None,
    every: float | None,
    master: str,
    json_here: bool,
) -> None:
    """Publish what MODULE:FUNCTION yields for the messages of SOURCE, (topic, payload), to TO.

    TO is a URL, or SOURCE again. The module may be in this directory. A range needs --until: with
    another end it is another job, and publishes all of it again. With --checkpoint it is a stream.
    """
    from zbroker.spark.jobs.job_runner import JobTarget, announce

    _check(chosen, publish_id, checkpoint, every)
    place, credentials = job_options.place_of(chosen.given, to_url or chosen.stretch.source)
    if "://" not in place:
        raise click.UsageError("give TO, the URL of a broker")
    to = JobTarget(place, to_topic, credentials)
    announce(credentials)
    with job_options.session("reprocess", master) as (spark, step):
        from zbroker.spark.jobs import reprocess as job  # needs pyarrow

        what = job.FunctionName(function, form, str(Path.cwd()))
        if checkpoint is None:
            report = job.reprocess(spark, chosen.stretch, what, to, step, publish_id, chosen.parts)
        else:
            report = job.reprocess_stream(spark, chosen.stretch, what, to, step, checkpoint, every)
    show.answer(json_here, report._asdict())


def _check(chosen: LogChoice, publish_id: str, checkpoint: str | None, every: float | None) -> None:
    """Raises: UsageError."""
    if checkpoint is not None and (chosen.until or publish_id):
        raise click.UsageError("with --checkpoint there is no --until and no --publish-id")
    if checkpoint is None and every is not None:
        raise click.UsageError("--every needs --checkpoint")
    if checkpoint is None and chosen.until in (None, "now") and not publish_id:
        raise click.UsageError("say --until where, or --publish-id, or --checkpoint")


if __name__ == "__main__":  # the file that `spark-submit` is given
    reprocess()
