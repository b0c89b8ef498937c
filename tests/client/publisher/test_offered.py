"""zbroker/client/publisher/offered.py: what is published is checked before any of it is queued."""

from __future__ import annotations

import pytest

import zbroker
from zbroker import LocalBroker
from zbroker.client.publisher import offered
from zbroker.client.publisher.offered import CheckedTopics
from zbroker.errors import ZBrokerError


def test_one_topic_is_for_all() -> None:
    assert CheckedTopics().check_many("a", 3) == "a"
    assert list(zip(offered.parts("a", 0, 2), "xy", strict=False)) == [("a", "x"), ("a", "y")]


def test_each_may_have_its_own() -> None:
    topics = CheckedTopics().check_many(("a", "b", "a"), 3)
    assert topics == ["a", "b", "a"]
    assert list(offered.parts(topics, 1, 3)) == ["b", "a"]


def test_there_is_one_for_each() -> None:
    with pytest.raises(ValueError, match="3 payloads have 2 topics"):
        CheckedTopics().check_many(["a", "b"], 3)


@pytest.mark.parametrize("wrong", ["", ["a", ""]])
def test_a_bad_topic_is_refused(wrong: str | list[str]) -> None:
    with pytest.raises(ZBrokerError, match="bad_topic"):
        CheckedTopics().check_many(wrong, 2)


@pytest.mark.parametrize("wrong", [5, [5, "a"], b"a"])
def test_a_topic_is_a_text(wrong: object) -> None:
    with pytest.raises(TypeError):
        CheckedTopics().check_many(wrong, 2)  # type: ignore[arg-type]


@pytest.mark.process
@pytest.mark.parametrize("size", [10, 3_000])
def test_many_messages_of_many_topics_come_in_their_order(size: int) -> None:
    topics = [f"many.{n % 7}" for n in range(2_500)]
    payloads = [b"%d " % n + b"x" * size for n in range(2_500)]
    with LocalBroker() as broker, zbroker.connect(broker.url) as client:
        client.publish_many(topics, payloads).wait(30)
        client.flush(30)
        with client.subscribe("many.*", regex=True, since="epoch", until="now") as subscription:
            got = [(message.topic, message.data) for message in subscription]
    assert got == list(zip(topics, payloads, strict=True))
