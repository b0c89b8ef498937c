"""Local positions and names of messages lead to each other, also after ties and sweeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from zbroker.ids import Origin, Vector
from zbroker.queues.replicated import origin_runs
from zbroker.queues.replicated.origin_runs import OriginRuns

A, B, C = Origin(1, 1), Origin(2, 1), Origin(3, 1)


def test_neighbours_that_go_on_are_one_run() -> None:
    runs = OriginRuns()
    for at in range(100):
        runs.add(10 + at, A, 50 + at, 1, (7, 1 + at))
    assert runs.memory_bytes() == origin_runs.BYTES_A_RUN + 16
    assert runs.names(BitMap64(range(20, 30))) == {A: BitMap64(range(60, 70))}
    assert runs.local(A, BitMap64(range(60, 70))) == BitMap64(range(20, 30))


def test_messages_of_several_origins_are_apart() -> None:
    runs = OriginRuns()
    runs.add(10, A, 1, 2, (7, 1))
    runs.add(12, B, 1, 2, (8, 1))
    runs.add(14, A, 3, 2, (7, 3))
    assert runs.names(BitMap64(range(11, 15))) == {A: BitMap64([2, 3]), B: BitMap64([1, 2])}
    assert runs.by_instance(BitMap64([11, 12, 14])) == {1: BitMap64([11, 14]), 2: BitMap64([12])}


def test_what_is_not_known_is_left_out() -> None:
    runs = OriginRuns()
    runs.add(10, A, 5, 2, (7, 1))
    assert runs.local(A, BitMap64([4, 5, 7])) == BitMap64([10])
    assert runs.local(B, BitMap64([5])) == BitMap64()


def test_a_tie_gives_messages_another_name() -> None:
    runs = OriginRuns()
    runs.add(10, A, 5, 4, (7, 100))
    assert runs.tie(B, 3, 2, (7, 101)) == BitMap64([11, 12])
    assert runs.local(B, BitMap64([3, 4])) == BitMap64([11, 12])
    assert runs.names(BitMap64([11])) == {A: BitMap64([6])}


def test_a_tie_finds_late_messages() -> None:
    """They filled a hole: their sequences are lower than those of messages before them."""
    runs = OriginRuns()
    runs.add(10, A, 5, 2, (7, 100))
    runs.add(12, A, 7, 2, (7, 50))
    assert runs.tie(B, 1, 2, (7, 50)) == BitMap64([12, 13])


def test_what_left_the_queue_is_swept_out() -> None:
    runs = OriginRuns()
    for at in range(3_000):
        runs.add(2 * at, A, 1 + 2 * at, 1, (7, 1 + 2 * at))
    before = runs.memory_bytes()
    here = BitMap64([5_000])
    runs.sweep(here)
    assert runs.memory_bytes() < before // 100
    runs.check(here)
    runs.add(6_000, A, 6_001, 1, (7, 6_001))
    assert runs.names(BitMap64([5_000, 6_000])) == {A: BitMap64([5_001, 6_001])}


def test_a_dump_is_the_same_again() -> None:
    runs, again = OriginRuns(), OriginRuns()
    runs.add(10, A, 5, 4, (7, 100))
    runs.add(14, B, 9, 1, (8, 1))
    runs.tie(B, 3, 2, (7, 101))
    again.load(runs.dump())
    assert again.dump() == runs.dump()
    again.check(BitMap64([10, 11, 14]))


batches = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=60
)


@given(batches, st.sets(st.integers(0, 300)))
def test_names_lead_back(many: list[tuple[int, int, int]], kept: set[int]) -> None:
    """Batches of (origin, messages, positions that are skipped before it)."""
    runs, local = OriginRuns(), 0
    at = {Origin(n, 1): 1 for n in range(3)}
    here = BitMap64()
    for number, count, gap in many:
        origin = Origin(number, 1)
        local, at[origin] = local + gap, at[origin] + gap
        runs.add(local, origin, at[origin], count, (number, at[origin]))
        here.add_range(local, local + count)
        local, at[origin] = local + count, at[origin] + count
    wanted = here & BitMap64(kept)
    named = runs.names(wanted)
    back = BitMap64()
    for origin, positions in named.items():
        back |= runs.local(origin, positions)
    assert back == wanted
    assert sum(map(len, named.values())) == len(wanted)


def test_a_vector_covers_messages_by_any_of_their_names() -> None:
    runs = OriginRuns()
    runs.add(10, A, 1, 3, (1, 1))
    runs.add(13, B, 5, 2, (2, 1))
    runs.tie(C, 8, 1, (2, 2))
    assert runs.covered({A: 2}) == BitMap64([10, 11])
    assert runs.covered({C: 8}) == BitMap64([14])
    assert runs.covered({A: 99, B: 5, C: 7}) == BitMap64([10, 11, 12, 13])
    assert runs.covered({}) == BitMap64()


@pytest.mark.parametrize(
    ("position", "vector"),
    [(10, {}), (12, {A: 2}), (14, {A: 3, B: 5}), (17, {A: 9, B: 6}), (99, {A: 9, B: 6})],
)
def test_a_vector_covers_what_is_before_a_place(position: int, vector: Vector) -> None:
    runs = OriginRuns()
    runs.add(10, A, 1, 3, (1, 1))
    runs.add(13, B, 5, 2, (2, 1))
    runs.add(16, A, 9, 1, (1, 9))
    assert runs.passed(position) == vector
    here = BitMap64([*range(10, 15), 16])
    assert runs.covered(vector) & here == here & BitMap64(range(position))


def test_the_first_message_of_an_origin_is_found_among_others() -> None:
    runs = OriginRuns()
    runs.add(10, A, 1, 3, (1, 1))
    runs.add(20, A, 4, 3, (1, 4))
    assert runs.first(A, 1, 99, BitMap64([12, 21])) == 3
    assert runs.first(A, 4, 99, BitMap64([12, 21])) == 5
    assert runs.first(A, 1, 5, BitMap64([21])) is None
    assert runs.first(B, 1, 99, BitMap64([12])) is None
