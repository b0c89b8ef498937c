"""zbroker/spark/sink.py: what can be published, and what cannot."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow", reason="needs package pyarrow")
pytest.importorskip("pyspark", reason="needs package pyspark")

from pyspark.sql.types import (  # noqa: E402
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from zbroker.errors import ClientError  # noqa: E402
from zbroker.spark.sink import SinkMessages, check_rows, messages_of  # noqa: E402

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
}


def fields(text: str) -> StructType:
    """A schema, without a session."""
    pairs = (pair.split() for pair in text.split(","))
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_rows_are_messages_in_their_order() -> None:
    rows = batch(topic=["a", "b"], payload=[b"1", b"2"])
    assert messages_of(rows, "") == SinkMessages(["a", "b"], [b"1", b"2"], None)


def test_rows_of_one_topic_say_it_once() -> None:
    assert messages_of(batch(topic=["a", "a"], payload=[b"1", b"2"]), "").topics == "a"


def test_the_option_wins_over_the_column() -> None:
    assert messages_of(batch(topic=["a", "b"], payload=[b"1", b"2"]), "c").topics == "c"


def test_texts_are_bytes_and_keys_may_be_missing() -> None:
    rows = batch(value=["ä", "b"], key=["k", None])
    assert messages_of(rows, "t") == SinkMessages("t", ["ä".encode(), b"b"], [b"k", None])
    assert messages_of(batch(value=[b"1"], key=pa.array([None], pa.binary())), "t").keys is None


@pytest.mark.parametrize(
    "columns",
    [{"topic": ["a", None], "payload": [b"1", b"2"]}, {"topic": ["a"], "payload": [None]}],
)
def test_what_is_null_cannot_be_published(columns: dict[str, list[object]]) -> None:
    with pytest.raises(ClientError, match=r"row [01] of a record batch has no"):
        messages_of(batch(**columns), "")


@pytest.mark.parametrize(
    ("schema", "topic", "reason"),
    [
        ("payload string", "", "there is no topic"),
        ("topic string", "t", "no payload, or two"),
        ("payload binary, value binary", "t", "no payload, or two"),
        ("payload int", "t", "cannot be published"),
        ("payload binary, bookmark string", "t", "`bookmark string` cannot"),
    ],
)
def test_rows_that_cannot_be_published_are_refused(schema: str, topic: str, reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        check_rows(fields(schema), topic)


def test_a_schema_that_can_be_published_passes() -> None:
    check_rows(fields("topic string, value string, key binary"), "")
    check_rows(fields("payload binary"), "t")
