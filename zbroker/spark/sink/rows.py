"""Rows as messages: which columns there may be, and what is in a record batch of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from zbroker.errors import ClientError

PAYLOADS: Final = ("payload", "value")
_TYPES: Final = {
    "topic": ("string",),
    "payload": ("binary", "string"),
    "value": ("binary", "string"),
    "key": ("binary", "string"),
}
_COLUMNS: Final = "payload (or value) binary or string, topic string, key binary or string"


class SinkMessages(NamedTuple):
    """Of one record batch; topics: one for all, or one for each. keys: None if there are none."""

    topics: str | list[str]
    payloads: list[bytes]
    keys: list[bytes | None] | None


def check(schema: Any, topic: str) -> None:  # noqa: ANN401 - a StructType of Spark
    """Raises: ClientError bad_field, for rows that cannot be published."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if kind not in _TYPES.get(field.name, ()):
            raise ClientError(
                "bad_field",
                f"column `{field.name} {kind}` cannot be published",
                f"select columns first: {_COLUMNS}",
            )
    names = [field.name for field in schema.fields]
    if sum(name in names for name in PAYLOADS) != 1:
        raise ClientError("bad_field", "the rows have no payload, or two", f"select {_COLUMNS}")
    if not topic and "topic" not in names:
        hint = "give option `topic`, or rows with a column `topic`"
        raise ClientError("bad_field", "there is no topic to publish to", hint)


def messages(batch: pa.RecordBatch, topic: str) -> SinkMessages:
    """Its rows, in their order. topic: wins over the column. Raises: ClientError bad_field."""
    names = batch.schema.names
    payloads = _bytes(batch, "payload" if "payload" in names else "value")
    keys = _pylist(batch, "key") if "key" in names else None
    if keys is not None and not any(key is not None for key in keys):
        keys = None
    return SinkMessages(topic or _topics(batch), payloads, keys)


def _topics(batch: pa.RecordBatch) -> str | list[str]:
    found: list[str] = _whole(batch.column("topic").to_pylist(), "topic")
    return found[0] if found and found.count(found[0]) == len(found) else found


def _bytes(batch: pa.RecordBatch, name: str) -> list[bytes]:
    found: list[bytes] = _whole(_pylist(batch, name), name)
    return found


def _pylist(batch: pa.RecordBatch, name: str) -> list[Any]:
    column = batch.column(name)
    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    found: list[Any] = column.to_pylist()
    return found


def _whole(values: Sequence[Any], name: str) -> Any:  # noqa: ANN401 - the same list
    """Raises: ClientError bad_field."""
    if None in values:
        text = f"row {values.index(None)} of a record batch has no {name}"
        raise ClientError("bad_field", text, f"leave out rows where {name} is null")
    return values
