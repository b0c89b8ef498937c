"""zbroker/queues/work/offers.py: fairness: which consumer gets how many messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from zbroker.queues.work.consumers import QueueConsumer
from zbroker.queues.work.offers import next_of, share


def consumer(number: int, held: int, backlog: int) -> QueueConsumer:
    made = QueueConsumer(number, "c", number, backlog, since=1_000 - number)
    made.held = BitMap64(range(number << 20, (number << 20) + held))
    return made


def members(pairs: list[tuple[int, int]]) -> list[QueueConsumer]:
    return [consumer(at + 1, held, held + spare) for at, (held, spare) in enumerate(pairs)]


MEMBERS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=6)
ABLE = MEMBERS.map(members)


@given(st.sampled_from(["proportional", "round-robin", "fast"]), ABLE, st.integers(1, 300))
def test_a_consumer_group_shares_all_that_there_is_space_for(
    model: str, able: list[QueueConsumer], count: int
) -> None:
    shares = share(model, able, count, 0)
    assert sum(some for _, some in shares) == min(count, sum(one.spare for one in able))
    assert all(0 < some <= one.spare for one, some in shares)
    assert len({one.key for one, _ in shares}) == len(shares)


@given(ABLE, st.integers(1, 300))
def test_proportional_fairness_gives_to_the_smallest_share_first(
    able: list[QueueConsumer], count: int
) -> None:
    got = {one.key: some for one, some in share("proportional", able, count, 0)}
    held = {one.key: len(one.held) + got.get(one.key, 0) for one in able}
    for one in able:
        for other in able:
            if one.key in got and held[other.key] < other.backlog:
                before = (held[one.key] - 1) / one.backlog
                assert before <= (held[other.key] + 1) / other.backlog + 1e-9


@given(ABLE, st.integers(1, 300), st.integers(0, 7))
def test_in_turn_is_one_after_the_other(able: list[QueueConsumer], count: int, turn: int) -> None:
    shares = share("round-robin", able, count, turn)
    expected, last = dict.fromkeys((one.key for one in able), 0), turn
    for _ in range(min(count, sum(one.spare for one in able))):
        open_ = [one.key for one in able if expected[one.key] < one.spare]
        last = min(open_, key=lambda key: (key <= last, key))
        expected[last] += 1
    assert {one.key: some for one, some in shares} == {k: n for k, n in expected.items() if n}
    assert shares[-1][0].number == last


@given(ABLE, st.integers(1, 300))
def test_fast_fills_up_who_has_had_process_for_longest(
    able: list[QueueConsumer], count: int
) -> None:
    shares = share("fast", able, count, 0)
    order = sorted(able, key=lambda one: one.since)
    assert [one.key for one, _ in shares] == [one.key for one in order[: len(shares)]]
    assert all(some == one.spare for one, some in shares[:-1])


@given(ABLE)
def test_who_is_next_is_who_would_get_the_only_one(able: list[QueueConsumer]) -> None:
    for model in ("proportional", "round-robin", "fast"):
        assert next_of(model, able, 2).key == share(model, able, 1, 2)[0][0].key
