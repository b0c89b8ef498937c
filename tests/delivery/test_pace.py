"""Rates and their schedule, on a clock that the test moves."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import overload

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.delivery.pace import RATE_MAX, Rate, ReplayPace, parse_rate
from zbroker.errors import ClientError

MS = 1_000_000
SECOND = 1_000 * MS
BIG = 1 << 40


def nothing(count: int) -> list[int]:
    return [0] * count


# -- rates ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected", "canonical"),
    [
        ("1000", Rate("messages", Fraction(1000)), "1000"),
        (1000, Rate("messages", Fraction(1000)), "1000"),
        (1000.0, Rate("messages", Fraction(1000)), "1000"),
        ("0.5", Rate("messages", Fraction(1, 2)), "0.5"),
        (0.1, Rate("messages", Fraction(1, 10)), "0.1"),
        (1e-5, Rate("messages", Fraction(1, 100_000)), "0.00001"),
        ("1e3", None, ""),
        (" 7. ", Rate("messages", Fraction(7)), "7"),
        (RATE_MAX, Rate("messages", Fraction(RATE_MAX)), "1000000000000"),
        ("500KB", Rate("bytes", Fraction(500_000)), "500KB"),
        ("500 kb", Rate("bytes", Fraction(500_000)), "500KB"),
        ("1000KB", Rate("bytes", Fraction(1_000_000)), "1MB"),
        ("1MiB", Rate("bytes", Fraction(1 << 20)), "1MiB"),
        ("1.5KiB", Rate("bytes", Fraction(1536)), "1536B"),
        ("0.25B", Rate("bytes", Fraction(1, 4)), "0.25B"),
        ("1GB", Rate("bytes", Fraction(10**9)), "1GB"),
        ("2X", Rate("multiple", Fraction(2)), "2X"),
        (".5x", Rate("multiple", Fraction(1, 2)), "0.5X"),
        ("0", None, ""),
        ("0.0000001", None, ""),
        ("0X", None, ""),
        (0, None, ""),
        (-1, None, ""),
        ("-1", None, ""),
        (True, None, ""),
        (math.nan, None, ""),
        (math.inf, None, ""),
        ("nan", None, ""),
        (RATE_MAX + 1, None, ""),
        ("1001GB", None, ""),
        ("9" * 33, None, ""),
        ("9" * 5_000, None, ""),
        ("", None, ""),
        (".", None, ""),
        ("KB", None, ""),
        ("2XX", None, ""),
        ("1 2", None, ""),
        ("1TB", None, ""),
        ("\u0661", None, ""),
    ],
)
def test_a_rate_is_read(text: str | int | float, expected: Rate | None, canonical: str) -> None:
    if expected is None:
        with pytest.raises(ClientError, match="rate ") as caught:
            parse_rate(text)
        assert caught.value.code == "bad_field"
    else:
        assert parse_rate(text) == expected
        assert str(expected) == canonical


@given(
    number=st.decimals(min_value="0.000001", max_value="999999999", places=6),
    unit=st.sampled_from(["", "X", "B", "KB", "kib", "MB", "MiB"]),
)
def test_the_text_of_a_rate_gives_the_same_rate(number: object, unit: str) -> None:
    try:
        rate = parse_rate(f"{number}{unit}")
    except ClientError:
        return  # out of range with this unit
    assert parse_rate(str(rate)) == rate
    assert hash(parse_rate(str(rate))) == hash(rate)


# -- the schedule -----------------------------------------------------------------------------


def test_the_first_message_goes_at_once() -> None:
    pace = ReplayPace(parse_rate(10))
    assert pace.take(5 * SECOND, nothing(3), nothing(3)) == 1
    assert pace.next_ns == 5 * SECOND + SECOND // 10


def test_a_rate_limit_sends_a_message_when_it_is_due() -> None:
    pace = ReplayPace(parse_rate(10))
    pace.take(0, nothing(1), nothing(1))
    assert pace.take(SECOND // 10 - 1, nothing(1), nothing(1)) == 0
    assert pace.take(SECOND // 10, nothing(1), nothing(1)) == 1


def test_a_large_message_is_waited_for_after_it_went() -> None:
    pace = ReplayPace(parse_rate("1KB"))
    assert pace.take(0, nothing(2), [5_000, 1]) == 1
    assert pace.next_ns == 5 * SECOND
    assert pace.take(5 * SECOND, nothing(2), [1, 1]) == 1


def test_a_multiple_follows_log_time() -> None:
    pace = ReplayPace(parse_rate(".5X"))
    assert pace.take(0, [100, 200, 200, 300], nothing(4)) == 1
    assert pace.next_ns == 200
    assert pace.take(200, [200, 200, 300], nothing(3)) == 2
    assert pace.next_ns == 400


def test_log_time_that_goes_back_is_no_gap() -> None:
    pace = ReplayPace(parse_rate("1X"))
    assert pace.take(0, [100, 50, 100, 101], nothing(4)) == 3
    assert pace.next_ns == 1


def test_a_process_that_was_busy_catches_up() -> None:
    pace = ReplayPace(parse_rate(10))
    pace.take(0, nothing(1), nothing(1))
    assert pace.take(5 * SECOND, nothing(99), nothing(99)) == 50


def test_an_offer_of_nothing_is_no_rest() -> None:
    pace = ReplayPace(parse_rate(10))
    pace.take(0, nothing(1), nothing(1))
    assert pace.take(SECOND, [], []) == 0
    assert pace.take(5 * SECOND, nothing(99), nothing(99)) == 50


@pytest.mark.parametrize("rate", ["10", "10B", "0.00001X"])
def test_a_rest_earns_nothing(rate: str) -> None:
    times = [at * 1_000 for at in range(9)]
    pace = ReplayPace(parse_rate(rate))
    assert pace.take(0, times, [1] * 9) == 1
    pace.rest()
    assert pace.take(5 * SECOND, times[1:], [1] * 8) == 1
    assert pace.next_ns == 5 * SECOND + SECOND // 10


@pytest.mark.parametrize("rate", ["10", "10B", "0.00001X"])
def test_a_rest_brings_nothing_forward(rate: str) -> None:
    pace = ReplayPace(parse_rate(rate))
    assert pace.take(0, [0], [1]) == 1
    pace.rest()
    assert pace.take(MS, [1_000], [1]) == 0
    assert pace.next_ns == SECOND // 10


def test_an_idle_stretch_is_cut_to_the_longest_gap() -> None:
    pace = ReplayPace(parse_rate("2X"), max_gap_ns=10 * SECOND)
    hour = 3_600 * SECOND
    assert pace.take(0, [0, hour, hour + SECOND], nothing(3)) == 1
    assert pace.next_ns == 10 * SECOND
    assert pace.take(10 * SECOND - 1, [hour], nothing(1)) == 0
    assert pace.take(10 * SECOND, [hour, hour + SECOND], nothing(2)) == 1
    assert pace.next_ns == 10 * SECOND + SECOND // 2


def test_nothing_drifts_in_billions_of_messages() -> None:
    count = 7 * 10**9 + 1
    pace = ReplayPace(parse_rate(7))
    many = range(2 * count)
    assert pace.take(0, many, many) == 1
    assert pace.take(10**9 * SECOND - 1, many, many) == count - 2
    assert pace.take(10**9 * SECOND, many, many) == 1


class Watched(Sequence[int]):
    """A long sequence that knows how far it was looked at."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.seen = 0

    def __len__(self) -> int:
        return 10_000

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        assert isinstance(index, int)
        self.seen = max(self.seen, index + 1)
        return index * self.step


@pytest.mark.parametrize(
    ("rate", "read"), [("49", "none"), ("49KB", "sizes"), ("0.000049X", "times")]
)
def test_no_more_is_looked_at_than_goes(rate: str, read: str) -> None:
    pace = ReplayPace(parse_rate(rate))
    times, sizes = Watched(1_000), Watched(0)
    pace.take(0, range(1), [1_000])
    if read == "sizes":
        sizes.step = 42  # 48,000 bytes in the second that passed
    taken = pace.take(SECOND, times, sizes)
    assert 40 <= taken <= 50
    looked = {"times": times.seen, "sizes": sizes.seen}
    assert looked.pop(read, taken + 1) == taken + 1
    assert not any(looked.values())


# -- against a model --------------------------------------------------------------------------


@dataclass
class Model:
    """One message at a time, each after the one before it, in exact fractions."""

    rate: Rate
    max_gap_ns: int | None
    due: Fraction | None = None  # of the newest one sent
    time: int = 0
    size: int = 0
    resting: bool = True
    earliest: int = 0

    def due_of(self, time: int) -> Fraction:
        if self.due is None:
            return Fraction(self.earliest)
        if self.rate.kind == "messages":
            due = self.due + SECOND / self.rate.value
        elif self.rate.kind == "bytes":
            due = self.due + self.size * SECOND / self.rate.value
        else:
            due = self.due + max(0, time - self.time) / self.rate.value
            if self.max_gap_ns is not None and due > self.due + self.max_gap_ns:
                due = Fraction(math.ceil(self.due) + self.max_gap_ns)
        return Fraction(max(math.ceil(due), self.earliest)) if self.earliest else due

    def take(self, now_ns: int, times: Sequence[int], sizes: Sequence[int]) -> int:
        if times and self.resting:
            self.earliest, self.resting = now_ns, False
        for at, (time, size) in enumerate(zip(times, sizes, strict=True)):
            due = self.due_of(time)
            if due > now_ns:
                return at
            self.time = time if self.due is None else max(self.time, time)
            self.due, self.size, self.earliest = due, size, 0
        return len(times)


Turns = list[tuple[int, int, bool]]
SCALES = [1, 1_000, MS, SECOND]


@st.composite
def stories(draw: st.DrawFn, scales: list[int]) -> tuple[list[int], list[int], Turns]:
    """Log times, sizes, and turns: time that passes, how many are offered, whether it rests."""
    scale = draw(st.sampled_from(scales))
    gaps = draw(st.lists(st.integers(-3, 9), min_size=1, max_size=40))
    sizes = draw(st.lists(st.integers(0, 10_000), min_size=len(gaps), max_size=len(gaps)))
    passed = st.builds(int.__mul__, st.integers(0, 9), st.sampled_from(scales))
    turn = st.tuples(passed, st.integers(0, 5) | st.just(50), st.booleans())
    return list(accumulate(gap * scale for gap in gaps)), sizes, draw(st.lists(turn, max_size=30))


def compare(
    pace: ReplayPace, model: Model, start: int, story: tuple[list[int], list[int], Turns]
) -> None:
    times, sizes, turns = story
    now, at = start, 0
    for passed, count, rests in turns:
        now += passed
        offer = slice(at, at + count)
        taken = pace.take(now, times[offer], sizes[offer])
        assert taken == model.take(now, times[offer], sizes[offer])
        at += taken
        if taken < len(times[offer]):
            assert pace.next_ns == math.ceil(model.due_of(times[at])) > now
        if rests:
            pace.rest()
            model.resting = True


@given(
    rate=st.sampled_from(["1", "3", "0.7", "1000", "49999", "7B", "500KB", "1MiB"]),
    start=st.integers(1, BIG),
    story=stories(SCALES),
)
def test_what_goes_is_what_the_model_lets_go(
    rate: str, start: int, story: tuple[list[int], list[int], Turns]
) -> None:
    compare(ReplayPace(parse_rate(rate)), Model(parse_rate(rate), None), start, story)


def random_story(rng: random.Random) -> tuple[list[int], list[int], Turns]:
    """One whose log time and clock run about equally fast, in single ns."""
    gaps = [rng.randint(-3, 9) for _ in range(rng.randint(1, 12))]
    turns = [(rng.randint(0, 9), rng.randint(0, 4), rng.random() < 0.4) for _ in range(12)]
    return list(accumulate(gaps)), [0] * len(gaps), turns


@pytest.mark.parametrize("text", ["1X", "2X", ".5X", "0.3X", "9X"])
def test_a_multiple_lets_go_what_the_model_lets_go(text: str) -> None:
    rate = parse_rate(text)
    for seed in range(300):
        rng = random.Random(f"{text} {seed}")
        max_gap_ns = rng.choice([None, 1, 2, 5])
        compare(ReplayPace(rate, max_gap_ns), Model(rate, max_gap_ns), 1 + seed, random_story(rng))


@pytest.mark.seed("004-60")
@pytest.mark.seed("004-61")
@given(rate=st.sampled_from(["3", "1000", "49999", "500KB"]).map(parse_rate), story=stories(SCALES))
def test_it_is_never_more_than_one_message_ahead(
    rate: Rate, story: tuple[list[int], list[int], Turns]
) -> None:
    times, sizes, turns = story
    units = sizes if rate.kind == "bytes" else [1] * len(sizes)
    pace = ReplayPace(rate)
    now = at = 0
    for passed, count, rests in turns:
        now += passed if at else 0
        at += pace.take(now, times[at : at + count], sizes[at : at + count])
        assert sum(units[: max(0, at - 1)]) * SECOND <= now * rate.value
        if rests:
            pace.rest()


# -- accuracy ---------------------------------------------------------------------------------


def replayed(
    pace: ReplayPace, times: list[int], sizes: list[int], seconds: int, rng: random.Random
) -> list[int]:
    """When each message went, of a process that comes up to 5 ms late and offers what it has."""
    went: list[int] = []
    now = 0
    while now < seconds * SECOND:
        offer = slice(len(went), len(went) + rng.choice([1, 50, 1_000]))
        taken = pace.take(now, times[offer], sizes[offer])
        went += [now] * taken
        assert len(went) < len(times)
        if taken < len(times[offer]):
            assert pace.next_ns > now
            now = pace.next_ns + rng.randrange(5 * MS)
    return went


def units_before(rate: Rate, times: list[int], sizes: list[int]) -> list[float]:
    """What the rate counts that is before each message; the first has nothing before it."""
    if rate.kind == "messages":
        return list(range(len(times)))
    if rate.kind == "bytes":
        return [0, *accumulate(sizes)]
    return [(time - times[0]) / SECOND for time in times]


@pytest.mark.seed("004-59")
@pytest.mark.seed("004-60")
@pytest.mark.seed("004-61")
@pytest.mark.seed("004-63")
@pytest.mark.parametrize(
    "text", ["1", "2.5", "1000", "20000", "50000", "500KB", "3MB", "2X", ".5X"]
)
def test_a_throttle_keeps_within_two_percent_in_any_second(text: str) -> None:
    rng = random.Random(text)
    rate = parse_rate(text)
    seconds = 4 if rate.value > 100 else 20
    messages = {"messages": 1, "bytes": 1 / 700, "multiple": 600}[rate.kind] * rate.value
    count = int(messages * seconds) + 1_000
    times = list(accumulate(rng.randrange(4 * MS) for _ in range(count)))
    sizes = [rng.randrange(1, 1_500) for _ in range(count)]
    went = replayed(ReplayPace(rate), times, sizes, seconds, rng)
    before = units_before(rate, times, sizes)
    one = {"messages": 1, "bytes": 1_500, "multiple": 0.004}[rate.kind]
    for length in (1, seconds - 1):
        for start in range(0, (seconds - length) * SECOND, 77 * MS):
            first, last = (bisect_left(went, at) for at in (start, start + length * SECOND))
            error = abs(before[last] - before[first] - length * rate.value)
            assert error <= 0.02 * length * rate.value + one
