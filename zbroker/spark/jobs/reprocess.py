"""A part of the log through a function into a topic, once.

a range     read, put through, published under an id that is made of the range and the function
a stream    from a checkpoint on, which knows what was published

spark-submit .../zbroker/spark/jobs/reprocess.py SOURCE MODULE:FUNCTION URL --until BOOKMARK
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import re2

from zbroker.client.subscriber.points import since_text
from zbroker.errors import ClientError
from zbroker.ids import EPOCH, NOW
from zbroker.spark.jobs.functions import COLUMNS, SCHEMA, FunctionName, applied
from zbroker.spark.jobs.job_runner import Step, translated
from zbroker.spark.jobs.sink_job import JobTarget, login, register, write
from zbroker.spark.jobs.stretch import Stretch
from zbroker.spark.log_hold import held
from zbroker.spark.ranges import LogRange
from zbroker.spark.replay import replay_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_LOOK_S: Final = 0.5


class ReprocessReport(NamedTuple):
    """What ran under which id or checkpoint, and how many messages the function gave or was given.

    rows: of a range what was published, now or before; of a stream what was read now.
    """

    publish_id: str
    rows: int


def reprocess(  # noqa: PLR0913 - a job's arguments
    spark: SparkSession,
    stretch: Stretch,
    what: FunctionName,
    to: JobTarget,
    step: Step,
    publish_id: str = "",
    parts: int = 1,
) -> ReprocessReport:
    """Publishes what the function makes of the stretch, all of it in the order of the log.

    Raises: ClientError bad_field; ZBrokerError: run it again then.
    """
    what.load()  # a wrong name is refused before anything runs
    ranges = stretch.sized(parts)
    publish_id = publish_id or f"reprocess-{identity(ranges, what, to.topic)}"
    if not ranges:
        return ReprocessReport(publish_id, 0)

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from applied(replay_arrow(ranges[index], COLUMNS), what)

    step("publishing", 0, 1)
    with held(ranges), translated():
        # one row for each range, in a partition of its own: so their order is that of the log
        plan = spark.range(0, len(ranges), 1, len(ranges))
        rows = write(plan.mapInArrow(work, SCHEMA), to, publish_id)
    step("publishing", 1, 1)
    return ReprocessReport(publish_id, rows)


def identity(ranges: list[LogRange], what: FunctionName, topic: str) -> str:
    """Names the messages that are read, what is done with them, and the topic."""
    found: list[object] = [what.name, what.form, topic]
    if ranges:
        whole = replace(ranges[0], end=ranges[-1].end)
        found += [whole.instance, whole.generation, whole.first, whole.end, whole.topic]
        found += [whole.regex, whole.filter, whole.filter_type]
    return blake2b(json.dumps(found).encode(), digest_size=16).hexdigest()


# -- as a stream ------------------------------------------------------------------------------


def reprocess_stream(  # noqa: PLR0913 - a job's arguments
    spark: SparkSession,
    stretch: Stretch,
    what: FunctionName,
    to: JobTarget,
    step: Step,
    checkpoint: str,
    every_s: float | None = None,
) -> ReprocessReport:
    """Goes on where the checkpoint ends; every_s: for ever, else with what is there now.

    Raises: ClientError bad_field; ZBrokerError.
    """
    what.load()
    register(spark)

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        yield from applied(batches, what)

    read = spark.readStream.format("zbroker").options(**source_options(stretch)).load()
    made = read.mapInArrow(work, SCHEMA)
    out = made.writeStream.format("zbroker").options(**to.options())
    timed = {"availableNow": True} if every_s is None else {"processingTime": f"{every_s} seconds"}
    with translated():
        query = out.option("checkpointLocation", checkpoint).trigger(**timed).start()
        try:
            return ReprocessReport(checkpoint, _watch(query, step))
        finally:
            query.stop()


def _watch(query: StreamingQuery, step: Step) -> int:
    """Rows that were read, once the query has ended. Raises: what ended it."""
    rows: dict[int, int] = {}
    ended = False
    while not ended:
        ended = query.awaitTermination(_LOOK_S)
        rows |= {one["batchId"]: one["numInputRows"] for one in query.recentProgress}
        step("messages", sum(rows.values()), sum(rows.values()) + (not ended))
    return sum(rows.values())


def source_options(stretch: Stretch) -> dict[str, str]:
    """A stretch as options of the data source. Raises: ClientError bad_field, bad_bookmark."""
    given = stretch._asdict()
    if given["until"] != "now":
        raise ClientError("bad_field", "a stream has no end", "leave --until out")
    found = login(stretch.credentials)
    if "://" in stretch.source:
        found |= {"endpoint": stretch.source} | _set(journal=stretch.journal)
    else:
        found["journal"] = stretch.source
    found |= _set(archive=stretch.archive, filter=stretch.filter) | _topics(stretch)
    if stretch.filter:
        found["filterType"] = stretch.filter_type
    since = since_text(stretch.since)
    return {**found, "startingBookmark": {EPOCH: "earliest", NOW: "latest"}.get(since, since)}


def _set(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


def _topics(stretch: Stretch) -> dict[str, str]:
    if stretch.topic is None:
        return {}
    if stretch.regex:
        return {"topicPattern": stretch.topic}
    escape: Any = re2.escape  # `topics` is a list with commas
    topic = stretch.topic
    return {"topicPattern": escape(topic)} if "," in topic else {"topics": topic}
