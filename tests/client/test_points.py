"""What users may write for `since` and `until`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from zbroker.client.points import since_text, until_text
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin


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


def test_until_now_is_the_end_at_subscribing():
    assert until_text("now") == "now"


def test_until_takes_a_bookmark():
    assert until_text("7|8|") == "7|8|"


@pytest.mark.parametrize("since", ["yesterday", "1|2", "", [], ["1|2|", 3], "20131304T000000Z", 17])
def test_what_is_no_point_is_refused_before_it_is_sent(since):
    with pytest.raises((ZBrokerError, TypeError)) as raised:
        since_text(since)
    assert getattr(raised.value, "code", "bad_bookmark") == "bad_bookmark"
