"""Claims about record batches: they hold what `replay` yields, and only what was asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs package pyarrow")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.logs import JournalMaker
from zbroker.errors import ZBrokerError
from zbroker.spark import LogRange, plan_ranges, replay, replay_arrow
from zbroker.spark.arrow import numbered, schema_of
from zbroker.spark.names import KAFKA_COLUMNS, NATIVE_COLUMNS


@pytest.fixture
def maker(journal: JournalMaker) -> JournalMaker:
    """Every kind of batch: alike and unlike payloads, some topics, keys, compressed, controls."""
    for _ in range(3):
        journal.batch(["a", "b", "a", "c"] * 20)
        journal.control()
        journal.batch(["only"] * 100, size=300)
        journal.given(["a"] * 40, [bytes(i) for i in range(40)], packed=True)
        journal.given(["b"] * 40, [b"%03d" % i for i in range(40)], packed=True)
        journal.given(["k", "l", "k"], [b"1", b"22", b""], keys=[b"x", None, b"y"])
    return journal


def rows(
    part: LogRange, columns: list[str] | None = None, most: int = 16_384
) -> list[dict[str, Any]]:
    return [row for batch in replay_arrow(part, columns, most) for row in batch.to_pylist()]


def expected(part: LogRange) -> list[dict[str, Any]]:
    return [
        {
            "topic": message.topic,
            "bookmark": message.bookmark,
            "publisher": str(message.publisher),
            "sequence": message.sequence,
            "position": message.position,
            "timestamp": message.time,
            "payload": message.data,
        }
        for message in replay(part)
    ]


def whole(maker: JournalMaker, **more: Any) -> LogRange:
    return plan_ranges(maker.directory, min_partitions=1, **more)[0]


@pytest.mark.parametrize("most", [1, 7, 100, 16_384])
def test_rows_are_the_messages_of_a_replay(maker: JournalMaker, most: int) -> None:
    part = whole(maker)
    assert rows(part, None, most) == expected(part)
    assert len(rows(part)) == len(maker.messages)
    assert max(batch.num_rows for batch in replay_arrow(part, None, most)) <= most


@pytest.mark.parametrize("each", [1, 3, 100])
def test_publishers_may_take_turns(journal: JournalMaker, each: int) -> None:
    for turn in range(12):
        journal.publisher = f"publisher-{turn % 4}"
        journal.batch(["a"] * each)
    found = rows(whole(journal))
    assert found == expected(whole(journal))
    assert max(int(row["publisher"]) for row in found) >= 2**63, "more than a bigint"


@pytest.mark.parametrize(("first", "end"), [(1, 2), (30, 190), (79, 82), (150, 151), (183, 270)])
def test_a_range_may_begin_and_end_within_a_batch(
    maker: JournalMaker, first: int, end: int
) -> None:
    part = replace(whole(maker), first=first, end=end)
    assert rows(part) == expected(part)
    assert [row["position"] for row in rows(part)] == [
        message.position for message in maker.messages if first <= message.position < end
    ]


@pytest.mark.parametrize(
    ("topic", "regex"), [("a", False), ("a|c", True), ("only", False), ("none", False)]
)
def test_topics_choose_rows(maker: JournalMaker, topic: str, regex: bool) -> None:
    part = whole(maker, topic=topic, regex=regex)
    assert rows(part) == expected(part)
    wanted = [m.position for m in maker.messages if m.topic in topic.split("|")]
    assert [row["position"] for row in rows(part)] == wanted


@pytest.mark.parametrize("columns", [["payload"], ["sequence", "topic"], ["timestamp"]])
def test_only_the_asked_columns_are_made(maker: JournalMaker, columns: list[str]) -> None:
    part = whole(maker)
    first = next(iter(replay_arrow(part, columns)))
    assert first.schema.names == columns
    assert rows(part, columns) == [{name: row[name] for name in columns} for row in expected(part)]


def test_the_columns_of_the_kafka_connector_have_its_types(maker: JournalMaker) -> None:
    found = rows(whole(maker), list(KAFKA_COLUMNS))
    keyed = [row for row in found if row["topic"] in ("k", "l")][:3]
    assert [(row["key"], row["value"]) for row in keyed] == [
        (b"x", b"1"), (None, b"22"), (b"y", b"")
    ]  # fmt: skip
    assert [row["offset"] for row in found] == [message.position for message in maker.messages]
    assert {(row["partition"], row["timestampType"]) for row in found} == {(0, 1)}


def test_fields_may_be_null_and_have_the_types_that_spark_makes_of_the_schema() -> None:
    schema = schema_of({**NATIVE_COLUMNS, **KAFKA_COLUMNS})
    assert all(field.nullable for field in schema)
    assert schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert schema.field("publisher").type == pa.string()
    assert schema.field("payload").type == pa.binary()


def test_an_unknown_column_is_refused_before_anything_is_read(maker: JournalMaker) -> None:
    with pytest.raises(ZBrokerError, match="no column 'paylod'") as caught:
        replay_arrow(whole(maker), ["paylod"])
    assert caught.value.code == "bad_field"


def test_damage_is_an_error(maker: JournalMaker) -> None:
    part = whole(maker)
    segment = maker.directory / "0000000001.journal"
    data = bytearray(segment.read_bytes())
    data[data.index(b"77:....")] ^= 1
    segment.write_bytes(data)
    with pytest.raises(ZBrokerError) as caught:
        rows(part, ["position"])
    assert caught.value.code == "gap"


@given(
    st.one_of(
        st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=30),
        st.builds(
            lambda first, count, step: list(range(first, first + count * step, step)),
            st.sampled_from((0, 1, 9, 999, 9_900, 10_000, 99_990, 10**9 - 5, 10**18 - 70)),
            st.integers(1, 400),
            st.sampled_from((1, 1, 2, 7, 300)),
        ),
    )
)
def test_numbered_texts_are_the_decimal_numbers(numbers: list[int]) -> None:
    np = pytest.importorskip("numpy", reason="needs package numpy")
    found = numbered("17|", np.asarray(numbers), "|")
    assert found.to_pylist() == [f"17|{number}|" for number in numbers]
