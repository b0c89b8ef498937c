"""What users write for the options of a subscription."""

from __future__ import annotations

from datetime import timedelta

import pytest

from zbroker.client.subscriber.options import filter_text, subscribe_options
from zbroker.delivery.pace import parse_rate
from zbroker.errors import ZBrokerError
from zbroker.wire import codec
from zbroker.wire.messages import Options, Subscribe


def options_of(**given):
    """The options of the command; None if all of them are the defaults."""
    return subscribe_options("a", **given).command.options


def test_defaults_are_nothing_to_send():
    assert options_of() is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (3, 3.0), (0.5, 0.5), ("10s", 10.0), ("250ms", 0.25), ("1.5m", 90.0), (" 2 h ", 7200.0),
        ("1d", 86_400.0), (timedelta(milliseconds=40), 0.04),
    ],
)  # fmt: skip
def test_a_duration_may_be_written_in_many_ways(value, seconds):
    assert options_of(conflation=value).conflation_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    ["10", "s", "-1s", "", 0, -1, True, None, float("nan"), float("inf"), timedelta(0),
     timedelta(seconds=-1), 10**9, [], "1 week"],
)  # fmt: skip
def test_what_is_no_duration_is_refused(value):
    if value is None:
        assert options_of(conflation=None) is None
        return
    with pytest.raises(ZBrokerError, match=r"bad_field: conflation="):
        options_of(conflation=value)


def test_a_bookmark_may_be_waited_for_not_at_all():
    assert options_of(bookmark_wait=0) is None
    assert options_of(bookmark_wait="2s").wait_s == 2.0


@pytest.mark.parametrize(
    "rate", [1, 0.5, 1000, "1000", "0.5", ".5", "500KB", "1MB", "1MiB", "3 gib", "7B", "2X", ".5x"]
)
def test_a_rate_is_what_the_broker_takes(rate):
    assert options_of(rate=rate).rate == rate
    parse_rate(rate)


@pytest.mark.parametrize(
    "rate",
    [0, -1, True, "", "fast", "0", "2Y", "X", "1e3", "-5", "1 000", float("nan"), 10**13, []],
)
def test_what_is_no_rate_is_refused(rate):
    with pytest.raises(ZBrokerError, match=r"bad_field: rate="):
        options_of(rate=rate)


@pytest.mark.parametrize(
    "wishes",
    [
        {"delivery": "soon"}, {"limit": 0}, {"limit": True}, {"limit": 1.5}, {"paused": 1},
        {"select": ""}, {"select": 5}, {"conflation": 1, "conflation_key": [5]},
        {"conflation": 1, "conflation_key": ""}, {"conflation_key": "/id"}, {"rate_max_gap": 1},
        {"conflation_clock": "log"}, {"conflation": 1, "conflation_clock": "wall"},
        {"rate": 100, "rate_max_gap": 1}, {"rate": "500KB", "rate_max_gap": 1},
        {"delivery": "live", "rate": 5}, {"delivery": "live", "paused": True},
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(wishes):
    with pytest.raises(ZBrokerError) as raised:
        options_of(**wishes)
    assert raised.value.code == "bad_field"


def test_one_key_or_several():
    assert options_of(conflation=1, conflation_key="/id").conflation_key == ["/id"]
    assert options_of(conflation=1).conflation_clock == "replay"
    assert options_of(conflation=1, conflation_clock="log").conflation_clock == "log"
    assert options_of(rate=1).conflation_clock == "log", "nothing that an old broker does not know"
    assert options_of(conflation=1, conflation_key=("/a", "/b")).conflation_key == ["/a", "/b"]


def test_the_empty_filter_is_none():
    assert (filter_text(None), filter_text(""), filter_text("/a")) == (None, None, "/a")
    with pytest.raises(ZBrokerError, match="bad_field"):
        filter_text(5)


def test_what_is_taken_here_is_taken_by_the_broker():
    options = options_of(
        delivery="fully_durable", rate="2X", rate_max_gap="366d", conflation="1ms",
        conflation_key=["/a"], select="/a", limit=1, paused=True, bookmark_wait="366d",
    )  # fmt: skip
    frame = codec.encode(Subscribe("s", "t", options=options))
    decoded = codec.decode(codec.DELIVERY, frame)
    assert (type(decoded.options), decoded.options) == (Options, options)
