"""A queue as it works (zbroker/definitions/definition.py)."""

from __future__ import annotations

from typing import Any

import pytest

from zbroker.config import QueueConfig
from zbroker.definitions import BadQueue, compile_queue
from zbroker.definitions.definition import RETRY_DELAYS_MAX, refuse_impossible
from zbroker.errors import Refused


def refused(**keys: Any) -> BadQueue:
    with pytest.raises(BadQueue) as caught:
        compile_queue(QueueConfig(**{"name": "q", **keys}))
    assert caught.value.code == "bad_queue"
    return caught.value


def test_a_queue_takes_the_topic_of_its_name_unless_another_is_given() -> None:
    named, reported = compile_queue(QueueConfig("q")), compile_queue(QueueConfig("q", topic="t"))
    assert [named.topics(topic) for topic in ("q", "t")] == [True, False]
    assert [reported.topics(topic) for topic in ("q", "t")] == [False, True]


def test_a_pattern_fits_whole_topics() -> None:
    found = compile_queue(QueueConfig("q", topic="a|b.*", regex=True))
    assert [found.topics(topic) for topic in ("a", "bc", "ab", "c")] == [True, True, False, False]


def test_a_definition_knows_whose_it_is() -> None:
    config = QueueConfig("q")
    found = compile_queue(config, 3, 77, "admin")
    assert (found.config, found.declaration, found.created, found.source) == (
        config,
        3,
        77,
        "admin",
    )


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
        ({"dead_letter_key": "k"}, "dead_letter_key", "no `dead_letter`"),
        ({"dead_letter": "d", "dead_letter_key": "k" * 256}, "dead_letter_key", "255 bytes"),
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


AT_MOST_ONCE = {"semantics": "at-most-once"}
REPLAYABLE = {"kind": "replayable"}
REJECT = {"overflow": "reject-publish"}
GROUP_LOCAL = {"scope": "group-local", "initial_owner": "a"}


def queue(**keys: Any) -> QueueConfig:
    return QueueConfig("q", **keys)


@pytest.mark.parametrize(
    ("keys", "key", "why"),
    [
        ({"priority": "/a", "barrier": "/b"}, "priority", "pass the barrier"),
        ({"priority": "/a", "group_key": "/b"}, "priority", "stay in order"),
        ({"max_backlog": 9, "max_per_subscription": 10}, "max_per_subscription", "no consumer can"),
        ({"max_hold": 1}, "max_hold", "until it is acknowledged"),
        ({"max_hold": 1, **AT_MOST_ONCE}, "max_hold", "replayable"),
        ({"expiration_model": "queue"}, "expiration_model", "needs an `expiration`"),
        ({"expiration_model": "latest"}, "expiration_model", "needs an `expiration`"),
        ({"expiration_model": "earliest"}, "expiration_model", "needs an `expiration`"),
        ({"retry_delay": [1] * (RETRY_DELAYS_MAX + 1)}, "retry_delay", "100 delays"),
        ({**AT_MOST_ONCE, "max_deliveries": 1}, "max_deliveries", "delivered once"),
        ({**AT_MOST_ONCE, "max_cancels": 1}, "max_cancels", "cannot be given back"),
        ({**AT_MOST_ONCE, "retry_delay": [1]}, "retry_delay", "nothing is sent again"),
        ({**AT_MOST_ONCE, "fairness": "proportional"}, "fairness", "how much leased"),
        ({**AT_MOST_ONCE, "fairness": "fast"}, "fairness", "how much leased"),
        ({**AT_MOST_ONCE, "lease": 1_000}, "lease", "gone before it is sent"),
        ({**REPLAYABLE, "lease": 1_000}, "lease", "nothing is leased"),
        ({**REPLAYABLE, "max_backlog": 100}, "max_backlog", "nothing is leased"),
        ({**REPLAYABLE, "max_per_subscription": 1}, "max_per_subscription", "credit"),
        ({**REPLAYABLE, **AT_MOST_ONCE}, "semantics", "nothing goes"),
        ({**REPLAYABLE, "fairness": "fast"}, "fairness", "one consumer"),
        ({**REPLAYABLE, "leasing": "strict"}, "leasing", "nothing is leased"),
        ({**REPLAYABLE, "priority": "/a"}, "priority", "order of the log"),
        ({**REPLAYABLE, "barrier": "/a"}, "barrier", "order of the log"),
        ({**REPLAYABLE, "group_key": "/a"}, "group_key", "order of the log"),
        ({**REPLAYABLE, "expiration": 1}, "expiration", "until it is purged"),
        ({**REPLAYABLE, "max_deliveries": 1}, "max_deliveries", "not a failure"),
        ({**REPLAYABLE, "max_cancels": 1}, "max_cancels", "given back"),
        ({**REPLAYABLE, "retry_delay": [1]}, "retry_delay", "given back"),
        ({**REPLAYABLE, "dead_letter": "d"}, "dead_letter", "given up"),
        ({**REPLAYABLE, "dead_letter": "d", "dead_letter_key": "k"}, "dead_letter", "given up"),
        ({**REPLAYABLE, **REJECT}, "overflow", "max_hold"),
        ({**REJECT}, "overflow", "never full"),
        ({**REJECT, "max_length": 1, "filter": "/a"}, "overflow", "headers exchange"),
        ({**REJECT, "max_bytes": 1, **GROUP_LOCAL}, "overflow", 'scope = "distributed"'),
    ],
)
def test_a_contradiction_is_refused_with_its_reason(
    keys: dict[str, Any], key: str, why: str
) -> None:
    with pytest.raises(BadQueue) as caught:
        refuse_impossible(queue(**keys))
    error = caught.value
    assert isinstance(error, Refused)
    assert (error.code, error.key) == ("bad_queue", key)
    assert error.reason.startswith("queue 'q': ")
    assert why in error.reason + error.hint
    assert error.hint


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"priority": "/a", "filter": "/b", "max_backlog": 64},
        {"barrier": "/a", "group_key": "/b"},
        {"expiration": 1, "expiration_model": "latest"},
        {"retry_delay": [1] * RETRY_DELAYS_MAX, "max_deliveries": 3, "max_cancels": 3},
        {**AT_MOST_ONCE, "fairness": "round-robin", "lease": 0, "max_backlog": 100},
        {**AT_MOST_ONCE, "priority": "/a", "dead_letter": "d", "expiration": 5},
        {**REPLAYABLE, "filter": "/a", "recovery_point": "now", "size_alarm": 1, "idle_alarm": 0},
        {**REPLAYABLE, "max_hold": 1},
        {**REJECT, "max_length": 1, "priority": "/a", "regex": True},
        {**REJECT, "max_bytes": 1, **AT_MOST_ONCE, "scope": "distributed"},
        {**REJECT, "max_length": 1, "bound": True},
    ],
)
def test_what_goes_together_is_not_refused(keys: dict[str, Any]) -> None:
    refuse_impossible(queue(**keys))


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"scope": "group-local", "kind": "replayable", "initial_owner": "a"}, "scope"),
        ({"scope": "distributed", "group_key": "/a"}, "group_key"),
        ({"scope": "distributed", "initial_owner": "a"}, "initial_owner"),
        ({"scope": "local", "initial_owner": "a"}, "initial_owner"),
        ({"scope": "group-local"}, "initial_owner"),
        ({"scope": "distributed", "expires": 5}, "expires"),
        ({"scope": "distributed", "single_active_consumer": True}, "single_active_consumer"),
        ({"scope": "distributed", "auto_delete": True}, "auto_delete"),
    ],
)
def test_a_scope_that_contradicts_other_settings_is_refused(
    settings: dict[str, Any], key: str
) -> None:
    with pytest.raises(BadQueue) as raised:
        compile_queue(QueueConfig("q", **settings))
    assert raised.value.key == key
    assert raised.value.hint


def test_a_group_local_queue_may_have_a_group_key() -> None:
    compile_queue(QueueConfig("q", scope="group-local", initial_owner="a", group_key="/a"))


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"topic": "orders"}, "topic"),
        ({"regex": True}, "regex"),
        ({"kind": "replayable"}, "bound"),
        ({"recovery_point": "2026-01-01"}, "recovery_point"),
    ],
)
def test_a_bound_queue_has_what_bindings_say(more: dict[str, Any], key: str) -> None:
    with pytest.raises(BadQueue) as caught:
        compile_queue(QueueConfig("q", bound=True, **more))
    assert caught.value.key == key


def test_a_bound_queue_takes_no_topic_and_has_its_names() -> None:
    made = compile_queue(QueueConfig("q", bound=True), lives=[(5, 1, 2)])
    assert not made.topics("q")
    assert made.names == {("q", (5, 1, 2))}
    assert compile_queue(QueueConfig("q"), lives=[]).names == frozenset()
