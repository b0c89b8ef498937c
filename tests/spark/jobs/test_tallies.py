"""Claims about counting: whatever is put together is what one count of all would have been."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs package pyarrow")

import pyarrow as pa

from zbroker.spark.jobs.tallies import HOUR_US, Classes, classes_of, join, lowest_of, tallied

Row = tuple[str, int, bytes]  # topic, time in microseconds, payload


def batch(rows: list[Row]) -> Any:
    topics, times, payloads = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "topic": pa.array(topics),
            "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
            "payload": pa.array(payloads, pa.binary()),
        }
    )


@given(st.integers(0, (1 << 52) - 1))
def test_a_class_is_at_most_a_sixteenth_wide(value: int) -> None:
    number = int(classes_of([value])[0])
    low, behind = lowest_of(number), lowest_of(number + 1)
    assert low <= value < behind
    assert behind - low <= max(1, low // 16)


def test_a_percentile_is_the_class_where_that_share_ends() -> None:
    classes = Classes()
    classes.add([1] * 98 + [7] * 2)
    assert (classes.percentile(0.5), classes.percentile(0.98), classes.percentile(0.99)) == (
        1,
        1,
        7,
    )
    assert Classes().percentile(0.5) == 0


ROWS: list[Row] = [
    ("ab"[number % 3 == 0], HOUR_US // 2 + number * 1_000_000 * 60, b"x" * number)
    for number in range(1, 100)
]


@pytest.mark.parametrize("size", [1, 7, 99])
def test_counts_of_parts_add_up(size: int) -> None:
    found = {}
    for start in range(0, len(ROWS), size):
        join(found, tallied([batch(ROWS[start : start + size])]))
    whole = tallied([batch(ROWS)])
    assert {key: tally.row(key) for key, tally in found.items()} == {
        key: tally.row(key) for key, tally in whole.items()
    }


def test_a_row_says_sizes_rates_and_gaps() -> None:
    rows = [
        ("t", HOUR_US, b"12"),
        ("t", HOUR_US + 500_000, b"1234"),
        ("t", HOUR_US + 2_000_000, b""),
    ]
    assert tallied([batch(rows)])["t", 1].row(("t", 1)) == {
        "hour": "1970-01-01T01", "topic": "t", "messages": 3, "bytes": 6, "per_s": 1.0,
        "size_min": 0, "size_mean": 2.0, "size_p50": 2, "size_p99": 4, "size_max": 4,
        "gap_mean_s": 1.0, "gap_max_s": 1.5,
    }  # fmt: skip


def test_one_message_has_no_rate() -> None:
    row = tallied([batch([("t", 0, b"")])])["t", 0].row(("t", 0))
    assert (row["per_s"], row["gap_mean_s"], row["gap_max_s"]) == (None, None, None)
