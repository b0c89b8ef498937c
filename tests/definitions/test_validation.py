"""Queues beside each other and with what is recorded (zbroker/definitions/validation.py)."""

from __future__ import annotations

from typing import Any

import pytest

from zbroker.config import QueueConfig, RecordConfig
from zbroker.definitions import BadQueue, changed, check_queue, check_queues
from zbroker.definitions.validation import FIXED
from zbroker.recording import Recording

EVERYTHING = Recording([])
SOME = Recording([RecordConfig("a"), RecordConfig("b", filter="/x > 1")])


def refused(*queues: QueueConfig, recording: Recording = EVERYTHING) -> BadQueue:
    with pytest.raises(BadQueue) as caught:
        check_queues(queues, recording)
    return caught.value


def test_queues_of_one_topic_are_many() -> None:
    check_queues([QueueConfig("q", topic="a"), QueueConfig("r", topic="a")], EVERYTHING)


def test_a_name_means_one_queue() -> None:
    error = refused(QueueConfig("q"), QueueConfig("r"), QueueConfig("q", topic="a"))
    assert (error.index, error.key) == (2, "name")
    assert "defined by table 1, too" in error.reason


def test_the_table_that_cannot_be_is_named() -> None:
    error = refused(QueueConfig("q"), QueueConfig("r", filter="/a >"))
    assert (error.index, error.key) == (1, "filter")


def test_nothing_of_a_topic_that_is_not_recorded_can_be_in_a_queue() -> None:
    check_queues([QueueConfig("a"), QueueConfig("q", topic="b", dead_letter="a")], SOME)
    assert refused(QueueConfig("q"), recording=SOME).key == "topic"
    assert refused(QueueConfig("a", topic="c"), recording=SOME).key == "topic"


def test_a_pattern_takes_what_is_recorded_of_it() -> None:
    check_queue(QueueConfig("q", topic="c.*", regex=True), SOME)


def test_dead_letters_are_recorded() -> None:
    error = refused(QueueConfig("a", dead_letter="c"), recording=SOME)
    assert (error.key, "would be lost" in error.reason) == ("dead_letter", True)


def test_what_may_change_does() -> None:
    old = QueueConfig("q", topic="t", lease=5_000, max_backlog=100)
    new = changed(old, {"lease": "1m", "retry_delay": ["1s", 10], "dead_letter": "d"})
    assert new == QueueConfig(
        "q", topic="t", lease=60_000, max_backlog=100, retry_delay=[1_000, 10], dead_letter="d"
    )
    assert changed(new, {}) == new
    assert changed(new, {"retry_delay": [], "max_backlog": 0}).retry_delay == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "other"),
        ("topic", "u"),
        ("regex", True),
        ("kind", "replayable"),
        ("filter", "/a"),
        ("recovery_point", "now"),
        ("priority", "/a"),
        ("group_key", "/a"),
        ("barrier", "/a"),
        ("semantics", "at-most-once"),
    ],
)
def test_what_a_life_keeps_cannot_change(key: str, value: Any) -> None:
    assert key in FIXED
    with pytest.raises(BadQueue, match=f"`{key}` of queue 'q' cannot change") as caught:
        changed(QueueConfig("q", topic="t"), {key: value})
    assert caught.value.key == key


def test_settings_as_a_whole_change_what_they_leave_out_to_its_default() -> None:
    old = QueueConfig("q", topic="t", filter="/a", lease=5_000)
    assert changed(old, QueueConfig("q", topic="t", filter="/a")).lease == 30_000
    with pytest.raises(BadQueue, match="`filter` of queue 'q' cannot change"):
        changed(old, QueueConfig("q", topic="t"))


def test_what_stays_as_it_is_may_be_named() -> None:
    old = QueueConfig("q", topic="t", filter="/a")
    assert changed(old, {"name": "q", "topic": "t", "filter": "/a", "lease": 1}).lease == 1


@pytest.mark.parametrize(
    ("new", "part"),
    [
        ({"leese": 1}, "did you mean `lease`"),
        ({"lease": -1}, ">= 0"),
        ({"max_backlog": 10}, "no consumer can reach"),
        ({"dead_letter": "t"}, "takes 't'"),
        ({"expiration_model": "queue"}, "needs an `expiration`"),
    ],
)
def test_a_change_to_what_cannot_be_is_refused(new: dict[str, Any], part: str) -> None:
    with pytest.raises(BadQueue) as caught:
        changed(QueueConfig("q", topic="t"), new)
    assert part in str(caught.value)
