"""zbroker/queues/ages.py: how old, and how much of the log."""

from __future__ import annotations

from zbroker.queues import ages
from zbroker.queues.ages import STEP, Ages


def _filled(batches: int) -> Ages:
    made = Ages()
    for number in range(batches):
        made.add(1 + number * STEP, 10 * number, 100)
    return made


def test_a_position_has_the_time_of_the_mark_before_it() -> None:
    made = _filled(10)
    assert made.at(1) == (0, 0)
    assert made.at(STEP) == (0, 0)
    assert made.at(1 + 3 * STEP) == (30, 300)
    assert made.total == 1_000


def test_nothing_is_known_of_what_stands_before_the_first_mark() -> None:
    assert _filled(3).at(0) == (None, 0)
    assert Ages().at(5) == (None, 0)


def test_what_is_forgotten_changes_nothing_behind_it() -> None:
    made = _filled(10)
    made.forget(1 + 5 * STEP)
    assert made.at(1 + 5 * STEP) == (50, 500)
    assert made.at(1 + 4 * STEP) == (None, 0)


def test_marks_are_bounded() -> None:
    made = _filled(2 * ages.MARKS_MAX)
    assert len(made.dump()) < 8 * 3 * (ages.MARKS_MAX + 2)
    last = 2 * ages.MARKS_MAX - 1
    time_ns, size = made.at(1 + last * STEP)
    assert time_ns is not None
    assert 0 <= 10 * last - time_ns <= 40
    assert 0 <= 100 * last - size <= 400


def test_what_was_saved_is_loaded() -> None:
    made, other = _filled(10), Ages()
    other.load(made.dump())
    assert other.dump() == made.dump()
    assert other.at(1 + 3 * STEP) == made.at(1 + 3 * STEP)
