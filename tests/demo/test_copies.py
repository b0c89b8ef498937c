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


def test_each_instance_sends_to_the_others_and_waits_for_one() -> None:
    ports = range(1, 6)
    made = [copies.DemoInstance(name, copies.Path(name), ports) for name in copies.NAMES]
    made[0].configure(made[1:])
    settings = made[0]._settings
    assert [table["name"] for table in settings["destination"]] == ["b", "c"]
    assert settings["replication"] == {"sync_needed": 1}
    assert made[0].listen["admin"] == "http://127.0.0.1:4"
