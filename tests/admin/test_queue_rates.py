"""zbroker/admin/queue_rates.py: how much happened lately."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.admin.queue_rows import row
from zbroker.admin.queue_rates import DEAD_LATELY_S, LATELY_S, Growth

WORK = ("work", 1)


def acked(*counts: int) -> Growth:
    growth = Growth()
    for at_s, count in enumerate(counts):
        growth.take([row(acked=count)], at_s)
    return growth


def rate(growth: Growth) -> float:
    return growth.rates(WORK)["acked_s"]


def test_a_rate_is_how_much_a_counter_grew() -> None:
    assert rate(acked(10, 15, 25)) == 7.5


def test_a_rate_is_of_the_last_seconds() -> None:
    assert rate(acked(0, 1_000, *[1_000] * LATELY_S)) == 0


def test_the_first_look_knows_no_rate() -> None:
    assert rate(acked(500)) == 0
    assert Growth().rates(WORK) == {"entered_s": 0.0, "delivered_s": 0.0, "acked_s": 0.0}


def test_a_counter_that_fell_began_anew() -> None:
    assert rate(acked(100, 7, 9)) == 4.5


@given(st.lists(st.integers(0, 100), max_size=30))
def test_what_has_grown_never_falls(counts: list[int]) -> None:
    growth, before = Growth(), 0
    for at_s, count in enumerate(counts):
        growth.take([row(acked=count)], at_s)
        assert growth.grown["acked"] >= before
        before = growth.grown["acked"]
        assert rate(growth) >= 0


def test_a_queue_that_goes_takes_nothing_back() -> None:
    growth = acked(0, 5)
    growth.take([], 2, [WORK])
    growth.take([row(acked=2, life=2)], 3)
    assert growth.grown["acked"] == 7, "made again it begins at 0"


def test_a_queue_that_comes_later_begins_at_nothing() -> None:
    growth = acked(3, 3)
    growth.take([row(acked=3), row("other", acked=4)], 2)
    assert growth.rates(("other", 1))["acked_s"] == 2.0


def test_dead_letters_are_news_for_a_while() -> None:
    growth = Growth()
    growth.take([row(dead=5)], 0)
    assert growth.dead() == {}, "what was before is old"
    growth.take([row(dead=7)], 1)
    growth.take([row(dead=8)], 2)
    assert growth.dead() == {"work": 3}
    growth.take([row(dead=8)], 1 + DEAD_LATELY_S)
    assert growth.dead() == {"work": 1}
    growth.take([row(dead=8)], 2 + DEAD_LATELY_S)
    assert growth.dead() == {}


def test_dead_letters_of_a_queue_that_is_gone_are_no_news() -> None:
    growth = Growth()
    growth.take([row()], 0)
    growth.take([row(dead=1)], 1)
    growth.take([row(life=2)], 2, [WORK])
    assert growth.dead() == {}


def test_a_queue_that_did_not_change_did_nothing() -> None:
    growth = acked(0, 10)
    growth.take([], 2)
    assert rate(growth) == 5.0
    growth.take([row(acked=14)], 3)
    assert (round(rate(growth), 1), growth.grown["acked"]) == (4.7, 14)
