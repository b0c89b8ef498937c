"""The schema of the data source, and what of it a user asks for. Pure."""

from __future__ import annotations

from typing import Any

from zbroker.errors import ClientError
from zbroker.spark.names import KAFKA_COLUMNS, NATIVE_COLUMNS, ddl


def columns_of(kafka: bool) -> dict[str, str]:
    """Names and types of the columns."""
    return KAFKA_COLUMNS if kafka else NATIVE_COLUMNS


def schema_text(kafka: bool) -> str:
    """The schema as Spark reads it."""
    return ddl(columns_of(kafka))


def chosen(schema: Any, kafka: bool) -> list[str]:  # noqa: ANN401 - a StructType of Spark
    """The names of a schema that the user gave, if all of them fit: only they are made.

    Raises: ClientError bad_field.
    """
    known = columns_of(kafka)
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if known.get(field.name) != kind:
            raise ClientError(
                "bad_field", f"there is no column `{field.name} {kind}`", f"there are {ddl(known)}"
            )
        if not field.nullable:
            raise ClientError("bad_field", f"column {field.name} may be null", "leave out NOT NULL")
    return [field.name for field in schema.fields]
