"""Claims about the demo over three instances that need none of them."""

from __future__ import annotations

from collections import Counter

from zbroker.demo import copies


def test_the_same_flights_do_not_differ() -> None:
    assert copies._differ(Counter(b"ab"), Counter(b"ba")) == ""


def test_what_is_lost_and_what_came_again_is_counted() -> None:
    found = Counter([b"1", b"2", b"2", b"2"])
    expected = Counter([b"1", b"2", b"3", b"3"])
    assert copies._differ(found, expected) == "2 are missing, 2 too many"
