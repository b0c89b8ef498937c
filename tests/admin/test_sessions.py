"""/sessions: what the queues process says, as JSON; what it is asked to end."""

from __future__ import annotations

import pytest

from tests.admin.queue_rows import FakeQueues
from zbroker.admin import requests
from zbroker.admin.requests import parse, parse_query
from zbroker.admin.sessions import SessionReports
from zbroker.errors import ClientError
from zbroker.wire import queue_surveys as q
from zbroker.wire import session_surveys as y

BEGUN_NS = 1_700_000_000_000_000_000
ROW = y.SurveyedSession(
    "shop", "billing", BEGUN_NS, 0xAB, 5, 7, 2, 90, "worker-1", 60_000, "attached"
)


def test_sessions_have_the_published_keys() -> None:
    process = FakeQueues()
    process.say = lambda ask: y.SessionsSurveyed(ask.cid, [ROW], 3)
    reports = SessionReports(process.link)
    found = reports.sessions(parse_query(requests.SessionsQuery, "principal=shop&limit=1"))
    assert process.asked == [y.AskSessionRows(0, "shop", "", 1)]
    assert found == {
        "left_out": 3,
        "sessions": [
            {
                "principal": "shop", "session": "billing", "client": "worker-1",
                "begun": "20231114T221320Z", "epoch": str(BEGUN_NS),
                "instance": "00000000000000ab", "number": 7, "committed_in": "5", "messages": 2,
                "position": 90, "timeout_ms": 60_000, "state": "attached", "ended": "", "code": "",
                "text": "",
            }
        ],
    }  # fmt: skip


def test_the_end_of_a_session_is_a_change() -> None:
    process = FakeQueues()
    process.say = lambda ask: q.Changed(ask.cid, 1)
    reports = SessionReports(process.link)
    body = b'{"session": "billing", "principal": "shop", "dry_run": true}'
    assert reports.end(parse(requests.EndSessionRequest, body)) == {
        "principal": "shop", "session": "billing", "dry_run": True, "attached": 1
    }  # fmt: skip
    assert process.asked == [y.EndSession(0, "shop", "billing", dry_run=True)]


def test_one_that_is_not_there_is_an_error() -> None:
    process = FakeQueues()
    process.say = lambda ask: q.Changed(ask.cid, code="unknown_session", reason="no")
    with pytest.raises(ClientError) as refused:
        SessionReports(process.link).end(requests.EndSessionRequest("billing"))
    assert refused.value.code == "unknown_session"
