"""A table that Spark can read, into a topic, once: another run adds nothing.

A publishId names what is published once. Without a given one it is made of the input: its files
with their sizes and times, and the columns that are taken.

    spark-submit .../zbroker/cli/spark/backfill.py INPUT URL --topic TOPIC
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zbroker.errors import ClientError
from zbroker.spark.jobs.job_runner import JobTarget, Step, translated, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


FORMATS: Final = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json",
                  ".orc": "orc", ".txt": "text"}  # fmt: skip
_OPTIONS: Final = {"csv": {"header": "true"}}


class Input(NamedTuple):
    """The table. path: as Spark takes it; format: "" by the names of its files.

    payload: a column, or "" for all columns of a row as JSON; key: a column; topic: a column.
    order: columns by which messages are ordered; else as Spark reads files, in any order.
    """

    path: str
    format: str = ""
    payload: str = ""
    topic: str = ""
    key: str = ""
    order: tuple[str, ...] = ()


class BackfillReport(NamedTuple):
    """What ran under which id; `rows` were published now or, under the same id, before."""

    publish_id: str
    rows: int


def backfill(
    spark: SparkSession, given: Input, to: JobTarget, step: Step, publish_id: str = ""
) -> BackfillReport:
    """Publishes all rows, or nothing.

    Raises: ClientError bad_field, for input or columns that there are not; ZBrokerError of the
    broker: run it again then.
    """
    given = given._replace(format=given.format or format_of(given.path))
    publish_id = publish_id or f"backfill-{identity(given, to.topic)}"
    step("publishing", 0, 1)
    with translated():
        reader = spark.read.format(given.format).options(**_OPTIONS.get(given.format, {}))
        rows = write(messages(reader.load(given.path), given, to.topic), to, publish_id)
    step("publishing", 1, 1)
    return BackfillReport(publish_id, rows)


def format_of(path: str) -> str:
    """By the endings of names. Raises: ClientError bad_field."""
    endings = {Path(name).suffix.lower() for name, _, _ in listed(path)} or {Path(path).suffix}
    found = {FORMATS[ending] for ending in endings if ending in FORMATS}
    if len(found) != 1:
        text = f"the names in {path} do not say what format it has"
        raise ClientError("bad_field", text, f"give --format: {', '.join(sorted(found)) or 'csv'}")
    return found.pop()


def listed(path: str) -> list[tuple[str, int, int]]:
    """Name, size and time of each file that Spark would read; empty if that is not known here."""
    root = Path(path)
    files = [root] if root.is_file() else sorted(root.rglob("*"))
    found = []
    for file in files:
        name = file.relative_to(root.parent if root.is_file() else root)
        hidden = any(part[0] in "._" and "=" not in part for part in name.parts)
        if file.is_file() and not hidden:
            state = file.stat()
            found.append((str(name), state.st_size, state.st_mtime_ns))
    return found


def identity(given: Input, topic: str) -> str:
    """Names the input, and what is taken of it. Raises: ClientError bad_field."""
    files = listed(given.path)
    if not files:
        text = f"there are no files in {given.path} that can be seen from here"
        raise ClientError("bad_field", text, "check the path; for a remote one give --publish-id")
    what = [str(Path(given.path).resolve()), files, list(given[1:]), topic]
    return blake2b(json.dumps(what).encode(), digest_size=16).hexdigest()


def messages(frame: DataFrame, given: Input, topic: str) -> DataFrame:
    """Its rows with the columns of the sink. Raises: ClientError bad_field."""
    from pyspark.sql import functions

    for name in (given.payload, given.topic, given.key, *given.order):
        if name and name not in frame.columns:
            text = f"the input has no column {name!r}"
            raise ClientError("bad_field", text, f"it has {', '.join(frame.columns)}")
    if not topic and not given.topic:
        raise ClientError("bad_field", "there is no topic to publish to", "give --topic")
    rows = frame.orderBy(*given.order) if given.order else frame
    taken = [_payload(frame, given).alias("payload")]
    if given.topic and not topic:
        taken.append(functions.col(given.topic).cast("string").alias("topic"))
    if given.key:
        taken.append(_binary(frame, given.key).alias("key"))
    return rows.select(*taken)


def _payload(frame: DataFrame, given: Input) -> Any:  # noqa: ANN401 - a Column
    from pyspark.sql import functions

    if given.payload:
        return _binary(frame, given.payload)
    columns = [name for name in frame.columns if name not in (given.topic, given.key)]
    return functions.to_json(functions.struct(*columns))


def _binary(frame: DataFrame, name: str) -> Any:  # noqa: ANN401 - a Column
    """As it is, or as text."""
    from pyspark.sql import functions

    kind = frame.schema[name].dataType.simpleString()
    column = functions.col(name)
    return column if kind in ("binary", "string") else column.cast("string")
