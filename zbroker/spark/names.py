"""The columns of messages, by their names, with their types in Spark's words. Pure."""

from __future__ import annotations

from typing import Final

NATIVE_COLUMNS: Final = {
    "topic": "string",
    "bookmark": "string",
    "publisher": "string",  # decimal: a u64 does not fit a bigint
    "sequence": "bigint",
    "position": "bigint",
    "timestamp": "timestamp",
    "payload": "binary",
}
#: as Kafka's connector calls them
KAFKA_COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
COLUMNS: Final = {**NATIVE_COLUMNS, **KAFKA_COLUMNS}
NULLABLE: Final = frozenset({"key"})
LOG_APPEND_TIME: Final = 1  # Kafka's number for a time that the broker gave


def ddl(columns: dict[str, str]) -> str:
    """The schema as Spark reads it. For each value that may be null Spark looks whether it is."""
    return ", ".join(
        f"{name} {kind}" + ("" if name in NULLABLE else " NOT NULL")
        for name, kind in columns.items()
    )
