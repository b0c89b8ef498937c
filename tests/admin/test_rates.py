"""zbroker/admin/rates.py: rates and history from counters."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.admin.queue_rows import row
from zbroker.admin.rates import (
    COARSE_S,
    DEAD_LATELY_S,
    FINE_S,
    LATELY_S,
    SERIES,
    STEP_S,
    Growth,
    Rings,
)


def stats(messages: int, **more: Any) -> dict[str, dict[str, Any]]:
    return {"ingest": {"messages": messages, "clients": 2}, **more}


def taken(*messages: int) -> Rings:
    rings = Rings()
    for at, count in enumerate(messages):
        rings.take(stats(count), at)
    return rings


def rates(rings: Rings) -> list[float | None]:
    found: list[float | None] = rings.history(FINE_S, 1e9, 1e9)["series"]["messages_in_s"]
    return found


def series(rings: Rings, name: str, seconds: int = FINE_S, now_s: float = 100) -> list[Any]:
    found: list[Any] = rings.history(seconds, now_s, now_s)["series"][name]
    return found


def test_a_rate_is_how_much_a_counter_grew() -> None:
    assert series(taken(10, 15, 15, 40), "messages_in_s") == [None, 5, 0, 25]


def test_a_rate_is_per_second() -> None:
    rings = Rings()
    rings.take(stats(0), 0)
    rings.take(stats(30), 2)
    assert series(rings, "messages_in_s") == [None, 15]


def test_a_counter_that_fell_began_again() -> None:
    assert series(taken(100, 7, 9), "messages_in_s") == [None, 7, 2]


@given(st.lists(st.integers(0, 100), min_size=2, max_size=30))
def test_no_rate_is_negative(counts: list[int]) -> None:
    found = series(taken(*counts), "messages_in_s")
    assert all(rate is not None and rate >= 0 for rate in found[1:])


def test_a_process_that_is_silent_for_a_while_is_no_burst() -> None:
    rings = Rings()
    for at, process in enumerate([{"messages": 100}, {}, {"messages": 103}]):
        rings.take({"ingest": process}, at)
    assert series(rings, "messages_in_s") == [None, 0, 3]


def test_a_worker_that_comes_later_is_no_burst() -> None:
    rings = Rings()
    rings.take({"delivery": {"messages_out": 5}}, 0)
    rings.take({"delivery": {"messages_out": 7}, "delivery-2": {"messages_out": 900}}, 1)
    rings.take({"delivery": {"messages_out": 7}, "delivery-2": {"messages_out": 901}}, 2)
    assert series(rings, "messages_out_s") == [None, 2, 1]


def test_workers_are_reported_together() -> None:
    rings = Rings()
    one, other = {"subscriptions": 3, "lag_max": 10}, {"subscriptions": 4, "lag_max": 7}
    rings.take({"delivery": one, "delivery-2": other}, 0)
    assert (series(rings, "subscriptions"), series(rings, "lag_max")) == ([7], [10])


def test_what_no_one_tells_is_not_known() -> None:
    rings = taken(1)
    assert series(rings, "fsync_ms") == [None]
    assert series(rings, "clients") == [2]


def test_a_history_has_the_published_keys() -> None:
    found = taken(1, 2).history(60, 10, 1_000)
    assert found["step_s"] == 1
    assert found["times"] == [990, 991]
    assert set(found["series"]) == set(SERIES)
    assert all(len(numbers) == 2 for numbers in found["series"].values())


def test_a_clock_that_jumps_moves_all_times_alike() -> None:
    found = taken(1, 2, 3).history(60, 2, 5_000)
    assert found["times"] == [4_998, 4_999, 5_000]


def test_only_so_much_is_reported_as_is_wanted() -> None:
    rings = taken(*range(100))
    assert rings.history(10, 99, 99)["times"] == list(range(89, 100))


def test_both_rings_are_bounded() -> None:
    rings = taken(*range(2 * COARSE_S))
    end = 2 * COARSE_S - 1
    assert len(rings.history(FINE_S, end, end)["times"]) == FINE_S
    coarse = rings.history(COARSE_S, end, end)
    assert coarse["step_s"] == STEP_S
    assert COARSE_S // STEP_S <= len(coarse["times"]) <= COARSE_S // STEP_S + 1
    assert coarse["series"]["messages_in_s"][-1] == 1


def test_a_step_is_the_mean_of_its_seconds() -> None:
    rings = Rings()
    for at in range(2 * STEP_S):
        lag = {"delivery": {"lag_max": at}}
        rings.take(stats(at * at, **lag), at)
    found = rings.history(COARSE_S, 20, 20)
    assert found["times"] == [STEP_S - 1, 2 * STEP_S - 1]
    first = sum(2 * at - 1 for at in range(1, STEP_S)) / (STEP_S - 1)
    second = sum(2 * at - 1 for at in range(STEP_S, 2 * STEP_S)) / STEP_S
    assert found["series"]["messages_in_s"] == [first, second]
    assert found["series"]["lag_max"] == [STEP_S - 1, 2 * STEP_S - 1], "of these the largest"


def test_an_hour_is_reported_from_the_first_second_on() -> None:
    assert taken(1, 5).history(COARSE_S, 1, 1)["series"]["messages_in_s"] == [4]


def test_rates_are_those_of_the_last_seconds() -> None:
    assert Rings().rates() == {
        "bytes_in_s": 0.0, "bytes_out_s": 0.0, "messages_in_s": 0.0, "messages_out_s": 0.0,
        "queue_acked_s": 0.0, "queue_delivered_s": 0.0, "queue_in_s": 0.0,
    }  # fmt: skip
    rings = taken(0, 1_000, 1_000, 1_000, 1_010, 1_020, 1_040)
    assert rings.rates()["messages_in_s"] == 8.0


WORK = ("work", 1)


def acked(*counts: int) -> Growth:
    growth = Growth()
    for at_s, count in enumerate(counts):
        growth.take([row(acked=count)], at_s)
    return growth


def rate(growth: Growth) -> float:
    return growth.rates(WORK)["acked_s"]


def test_a_rate_is_how_much_a_counter_grew_for_queues() -> None:
    assert rate(acked(10, 15, 25)) == 7.5


def test_a_rate_is_of_the_last_seconds() -> None:
    assert rate(acked(0, 1_000, *[1_000] * LATELY_S)) == 0


def test_the_first_look_knows_no_rate() -> None:
    assert rate(acked(500)) == 0
    assert Growth().rates(WORK) == {"entered_s": 0.0, "delivered_s": 0.0, "acked_s": 0.0}


def test_a_counter_that_fell_began_again_for_queues() -> None:
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
