"""Operations on sets, next to Python's."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from zbroker.queues.work import sets

FAR = 5_000_000_000
BLOCK = 1 << 16  # positions that CRoaring keeps together
EDGES = sorted({max(0, n * BLOCK + by) for n in range(5) for by in (-1, 0, 1)})
EDGE_RUNS = st.lists(st.tuples(*2 * [st.sampled_from(EDGES)]).map(sorted), max_size=4)
POSITIONS = st.one_of(
    st.sets(st.integers(0, 60), max_size=40),
    st.sets(st.sampled_from([0, 1, 2, 3, 70_000, 70_001, 2 << 20, FAR, FAR + 1]), max_size=8),
    st.builds(lambda at, many: set(range(at, at + many)), st.integers(0, 40), st.integers(0, 60)),
    st.builds(lambda step: set(range(0, 3_000, step)), st.integers(1, 9)),
)


@given(POSITIONS, POSITIONS)
def test_insert_is_union(whole: set[int], part: set[int]) -> None:
    found, given_ = BitMap64(whole), BitMap64(part)
    sets.insert(found, given_)
    assert set(found) == whole | part
    assert set(given_) == part


@given(POSITIONS, POSITIONS)
def test_remove_is_difference(whole: set[int], part: set[int]) -> None:
    found, given_ = BitMap64(whole), BitMap64(part)
    sets.remove(found, given_)
    assert set(found) == whole - part
    assert set(given_) == part


@given(POSITIONS, POSITIONS)
def test_without_leaves_both_as_they_are(part: set[int], whole: set[int]) -> None:
    found, given_ = BitMap64(part), BitMap64(whole)
    assert set(sets.without(found, given_)) == part - whole
    assert (set(found), set(given_)) == (part, whole)


@given(POSITIONS, st.integers(0, 50), st.integers(0, 100_000), st.integers(0, 100))
def test_lowest_are_the_first_ones_in_between(
    positions: set[int], count: int, stop: int, at: int
) -> None:
    expected = sorted(one for one in positions if at <= one < stop)[:count]
    assert list(sets.lowest(BitMap64(positions), count, stop, at)) == expected


@given(POSITIONS, st.integers(0, 70))
def test_split_takes_the_first_ones_out(positions: set[int], count: int) -> None:
    left = BitMap64(positions)
    part = sets.split(left, count)
    assert list(part) == sorted(positions)[:count]
    assert list(left) == sorted(positions)[count:]


@given(POSITIONS, st.sampled_from([0, 1, 30, 70_001, FAR + 1, FAR * 2]))
def test_below_is_what_is_before(positions: set[int], stop: int) -> None:
    assert set(sets.below(BitMap64(positions), stop)) == {p for p in positions if p < stop}


@given(POSITIONS, st.integers(0, 70))
def test_first_of_is_the_lowest_from_there(positions: set[int], at: int) -> None:
    expected = min((one for one in positions if one >= at), default=None)
    assert sets.first_of(BitMap64(positions), at) == expected


@settings(max_examples=30)
@given(EDGE_RUNS, st.sampled_from(EDGES), st.sampled_from(EDGES), st.sampled_from([0, 1 << 40]))
def test_what_is_used_of_bitmaps_is_right_at_the_edges_of_blocks(
    runs: list[list[int]], one: int, other: int, base: int
) -> None:
    """The library's own: `contains_range` is wrong there, and is not used."""
    first, end = base + min(one, other), base + max(one, other)
    found, known = BitMap64(), set[int]()
    for low, high in runs:
        found.add_range(base + low, base + high)
        known.update(range(base + low, base + high))
    inside = {position for position in known if first <= position < end}
    assert found.range_cardinality(first, end) == len(inside)
    assert found.rank(end) == sum(position <= end for position in known)
    assert next(found.iter_equal_or_larger(first), None) == min(
        (position for position in known if position >= first), default=None
    )
    if known and max(known) >= first:
        assert found.next_set_bit(first) == min(p for p in known if p >= first)
    assert found.flip(first, end) == BitMap64(known ^ set(range(first, end)))
    assert found & sets.span(first, end) == BitMap64(inside)
    assert found - sets.span(first, end) == BitMap64(known - inside)
    found.remove_range(first, end)
    assert found == BitMap64(known - inside)


def test_the_lowest_ones_end_where_a_block_without_positions_begins() -> None:
    """A position that is not in the set would be given to a consumer."""
    whole = BitMap64(range(1, BLOCK)) | BitMap64([2 * BLOCK])
    assert sets.lowest(whole, BLOCK) == whole
    assert sets.lowest(whole, BLOCK - 1) == BitMap64(range(1, BLOCK))


def test_contains_range_is_not_used() -> None:
    sources = Path(sets.__file__).parents[2].rglob("*.py")
    assert [path.name for path in sources if "contains_range(" in path.read_text()] == []
