"""Claims about comparing two logs: nothing that differs is missed, however both are cut."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs package pyarrow")

import pyarrow as pa

from zbroker.spark.jobs import digests
from zbroker.spark.jobs.digests import compared, merged, rough, seen, unlike
from zbroker.spark.jobs.sequences import SequenceFinding

Row = tuple[int, int, str, bytes]  # publisher, sequence, topic, payload
ROWS: list[Row] = [
    (publisher, sequence, "t", b"%d" % sequence)
    for sequence in range(1, 3_000)
    for publisher in (5, (1 << 63) + 1)
]


def batch(rows: list[Row]) -> Any:
    columns = list(zip(*rows, strict=True))
    return pa.record_batch(
        {
            "publisher": pa.array(map(str, columns[0])),
            "sequence": pa.array(columns[1], pa.int64()),
            "position": pa.array(range(1, len(rows) + 1), pa.int64()),
            "topic": pa.array(columns[2]),
            "payload": pa.array(columns[3], pa.binary()),
        }
    )


def digested(rows: list[Row], size: int = 500) -> digests.Digests:
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    return merged(digests.digests([batch(part)]) for part in parts)


def test_the_same_messages_have_the_same_digests_however_they_are_cut() -> None:
    shuffled = sorted(ROWS, key=lambda row: (row[0], -row[1]))
    assert digested(ROWS) == digested(shuffled, 777)
    assert len(digested(ROWS)) == 2 * 3


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ([(5, 2_000, "t", b"other")], "different"),
        ([(5, 2_000, "u", b"2000")], "different"),
        ([(5, 2_000, "t", b"2000")] * 2, "different"),
        ([], "only_here"),
    ],
)
def test_what_differs_is_found(changed: list[Row], kind: str) -> None:
    others = [row for row in ROWS if row[:2] != (5, 2_000)] + changed
    buckets = unlike(digested(ROWS), digested(others))
    assert buckets == [(5, 1)]
    wanted = frozenset(buckets)
    found = compared(seen([batch(ROWS)], wanted), seen([batch(others)], wanted))
    assert [(one.kind, one.publisher, one.first, one.last) for one in found] == [
        (kind, 5, 2_000, 2_000)
    ]


def test_neighbours_are_one_finding() -> None:
    here, there = seen([batch(ROWS[:4])], {(5, 0)}), seen([batch(ROWS[:30])], {(5, 0)})
    assert [(one.kind, one.first, one.last) for one in compared(here, there)] == [
        ("only_there", 3, 15)
    ]


def test_swapped_payloads_are_a_difference() -> None:
    swapped = [(5, 1, "t", b"2"), (5, 2, "t", b"1")]
    assert digested(swapped) != digested([(5, 1, "t", b"1"), (5, 2, "t", b"2")])


def test_what_nobody_looked_into_is_told_roughly() -> None:
    assert rough([(5, 1)]) == [SequenceFinding("unlike", 5, 1_024, 2_047, 0)]
