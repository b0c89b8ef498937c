"""What users may write for `since` and `until`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from zbroker.client.subscriber.points import Range, since_text, until_text
from zbroker.errors import ZBrokerError
from zbroker.ids import NOW, Origin


@pytest.mark.seed("004-54")
@pytest.mark.parametrize(
    ("since", "text"),
    [
        ("epoch", "0"),
        ("0", "0"),
        ("now", "0|1|"),
        ("12|34|", "12|34|"),
        (["1|2|", "3|4|"], "1|2|,3|4|"),
        ("1|2|,3|4|", "1|2|,3|4|"),
        ("20130704T000000Z", "20130704T000000Z"),
        (datetime(2013, 7, 4, tzinfo=UTC), "20130704T000000Z"),
        (datetime(2013, 7, 4, 2, tzinfo=timezone(timedelta(hours=2))), "20130704T000000Z"),
        ({Origin(10, 1): 5}, "000000000000000a.1.5"),
        ("000000000000000a.1.5", "000000000000000a.1.5"),
    ],
)
def test_since_becomes_its_wire_text(since, text):
    assert since_text(since) == text


NOON = datetime(2013, 7, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("since", "text"),
    [
        ("[1|2|:3|4|)", "[1|2|:3|4|)"),
        ("(epoch:now]", "(0:0|1|]"),
        ("[1|2|:)", "[1|2|:)"),
        ("[:1|2|,3|4|]", "[0:1|2|,3|4|]"),
        (Range(NOON, NOON + timedelta(hours=1)), "[20130704T120000Z:20130704T130000Z)"),
        (Range("1|2|", NOON, "(]"), "(1|2|:20130704T120000Z]"),
        (Range(["1|2|", "3|4|"], ["5|6|", "7|8|"], "[]"), "[1|2|,3|4|:5|6|,7|8|]"),
        (Range({Origin(10, 1): 5}, "now", "()"), "(000000000000000a.1.5:0|1|)"),
        (Range(end="1|2|"), "[0:1|2|)"),
        (Range("1|2|"), "[1|2|:)"),
    ],
)
def test_a_range_becomes_its_wire_text(since, text):
    assert since_text(since) == text


@pytest.mark.parametrize(
    "since",
    [
        Range(),
        Range("1|2|", brackets="[["),
        Range("1|2|", brackets="["),
        Range("1|2|", brackets=""),
        Range("1|2|", brackets="[)]"),
        Range("", "1|2|"),
        Range("1|2|", "yesterday"),
        Range(Range("1|2|"), "1|3|"),
        "[1|2|:3|4|",
        "[1|2|)",
        "[1|2|:3|4|:5|6|)",
        "[:)",
        "[1|2|:yesterday)",
    ],
    ids=str,
)
def test_what_is_no_range_is_refused_before_it_is_sent(since):
    with pytest.raises((ZBrokerError, TypeError)) as raised:
        since_text(since)
    assert getattr(raised.value, "code", "bad_bookmark") == "bad_bookmark"


@pytest.mark.parametrize("until", ["[1|2|:3|4|)", Range("1|2|", "3|4|")])
def test_until_takes_no_range(until):
    with pytest.raises(ZBrokerError, match="a range is in `since`"):
        until_text(until)


def test_until_now_is_the_end_at_subscribing():
    assert until_text("now") == "now"


def test_until_takes_a_bookmark():
    assert until_text("7|8|") == "7|8|"


@pytest.mark.seed("004-54")
@pytest.mark.parametrize("since", ["yesterday", "1|2", "", [], ["1|2|", 3], "20131304T000000Z", 17])
def test_what_is_no_point_is_refused_before_it_is_sent(since):
    with pytest.raises((ZBrokerError, TypeError)) as raised:
        since_text(since)
    assert getattr(raised.value, "code", "bad_bookmark") == "bad_bookmark"


@pytest.mark.seed("003-26")
def test_a_named_point_is_a_place_to_begin_and_to_end():
    assert since_text("point:end of day, 5") == until_text("point:end of day, 5")
    assert since_text(Range("point:a", "point:b")) == "[point:a:point:b)"
    assert since_text("(point:a:now]") == f"(point:a:{NOW}]"
    for wrong in ("point:", "point:" + "x" * 256, "point:\n"):
        with pytest.raises(ZBrokerError, match="bad_bookmark"):
            since_text(wrong)
