"""What no queue can be (zbroker/definitions/impossible.py)."""

from __future__ import annotations

from typing import Any

import pytest

from zbroker.config import QueueConfig
from zbroker.definitions.impossible import RETRY_DELAYS_MAX, BadQueue, refuse_impossible
from zbroker.errors import Refused

AT_MOST_ONCE = {"semantics": "at-most-once"}
REPLAYABLE = {"kind": "replayable"}


def queue(**keys: Any) -> QueueConfig:
    return QueueConfig("q", **keys)


@pytest.mark.parametrize(
    ("keys", "key", "why"),
    [
        ({"priority": "/a", "barrier": "/b"}, "priority", "pass the barrier"),
        ({"priority": "/a", "group_key": "/b"}, "priority", "stay in order"),
        ({"max_backlog": 9}, "max_per_subscription", "no consumer can reach"),
        ({"max_backlog": 9, "max_per_subscription": 10}, "max_per_subscription", "max_backlog"),
        ({"max_hold": 1}, "max_hold", "until somebody has done it"),
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
    ],
)
def test_what_goes_together_is_not_refused(keys: dict[str, Any]) -> None:
    refuse_impossible(queue(**keys))
