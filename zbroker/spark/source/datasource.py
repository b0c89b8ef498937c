"""The data source that Spark looks up under the name `zbroker`.

spark.dataSource.register(ZBrokerSource)      in one session; or, with the package
spark.read.format("zbroker")                  `pyspark_zbroker` installed, no line at all
"""

from __future__ import annotations

from collections.abc import MutableMapping
from contextlib import closing
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

from zbroker.errors import ClientError
from zbroker.spark.arrow import schema_of
from zbroker.spark.names import KAFKA_COLUMNS, NATIVE_COLUMNS, NULLABLE, ddl
from zbroker.spark.sink import BatchWriter, SinkTarget, StreamWriter, target
from zbroker.spark.source.offsets import LogState
from zbroker.spark.source.options import parse
from zbroker.spark.source.places import SourceLog
from zbroker.spark.source.readers import BatchSourceReader, StreamSourceReader


class ZBrokerSource(DataSource):  # type: ignore[misc]
    """The log as a table, and as a stream."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Raises: ClientError bad_field, bad_bookmark. Opens nothing."""
        super().__init__(options)
        self._given = parse(options)
        self._columns = KAFKA_COLUMNS if self._given.kafka_columns else NATIVE_COLUMNS
        self._pinned: LogState | None = None

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "zbroker"

    def schema(self) -> str:
        """Asked once for each load: `latest` means the same in all actions on its DataFrame."""
        if self._given.until in (None, "now"):
            with closing(SourceLog(self._given)) as log:
                self._pinned = log.state()
        return ddl(self._columns)

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ANN401 - a StructType
        """Raises: ClientError bad_field."""
        self._check_reading()
        return BatchSourceReader(self._given, _chosen(schema, self._columns), self._pinned)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ANN401, N802
        """Raises: ClientError bad_field."""
        if self._given.until is not None:
            what = "a stream has no endingBookmark and no endingTimestamp"
            raise ClientError("bad_field", what, "use .trigger(availableNow=True)")
        self._check_reading()
        return StreamSourceReader(self._given, _chosen(schema, self._columns))

    def _check_reading(self) -> None:
        if self._given.topic or self._given.publish_id:
            what = "options `topic` and `publishId` are for writing"
            raise ClientError("bad_field", what, "a source is named by `topics`")

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ANN401
        """Raises: ClientError bad_field."""
        if overwrite:
            raise ClientError("bad_field", "a log cannot be overwritten", 'use .mode("append")')
        return BatchWriter(self._target(schema), self._given.publish_id)

    def streamWriter(  # noqa: N802
        self,
        schema: Any,  # noqa: ANN401
        overwrite: bool,
    ) -> DataSourceStreamArrowWriter:
        """Raises: ClientError bad_field."""
        if overwrite:
            raise ClientError("bad_field", "a log has no complete output", "use outputMode append")
        if self._given.publish_id:
            what = "a streaming query has its checkpoint instead of a `publishId`"
            raise ClientError("bad_field", what, "leave it out")
        return StreamWriter(self._target(schema))

    def _target(self, schema: Any) -> SinkTarget:  # noqa: ANN401
        given = self._given
        return target(given.endpoint, given.topic, SourceLog(given).credentials(), schema)


def _chosen(schema: Any, known: dict[str, str]) -> pa.Schema:  # noqa: ANN401 - of Spark
    """The Arrow schema of the columns that the user gave, all of which are known.

    Raises: ClientError bad_field.
    """
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if known.get(field.name) != kind:
            text = f"there is no column `{field.name} {kind}`"
            raise ClientError("bad_field", text, f"there are {ddl(known)}")
        if field.name in NULLABLE and not field.nullable:
            raise ClientError("bad_field", f"column {field.name} may be null", "leave out NOT NULL")
    fields = zip(schema_of(schema.fieldNames()), schema.fields, strict=True)
    return pa.schema([ours.with_nullable(given.nullable) for ours, given in fields])
