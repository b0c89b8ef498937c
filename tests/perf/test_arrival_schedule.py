"""Claims about a publisher at a fixed rate, with a clock of the test's own."""

from __future__ import annotations

import pytest

from perf.arrival_schedule import LEAD_S, STAMP, Arrivals, Schedule, pace


class FakeClock:
    """Moves when somebody sleeps, or when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + 1e-9  # a real sleep is never too short


def test_a_message_is_due_when_its_time_has_come() -> None:
    schedule = Schedule(rate=100, seconds=1.0)
    assert [schedule.due_by(at) for at in (-0.1, 0.0, 0.009, 0.011, 5.0)] == [0, 1, 1, 2, 100]


def test_messages_come_one_by_one_at_the_rate() -> None:
    clock = FakeClock()
    stamps = [
        STAMP.unpack_from(payload)
        for some in pace(Schedule(10, 1.0), clock, clock.sleep)
        for payload in some
    ]
    due = [at - 100.0 - LEAD_S for at, _ in stamps]
    assert due == pytest.approx([n / 10 for n in range(10)])
    assert [sent for _, sent in stamps] == pytest.approx([at for at, _ in stamps], abs=1e-6)


def test_payloads_have_a_hundred_bytes() -> None:
    clock = FakeClock()
    sizes = {len(one) for some in pace(Schedule(10, 1.0), clock, clock.sleep) for one in some}
    assert sizes == {100}


def test_a_stall_of_the_publisher_makes_its_messages_late_instead_of_leaving_them_out() -> None:
    clock, arrivals, sizes = FakeClock(), Arrivals(), []
    for number, some in enumerate(pace(Schedule(10, 2.0), clock, clock.sleep)):
        if number == 5:
            clock.now += 0.75  # publish() did not return
        sizes.append(len(some))
        arrivals.take(some, clock.now)
    assert sum(sizes) == 20
    assert max(sizes) == 7  # all that became due meanwhile, together
    late = [seconds for seconds in arrivals.from_due if seconds > 0.01]
    assert late == pytest.approx([0.75, 0.65, 0.55, 0.45, 0.35, 0.25, 0.15, 0.05])


def test_the_time_since_sending_does_not_see_that_stall() -> None:
    clock, arrivals = FakeClock(), Arrivals()
    for number, some in enumerate(pace(Schedule(10, 2.0), clock, clock.sleep)):
        arrivals.take(some, clock.now)
        if number == 5:
            clock.now += 0.75
    assert max(arrivals.from_sent) < 0.01 < max(arrivals.from_due)
