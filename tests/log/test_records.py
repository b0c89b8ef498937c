"""Bodies of control records: their bytes never change."""

from __future__ import annotations

import pytest
from msgspec import Struct, msgpack

from zbroker.log import records

GOLDEN = [
    (
        records.PublisherRecord("p", "alice"),
        "82a46e616d65a170a97072696e636970616ca5616c696365",
    ),
    (
        records.PointRecord("end-of-day", "0000000000000009.1.42"),
        "82a46e616d65aa656e642d6f662d646179a6766563746f72b5"
        "303030303030303030303030303030392e312e3432",
    ),
    (
        records.PurgeRecord("jobs", "0000000000000009.1.42"),
        "82a57175657565a46a6f6273a6766563746f72b5303030303030303030303030303030392e312e3432",
    ),
]


@pytest.mark.parametrize(("record", "golden"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_bytes_never_change(record: Struct, golden: str) -> None:
    assert records.encode(record).hex() == golden
    assert msgpack.decode(bytes.fromhex(golden), type=type(record)) == record


def test_keys_of_a_newer_release_are_ignored() -> None:
    body = msgpack.encode({"name": "p", "vector": "v", "later": 1})
    assert records.POINT.decode(body) == records.PointRecord("p", "v")
