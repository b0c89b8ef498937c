"""Records of replicated queues: their bytes never change; bad ones are noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, Struct, msgpack
from pyroaring import BitMap64

from zbroker.ids import Origin
from zbroker.limits import U63_MAX
from zbroker.log import queue_records as q
from zbroker.log.records import POSITIONS_MAX, encode

LIFE = q.QueueDeclaration(1_000, 9, 1)
GONE = q.OriginsGone([q.OriginSet(9, 1, [7, 3, 2, 1])])
FAILED = q.OriginsFailed([q.OriginSet(9, 1, [7, 3])], "lease_ended", 5, 6)
MOVED = q.Moved([q.OriginSet(9, 1, [7, 3])], 8, 1, seen=True)
GOLDEN = [
    (
        q.ReplicatedDefinition(
            "jobs", LIFE, q.Version(2, 9, 1), "admin", [q.VectorEntry(8, 1, 40)], {"topic": "t"}
        ),
        "86a46e616d65a46a6f6273a46c69666593cd03e80901a776657273696f6e93020901a6736f75726365"
        "a561646d696ea6626567696e739193080128aa646566696e6974696f6e81a5746f706963a174",
    ),
    (
        q.OutcomesRecord("jobs", LIFE, 3, 4, q.packed([GONE, FAILED])),
        "85a57175657565a46a6f6273a46c69666593cd03e80901a2627903a4756e697404a56661637473929"
        "301919309019407030201a561636b6564950291930901920703ab6c656173655f656e6465640506",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("record", "golden"), GOLDEN, ids=lambda value: type(value).__name__)
def test_golden_bytes_never_change(record: Struct, golden: str) -> None:
    assert encode(record).hex() == golden
    assert msgpack.decode(bytes.fromhex(golden), type=type(record)) == record


def test_golden_bytes_of_a_change_of_owner_never_change() -> None:
    [raw] = q.packed([MOVED])
    assert bytes(raw).hex() == "9703919309019207030801c2c3c2"


@pytest.mark.parametrize(
    ("fact", "golden"),
    [
        (q.OriginsNoted([q.OriginSet(9, 1, [7, 3])]), "920591930901920703"),
        (q.Purged([], [q.VectorEntry(9, 1, 40)]), "9306909193090128"),
    ],
)
def test_golden_bytes_of_facts_of_a_replayable_queue_never_change(
    fact: q.AnyQueueFact, golden: str
) -> None:
    [raw] = q.packed([fact])
    assert bytes(raw).hex() == golden
    assert [*q.facts_of(q.OutcomesRecord("jobs", LIFE, 3, 4, [raw]))] == [fact]


@given(st.sets(st.integers(1, 1 << 40), max_size=300))
def test_steps_are_the_set(positions: set[int]) -> None:
    assert q.of_steps(q.steps_of(BitMap64(positions))) == BitMap64(positions)


def test_a_run_is_two_small_numbers() -> None:
    many = BitMap64([1_000_000 + 2 * n for n in range(100)])
    assert len(msgpack.encode(q.steps_of(many))) < 210


@pytest.mark.parametrize(
    "steps",
    [[1], [0, 1], [-1, 1], [1, 0], [1, -1], [5, 1, 0, 1], [1, POSITIONS_MAX + 1], [U63_MAX, 1]],
)
def test_what_is_no_set_is_refused(steps: list[int]) -> None:
    with pytest.raises(ValueError, match=r"runs|positions"):
        q.of_steps(steps)


def test_a_fact_of_a_newer_release_is_stepped_over_alone() -> None:
    newer = Raw(msgpack.encode([77, "whatever"]))
    [gone] = q.packed([GONE])
    record = q.OutcomesRecord("jobs", LIFE, 3, 4, [newer, gone, Raw(b"\x01")])
    read = q.decoded(q.OUTCOMES, encode(record))
    assert read is not None
    assert list(q.facts_of(read)) == [GONE]


def test_a_body_of_something_else_is_no_record() -> None:
    assert q.decoded(q.OUTCOMES, b"\xc1") is None
    assert q.decoded(q.DEFINITION, encode({"name": 1})) is None


def test_a_first_part_of_a_snapshot_says_how_far_origins_were() -> None:
    folds = {"origins": [[9, 1, 42, 40], [8, 2, 7]], "closed": [[9, 0, 5, 9, 1]]}
    said = q.origins_of_state(encode({"part": 0, "folds": folds}))
    assert said.reached == {Origin(9, 1): 42, Origin(8, 2): 7, Origin(9, 0): 5}
    assert said.closed == {Origin(9, 0)}
    half = {**folds, "origins": [[9]]}
    for body in (
        encode({"part": 1, "folds": folds}), encode({"part": 0, "folds": half}), b"\xc1"
    ):  # fmt: skip
        assert q.origins_of_state(body) == ({}, frozenset())
