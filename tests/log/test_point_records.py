"""Bodies of KIND_SHARED_POINT records: bytes that never change."""

from __future__ import annotations

import pytest
from msgspec import Struct, msgpack

from zbroker.log.point_records import (
    PointId,
    SharedPointRecord,
    SharedPointRow,
    decoded_point,
    decoded_row,
)

COVERS = "00000000000000a1.1.5"
GOLDEN = [
    (
        SharedPointRecord("eod", 7, COVERS, [PointId(0xA1, 1, 3)], 5, 6),
        "86a46e616d65a3656f64a66e756d62657207a6636f76657273b43030303030303030303030303030"
        "61312e312e35a4656e6473919"
        "3cca10103a2627905a4756e697406",
    ),
    (
        SharedPointRecord("eod", ends=[PointId(0xA1, 1, 3)], by=5, unit=6),
        "84a46e616d65a3656f64a4656e64739193cca10103a2627905a4756e697406",
    ),
    (
        SharedPointRow(0xA1, 1, 3, "eod", 7, COVERS, 9),
        "97cca10103a3656f6407b4303030303030303030303030303061312e312e3509",
    ),
    (SharedPointRow(0xA1, 1, 3, "eod"), "97cca10103a3656f6400a000"),
]


@pytest.mark.parametrize(("said", "golden"), GOLDEN, ids=["set", "removed", "row", "end"])
def test_golden_bytes_never_change(said: Struct, golden: str) -> None:
    body = bytes.fromhex(golden)
    assert msgpack.encode(said) == body
    decode = decoded_row if isinstance(said, SharedPointRow) else decoded_point
    assert decode(body) == said


def test_a_row_with_a_field_of_a_newer_release_is_read() -> None:
    assert decoded_row(msgpack.encode([1, 2, 3, "eod", 7, COVERS, 9, "later"])).name == "eod"
