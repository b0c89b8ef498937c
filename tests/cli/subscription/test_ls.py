"""`zbroker-admin subscription ls` tells who is how far behind."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from tests.cli.admins import FakeAdmin
from tests.cli.journals import Maker
from zbroker.cli.subscription import subscription
from zbroker.control.target import Target

ROW: dict[str, Any] = {
    "worker": "delivery", "client": "spark", "sid": "s1", "topic": "orders[.].*", "regex": True,
    "filter": "/price > 1", "options": {"rate": "2X"}, "state": "sending", "due_ms": None,
    "starts": None, "position": 40, "lag": 60, "lag_s": 1.5, "credit": 10, "sent_messages": 39,
    "sent_bytes": 3900, "since": "20260101T000000Z",
}  # fmt: skip
FOUND = {"persisted": 100, "silent": [], "left_out": 0, "subscriptions": [ROW]}
ALL = "GET /subscriptions?limit=100"


def ls(data: Any, *arguments: str) -> Result:
    target = Target(None, None, str(data), False)
    return CliRunner().invoke(subscription, ["ls", *arguments], obj=target)


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers[ALL] = FOUND
    assert json.loads(ls(fake.data, "--json").stdout) == FOUND


def test_each_subscription_is_a_line(fake: FakeAdmin) -> None:
    fake.answers[ALL] = FOUND
    assert ls(fake.data).stdout.splitlines() == [
        'client=spark sid=s1 topic=/orders[.].*/ filter="/price > 1" options=rate:2X state=sending '
        "position=40 lag=60 lag_s=1.5 in_hand=- credit=10 sent_messages=39 sent_bytes=3900 "
        "since=20260101T000000Z worker=delivery"
    ]


def test_what_is_wanted_is_asked_for(fake: FakeAdmin) -> None:
    fake.answers["GET /subscriptions?client=a+b&topic=x%26y&limit=3"] = FOUND
    result = ls(fake.data, "--client", "a b", "--topic", "x&y", "--limit", "3")
    assert result.stdout.startswith("client=spark")


def test_why_one_waits_says_until_when(fake: FakeAdmin) -> None:
    paced = ROW | {"state": "rate", "due_ms": 20}
    early = ROW | {"state": "future start", "starts": "20300101T000000Z", "regex": False}
    early["options"] = {}
    fake.answers[ALL] = FOUND | {"subscriptions": [paced, early]}
    first, second = ls(fake.data).stdout.splitlines()
    assert 'state="rate, next in 20 ms"' in first
    assert 'state="future start, 20300101T000000Z"' in second
    assert "topic=orders[.].* " in second
    assert "options=- " in second


def test_what_is_not_reported_is_said(fake: FakeAdmin) -> None:
    fake.answers[ALL] = FOUND | {"silent": ["delivery-2"], "left_out": 7, "subscriptions": []}
    result = ls(fake.data)
    assert result.stdout == "no client is subscribed\n"
    assert result.stderr.splitlines() == [
        "delivery-2 does not answer: its subscriptions are not among these",
        "7 more have a smaller lag; see --limit, --client, --topic",
    ]


def test_no_one_of_that_name_is_said_too(fake: FakeAdmin) -> None:
    fake.answers["GET /subscriptions?client=x&limit=100"] = FOUND | {"subscriptions": []}
    assert ls(fake.data, "--client", "x").stdout == "there is no such subscription\n"


def test_without_an_instance_the_exit_code_is_not_found(maker: Maker) -> None:
    assert ls(maker.directory.parent).exit_code == 3


def test_a_limit_that_no_answer_holds_is_a_mistake(fake: FakeAdmin) -> None:
    assert ls(fake.data, "--limit", "1001").exit_code == 2
