"""What users give for a message, checked before it is queued."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

import zbroker
from zbroker import LocalBroker
from zbroker.client.publisher.packer import Extra
from zbroker.client.values import CheckedTopics, to_bytes, to_expiry, to_extra, to_headers
from zbroker.errors import ZBrokerError
from zbroker.limits import EXTRA_MAX_BYTES, U63_MAX

FROM_NS = 1_000_000_000
SCALARS = {"s": "é", "i": 1, "f": 0.5, "b": True, "bin": b"\xff", "none": None}


@pytest.mark.parametrize(
    ("expires", "expected"),
    [
        (5, 5),
        (U63_MAX, U63_MAX),
        (timedelta(milliseconds=1), FROM_NS + 1_000_000),
        ("10s", FROM_NS + 10_000_000_000),
        (datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC), 2_000_000_000),
        (datetime(1970, 1, 1, 0, 0, 2), 2_000_000_000),
        (datetime(1970, 1, 1, 1, 0, 2, tzinfo=timezone(timedelta(hours=1))), 2_000_000_000),
    ],
)
def test_an_expiry_is_a_time_or_counts_from_one(expires, expected):
    assert to_expiry(expires, FROM_NS) == expected


@pytest.mark.parametrize(
    "expires", [0, -1, U63_MAX + 1, "soon", "10", timedelta(0), timedelta(seconds=-1)]
)
def test_an_expiry_that_is_no_time_is_refused(expires):
    with pytest.raises(ZBrokerError, match="expires=") as raised:
        to_expiry(expires, FROM_NS)
    assert raised.value.code == "bad_field"


@pytest.mark.parametrize("expires", [1.5, True, b"10s", object()])
def test_an_expiry_of_another_type_is_a_mistake(expires):
    with pytest.raises(TypeError, match="expires is a datetime"):
        to_expiry(expires, FROM_NS)


def test_a_key_is_bytes():
    assert to_bytes(bytearray(b"k"), "key") == to_bytes(memoryview(b"k"), "key") == b"k"
    with pytest.raises(TypeError, match="encode"):
        to_bytes("k", "key")
    with pytest.raises(TypeError, match="not int"):
        to_bytes(1, "key")


def test_headers_are_a_copy():
    given = dict(SCALARS)
    found = to_headers(given)
    given["s"] = "changed"
    assert found == SCALARS


@pytest.mark.parametrize(
    ("headers", "what"),
    [
        ([("a", 1)], "a mapping, not list"),
        ("", "a mapping, not str"),
        ({1: "a"}, "name of a header is a str, not int"),
        ({"a": 1, "b": [1]}, "header 'b' .*, not list"),
        ({"a": {}}, "header 'a' .*, not dict"),
        ({"a": datetime(2026, 1, 1)}, "header 'a' .*, not datetime"),
    ],
)
def test_headers_of_another_type_are_a_mistake(headers, what):
    with pytest.raises(TypeError, match=what):
        to_extra(None, headers, None, 0)


@pytest.mark.parametrize("headers", [{"a": 1 << 64}, {"a": "\ud800"}, {"\ud800": 1}])
def test_headers_that_msgpack_cannot_hold_are_refused(headers):
    with pytest.raises(ZBrokerError, match="a header cannot be sent") as raised:
        to_extra(None, headers, None, 0)
    assert raised.value.code == "bad_field"


def test_key_and_headers_have_a_limit_together():
    key = bytes(EXTRA_MAX_BYTES - 3 - len(b"\x81\xa1a\x01"))
    extra, size = to_extra(key, {"a": 1}, None, 0)
    assert (extra, size) == (Extra(key, {"a": 1}), EXTRA_MAX_BYTES)
    with pytest.raises(ZBrokerError, match="16384 bytes, these 16385") as raised:
        to_extra(key, {"ab": 1}, None, 0)
    assert raised.value.code == "too_large"


def test_no_headers_are_empty_headers():
    assert to_extra(b"k", {}, None, 0)[0] == Extra(b"k")


def test_one_topic_is_for_all() -> None:
    assert CheckedTopics().check_many("a", 3) == "a"


def test_each_may_have_its_own() -> None:
    topics = CheckedTopics().check_many(("a", "b", "a"), 3)
    assert topics == ["a", "b", "a"]


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
