"""A part of the log through a function of the user into a topic, once.

a range     read, put through, published under an id that is made of the range and the function
a stream    from a checkpoint on, which knows what was published

spark-submit .../zbroker/cli/spark/reprocess.py SOURCE MODULE:FUNCTION URL --until BOOKMARK
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import pyarrow as pa
import re2

from zbroker.client.subscriber.points import since_text
from zbroker.errors import ClientError
from zbroker.ids import EPOCH, NOW
from zbroker.spark.jobs.job_runner import (
    JobTarget,
    Step,
    Stretch,
    login,
    register,
    translated,
    write,
)
from zbroker.spark.log_hold import held
from zbroker.spark.names import NATIVE_COLUMNS
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
    read = spark.readStream.format("zbroker").options(**source_options(stretch)).load()
    made = read.mapInArrow(lambda batches: applied(batches, what), SCHEMA)
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


COLUMNS: Final = tuple(NATIVE_COLUMNS)
SCHEMA: Final = "topic string, payload binary, key binary"
ROWS: Final = 8_192
_ARROW: Final = pa.schema([("topic", pa.string()), ("payload", pa.binary()), ("key", pa.binary())])

Form = Literal["messages", "arrow"]
Function = Callable[[Any], Iterable[Any]]


class FunctionRow(NamedTuple):
    """A message, as a function sees it."""

    topic: str
    bookmark: str
    publisher: str
    sequence: int
    position: int
    time: datetime
    data: bytes


class FunctionName(NamedTuple):
    """module:function; folder: where modules are looked for besides, "" for nowhere."""

    name: str
    form: Form = "messages"
    folder: str = ""

    def load(self) -> Function:
        """Raises: ClientError bad_field."""
        module, _, attribute = self.name.partition(":")
        if not module or not attribute:
            raise ClientError("bad_field", f"{self.name!r} is not of the form module:function")
        if self.folder and self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            found = getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            hint = "all executors must be able to import it: spark-submit --py-files"
            raise ClientError("bad_field", f"{self.name}: {error}", hint) from None
        if not callable(found):
            raise ClientError("bad_field", f"{self.name} cannot be called")
        function: Function = found
        return function


def applied(batches: Iterable[pa.RecordBatch], what: FunctionName) -> Iterator[pa.RecordBatch]:
    """What the function makes of the batches, in its order. Raises: ClientError bad_field."""
    function = what.load()
    made: list[tuple[Any, ...]] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        given = rows_of(batch) if what.form == "messages" else batch
        for one in function(given):
            made.append(_checked(one, what.name))
            if len(made) == ROWS:
                yield _batch(made)
                made = []
    if made:
        yield _batch(made)


def rows_of(batch: pa.RecordBatch) -> list[FunctionRow]:
    """The messages of a batch with the columns of COLUMNS."""
    columns = (batch.column(name).to_pylist() for name in COLUMNS)
    return [FunctionRow._make(row) for row in zip(*columns, strict=True)]


def _checked(one: Any, name: str) -> tuple[Any, ...]:  # noqa: ANN401 - whatever was yielded
    """Raises: ClientError bad_field."""
    if isinstance(one, tuple) and len(one) in (2, 3) and isinstance(one[0], str):
        topic, payload, key = one if len(one) == 3 else (*one, None)
        payload = payload.encode() if isinstance(payload, str) else payload
        key = key.encode() if isinstance(key, str) else key
        if isinstance(payload, bytes) and isinstance(key, bytes | None):
            return topic, payload, key
    text = f"{name} yielded {str(one)[:80]!r}"
    raise ClientError("bad_field", text, "yield (topic, payload) or (topic, payload, key)")


def _batch(made: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*made, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _ARROW.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
