"""Queues beside each other and with what is recorded (zbroker/definitions/validation.py)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zbroker.config import QueueConfig, RecordConfig
from zbroker.definitions import BadQueue, changed, check_queue, check_queues, read_table
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


@pytest.mark.parametrize("keys", [{"expires": 5}, {"auto_delete": True}])
def test_a_queue_of_the_config_does_not_end_by_itself(keys: dict[str, Any]) -> None:
    [key] = keys
    assert refused(QueueConfig("q"), QueueConfig("r", **keys)).key == key
    check_queue(QueueConfig("r", **keys), EVERYTHING)


def test_a_name_of_another_broker_is_answered_with_the_one_here() -> None:
    with pytest.raises(BadQueue) as refused:
        read_table({"name": "q", "ttl": "5s"})
    assert "`expiration`" in refused.value.hint


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
        ({"max_backlog": 10, "max_per_subscription": 11}, "no consumer can reach"),
        ({"dead_letter": "t"}, "takes 't'"),
        ({"expiration_model": "queue"}, "needs an `expiration`"),
    ],
)
def test_a_change_to_what_cannot_be_is_refused(new: dict[str, Any], part: str) -> None:
    with pytest.raises(BadQueue) as caught:
        changed(QueueConfig("q", topic="t"), new)
    assert part in str(caught.value)


DURATIONS = st.integers(0, 366 * 86_400_000)
CONFIGS = st.builds(
    QueueConfig,
    st.text("ab", min_size=1, max_size=3),
    topic=st.sampled_from(["", "t"]),
    regex=st.booleans(),
    lease=DURATIONS,
    max_per_subscription=st.integers(0, 1_000_000),
    retry_delay=st.lists(DURATIONS, max_size=3),
    size_alarm=st.integers(0, 1 << 60),
)


@given(CONFIGS)
def test_settings_that_were_a_map_are_the_same(config: QueueConfig) -> None:
    assert read_table(msgspec.to_builtins(config)) == config
    assert read_table(msgspec.msgpack.decode(msgspec.msgpack.encode(config))) == config


def test_sizes_and_durations_are_taken_as_in_the_file() -> None:
    found = read_table({"name": "q", "lease": "1m", "retry_delay": ["1s", 5], "size_alarm": "1KiB"})
    assert found == QueueConfig("q", lease=60_000, retry_delay=[1_000, 5], size_alarm=1_024)


@pytest.mark.parametrize(
    ("table", "key", "part"),
    [
        ({}, "name", "missing required field `name`"),
        ({"name": 5}, "name", "Expected `str`"),
        ({"name": "q", "lese": 1}, "name", "did you mean `lease`?"),
        ({"name": "q", "zzz": 1}, "name", "there are: name"),
        ({"name": "q", "lease": "soon"}, "lease", 'write "100ms"'),
        ({"name": "q", "lease": -1}, "lease", ">= 0"),
        ({"name": "q", "lease": None}, "lease", "Expected `int`"),
        ({"name": "q", "retry_delay": ["x"]}, "retry_delay", "'x' is not a duration"),
        ({"name": "q", "retry_delay": [1, [2]]}, "retry_delay", "Expected `int`"),
        ({"name": "q", "fairness": "never"}, "fairness", "'never'"),
        ({"name": "q", "scope": "everywhere"}, "scope", "'everywhere'"),
    ],
)
def test_a_wrong_table_is_refused_with_its_key(table: dict[str, Any], key: str, part: str) -> None:
    with pytest.raises(BadQueue) as caught:
        read_table(table)
    assert caught.value.key == key
    assert part in str(caught.value)
    assert "$" not in caught.value.reason
