"""The schema of the data source, and what of it a user asks for. Pure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from zbroker.errors import ClientError
from zbroker.spark.arrow import schema_of
from zbroker.spark.names import KAFKA_COLUMNS, NATIVE_COLUMNS, NULLABLE, ddl


def columns_of(kafka: bool) -> dict[str, str]:
    """Names and types of the columns."""
    return KAFKA_COLUMNS if kafka else NATIVE_COLUMNS


def schema_text(kafka: bool) -> str:
    """The schema as Spark reads it."""
    return ddl(columns_of(kafka))


def chosen(schema: Any, kafka: bool) -> pa.Schema:  # noqa: ANN401 - a StructType of Spark
    """A schema that the user gave, or ours, if all of it fits: only its columns are made.

    Raises: ClientError bad_field.
    """
    known = columns_of(kafka)
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if known.get(field.name) != kind:
            raise ClientError(
                "bad_field", f"there is no column `{field.name} {kind}`", f"there are {ddl(known)}"
            )
        if field.name in NULLABLE and not field.nullable:
            raise ClientError("bad_field", f"column {field.name} may be null", "leave out NOT NULL")
    fields = zip(schema_of(schema.fieldNames()), schema.fields, strict=True)
    return pa.schema([ours.with_nullable(given.nullable) for ours, given in fields])
