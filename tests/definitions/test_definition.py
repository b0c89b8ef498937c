"""A queue as it works (zbroker/definitions/definition.py)."""

from __future__ import annotations

from typing import Any

import pytest

from zbroker.config import QueueConfig
from zbroker.definitions import BadQueue, compile_queue


def refused(**keys: Any) -> BadQueue:
    with pytest.raises(BadQueue) as caught:
        compile_queue(QueueConfig(**{"name": "q", **keys}))
    assert caught.value.code == "bad_queue"
    return caught.value


def test_a_queue_takes_the_topic_of_its_name_unless_told() -> None:
    named, told = compile_queue(QueueConfig("q")), compile_queue(QueueConfig("q", topic="t"))
    assert [named.topics(topic) for topic in ("q", "t")] == [True, False]
    assert [told.topics(topic) for topic in ("q", "t")] == [False, True]


def test_a_pattern_fits_whole_topics() -> None:
    found = compile_queue(QueueConfig("q", topic="a|b.*", regex=True))
    assert [found.topics(topic) for topic in ("a", "bc", "ab", "c")] == [True, True, False, False]


def test_a_definition_knows_whose_it_is() -> None:
    config = QueueConfig("q")
    found = compile_queue(config, 3, 77, "admin")
    assert (found.config, found.life, found.created, found.source) == (config, 3, 77, "admin")


@pytest.mark.parametrize("key", ["filter", "priority", "barrier", "group_key"])
def test_whatever_is_asked_of_messages_needs_payloads(key: str) -> None:
    found = compile_queue(QueueConfig("q", **{key: "/a > 1"}))  # type: ignore[arg-type]
    assert found.needs_payload
    assert getattr(found, key).text == "/a > 1"
    others = {"filter", "priority", "barrier", "group_key"} - {key}
    assert [name for name in others if getattr(found, name) is not None] == []


def test_a_plain_queue_needs_no_payload() -> None:
    assert not compile_queue(QueueConfig("q", expiration=5)).needs_payload


def test_messages_of_a_work_queue_only_can_expire() -> None:
    assert compile_queue(QueueConfig("q")).needs_times
    assert not compile_queue(QueueConfig("q", kind="replayable")).needs_times


@pytest.mark.parametrize(
    ("point", "begins"),
    [
        ("epoch", "0"),
        ("now", "0|1|"),
        ("0", "0"),
        ("12|34|", "12|34|"),
        ("20240131T120000Z", "20240131T120000Z"),
        ("000000000000000a.1.77", "000000000000000a.1.77"),
    ],
)
def test_a_recovery_point_is_what_the_journal_can_look_up(point: str, begins: str) -> None:
    assert compile_queue(QueueConfig("q", recovery_point=point)).begins == begins


@pytest.mark.parametrize(
    ("keys", "key", "part"),
    [
        ({"name": "$q"}, "name", "begins with '$'"),
        ({"name": ""}, "name", "1 to 255 bytes"),
        ({"name": "a\n"}, "name", "printable"),
        ({"name": "é" * 128}, "name", "255 bytes"),
        ({"name": "\ud800"}, "name", "printable"),
        ({"topic": "a\n"}, "topic", "printable"),
        ({"topic": "(", "regex": True}, "topic", "pattern cannot be used"),
        ({"filter": "/a >"}, "filter", "column 5"),
        ({"barrier": "("}, "barrier", "column 2"),
        ({"priority": "/a +"}, "priority", "column 5"),
        ({"group_key": "nothing"}, "group_key", "column 1"),
        ({"dead_letter": "a\n"}, "dead_letter", "printable"),
        ({"dead_letter": "q"}, "dead_letter", "takes 'q'"),
        ({"topic": ".*", "regex": True, "dead_letter": "d"}, "dead_letter", "takes 'd'"),
        ({"recovery_point": "soon"}, "recovery_point", "'soon' is not of the form"),
        ({"recovery_point": ""}, "recovery_point", "is not of the form"),
        ({"recovery_point": "20241331T120000Z"}, "recovery_point", "names no date"),
        ({"recovery_point": "1|2|,3|4|"}, "recovery_point", "is not of the form"),
        ({"priority": "/a", "barrier": "/b"}, "priority", "pass the barrier"),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_its_key(
    keys: dict[str, Any], key: str, part: str
) -> None:
    error = refused(**keys)
    assert error.key == key
    assert part in f"{error.reason} {error.hint}"


@pytest.mark.parametrize("key", ["filter", "priority", "barrier", "group_key"])
@pytest.mark.parametrize("call", ["UNIX_TIMESTAMP()", "CLIENT_NAME()", "OWN(/a)"])
def test_an_expression_that_may_change_its_answer_makes_no_queue(key: str, call: str) -> None:
    """The log is read again, and must give the same queue."""
    keys: dict[str, Any] = {key: f"{call} > 1"}
    with pytest.raises(BadQueue) as caught:
        compile_queue(QueueConfig("q", **keys))
    assert caught.value.key == key
