"""Bodies of control records: their bytes never change."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, convert, msgpack, to_builtins
from pyroaring import BitMap64

from zbroker.config import QueueConfig
from zbroker.ids import Origin
from zbroker.limits import U63_MAX
from zbroker.log import records, references
from zbroker.log import records as q

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
    (
        records.OriginRecord(9, 1, 0xABC, 43, 42, 0xAABBCCDD),
        "86a8696e7374616e636509aa67656e65726174696f6e01a6646967657374cd0abca573696e63652b"
        "a8706f736974696f6e2aa3637263ceaabbccdd",
    ),
    (
        records.ForgottenRecord("b"),
        "81a470656572a162",
    ),
    (
        records.ClosedRecord(7, 42),
        "82aa67656e65726174696f6e07a3656e642a",
    ),
    (
        records.AbortRecord([("alice", "t")], [Origin(9, 1)]),
        "82a67374616765739192a5616c696365a174a76f726967696e7391920901",
    ),
    (
        records.TransactionRecord("a", "b", 9, 2, 3, 5, 6, "h", 8),
        "89a97072696e636970616ca161a773657373696f6ea162a565706f636809a66e756d62657202a86d65737361676573"
        "03a2627905a4756e697406a6686f6c646572a168a5616674657208",
    ),
    (
        records.TransactionRecord(
            "a", "b", 9, after=8, timeout_ms=60_000, ended="exception", code="c", text="d"
        ),
        "88a97072696e636970616ca161a773657373696f6ea162a565706f636809a5616674657208aa74696d656f75745f6d"
        "73cdea60a5656e646564a9657863657074696f6ea4636f6465a163a474657874a164",
    ),
    (
        records.TransactionRecord("a", "b", 9, holder="h", after=8, timeout_ms=60_000, to=11),
        "87a97072696e636970616ca161a773657373696f6ea162a565706f636809a6686f6c646572a168a5616674657208"
        "aa74696d656f75745f6d73cdea60a2746f0b",
    ),
    (
        references.CommitRecord(
            "app",
            7,
            ["t"],
            [references.Reference(40, 2, 8256, 3, 30)],
            "alice",
            [references.PartsOrigin(9, 1, 1, 1)],
        ),
        "86a3617070a3617070a5626174636807a673746167657391a174a570617274739195280"
        "2cd2040031ea97072696e636970616ca5616c696365a76f726967696e73919409010101",
    ),
]
BEFORE = [  # by releases that did not know origins
    (records.AbortRecord([("alice", "t")]), "81a67374616765739192a5616c696365a174"),
    (
        references.CommitRecord("app", 7, ["t"], [references.Reference(40, 2, 8256, 3)], "alice"),
        "85a3617070a3617070a5626174636807a673746167657391a174a5706172"
        "747391942802cd204003a97072696e636970616ca5616c696365",
    ),
]


@pytest.mark.parametrize(("record", "golden"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_bytes_never_change(record: Struct, golden: str) -> None:
    assert records.encode(record).hex() == golden
    assert msgpack.decode(bytes.fromhex(golden), type=type(record)) == record


@pytest.mark.parametrize(("record", "golden"), BEFORE, ids=lambda value: type(value).__name__)
def test_what_was_written_before_is_read(record: Struct, golden: str) -> None:
    assert msgpack.decode(bytes.fromhex(golden), type=type(record)) == record


def test_keys_of_a_newer_release_are_ignored() -> None:
    body = msgpack.encode({"name": "p", "vector": "v", "later": 1})
    assert records.POINT.decode(body) == records.PointRecord("p", "v")


BLOCK = 1 << 16  # positions that CRoaring keeps together
EDGES = st.builds(
    lambda block, by: max(0, block * BLOCK + by), st.integers(0, 4), st.integers(-2, 2)
)
PLACES = st.integers(0, 300) | st.integers(0, U63_MAX - 70_000) | EDGES
COUNTS = st.integers(1, 5) | st.integers(1, 70_000) | st.integers(BLOCK - 2, BLOCK + 2)
RUNS = st.lists(st.tuples(PLACES, COUNTS), max_size=100)


def of(runs: list[tuple[int, int]]) -> BitMap64:
    found = BitMap64()
    for first, count in runs:
        found.add_range(first, first + count)
    return found


@given(RUNS)
def test_what_is_packed_comes_back(runs: list[tuple[int, int]]) -> None:
    assert q.unpack_positions(q.pack_positions(of(runs))) == of(runs)


@given(RUNS)
def test_runs_are_apart_and_make_the_set(runs: list[tuple[int, int]]) -> None:
    found = list(q.runs_of(of(runs)))
    assert all(before[1] < after[0] for before, after in pairwise(found))
    assert of([(first, behind - first) for first, behind in found]) == of(runs)
    assert q.ends_of(of(runs)) == [end for run in found for end in run]


def test_a_run_ends_where_a_block_without_positions_begins() -> None:
    """CRoaring's contains_range finds 65,536 in this set: that message would leave its queue."""
    positions = of([(1, BLOCK - 1), (2 * BLOCK, 1)])
    assert list(q.runs_of(positions)) == [(1, BLOCK), (2 * BLOCK, 2 * BLOCK + 1)]
    assert q.unpack_positions(q.pack_positions(positions)) == positions
    assert not q.has_run(positions, 1, BLOCK + 1)
    assert q.has_run(positions, 1, BLOCK)


@pytest.mark.parametrize("size", [q.FEW, q.FEW + 1])
def test_runs_of_few_positions_are_found_like_those_of_many(size: int) -> None:
    positions = range(0, 2 * size, 2)
    assert list(q.runs_of(BitMap64(positions))) == [(at, at + 1) for at in positions]


@pytest.mark.parametrize(("runs", "is_bitmap"), [(q.RUNS_MAX, False), (q.RUNS_MAX + 1, True)])
def test_many_runs_are_a_bitmap(runs: int, is_bitmap: bool) -> None:
    packed = q.pack_positions(BitMap64(range(0, 2 * runs, 2)))
    assert (packed[:1] == b"\0") == is_bitmap


@pytest.mark.parametrize(
    "ends", [[1], [2, 2], [3, 1], [-1, 4], [0, U63_MAX + 1], [0, U63_MAX], [1, 5, 9]]
)
def test_what_is_no_run_is_refused(ends: list[int]) -> None:
    with pytest.raises(ValueError, match=r"runs|run of positions|more than"):
        q.of_ends(ends)


def test_a_set_has_so_many_positions_at_most() -> None:
    """A few bytes must not become gigabytes."""
    half = q.POSITIONS_MAX // 2
    assert len(q.of_ends([0, half, half, 2 * half])) == q.POSITIONS_MAX
    with pytest.raises(ValueError, match="more than"):
        q.of_ends([0, half, half, 2 * half, 2 * half, 2 * half + 1])


@pytest.mark.parametrize("data", [b"", b"\0", b"\0junk", b"\xc1", b"\x91\xa1a", b"\x92\x01"])
def test_what_is_no_set_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"not positions|[Bb]itmap|run"):
        q.unpack_positions(data)


@pytest.mark.parametrize(
    "fact",
    [
        q.MessagesGone(b"\x90"), q.Failed(b"\x90", "lease_ended", 7), q.Horizon(5),
        q.BarrierDelivered(6), q.Returned(b"\x90"), q.Noted(b"\x90"), q.NotedEarly(b"\x90"),
    ],
)  # fmt: skip
def test_each_fact_comes_back_as_what_it_was(fact: q.AnyFact) -> None:
    record = q.QueueRecord("work", 1, 2, 3, [fact])
    assert q.QUEUE.decode(q.encode(record)) == record


def test_a_definition_without_newer_settings_is_written_as_before_them() -> None:
    record = q.DefinitionRecord("work", 2, definition=to_builtins(QueueConfig("work", "orders")))
    written = msgspec.msgpack.decode(q.encode(record))
    assert written == {
        "name": "work", "life": 2, "definition": {"name": "work", "topic": "orders"},
    }  # fmt: skip
    assert convert(written["definition"], QueueConfig) == QueueConfig("work", "orders")


def test_the_owner_of_an_exclusive_queue_comes_back() -> None:
    record = q.DefinitionRecord("work", 2, owner=("ann", "bills", "me"))
    assert q.WIRING.decode(q.encode(record)) == record


def test_a_record_of_a_newer_release_may_say_more() -> None:
    data = msgspec.msgpack.encode({"name": "work", "life": 2, "later": [1]})
    assert q.WIRING.decode(data) == q.DefinitionRecord("work", 2)
