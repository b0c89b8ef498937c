"""`zbroker-admin session ls` lists sessions."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.exchange.rows import run

ROW = {
    "principal": "shop", "session": "billing", "client": "", "begun": "20261127T101500Z",
    "epoch": "1795774500000000000", "instance": "10b714bc24174273", "number": 7,
    "committed_in": "1795774400000000000", "messages": 2, "position": 90, "timeout_ms": 90_000,
    "state": "waiting", "ended": "", "code": "", "text": "",
}  # fmt: skip
FOUND = {"left_out": 0, "sessions": [ROW]}


def test_each_session_is_a_line(fake: FakeAdmin) -> None:
    fake.answers["GET /sessions?limit=1000"] = FOUND
    assert run(fake.data, "session", "ls").stdout == (
        "principal=shop session=billing client=- state=waiting timeout=90s ended=- "
        "begun=20261127T101500Z "
        "number=7 messages=2 position=90 instance=10b714bc24174273\n"
    )


def test_the_reason_of_an_end_is_shown(fake: FakeAdmin) -> None:
    ended = {"state": "ended", "ended": "exception", "code": "bad_order", "text": "no price"}
    fake.answers["GET /sessions?limit=1000"] = {"left_out": 0, "sessions": [ROW | ended]}
    assert "exception: bad_order: no price" in run(fake.data, "session", "ls").stdout


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers["GET /sessions?limit=1000"] = FOUND
    assert json.loads(run(fake.data, "session", "ls", "--json").stdout) == FOUND


def test_more_than_are_shown_are_counted(fake: FakeAdmin) -> None:
    fake.answers["GET /sessions?limit=1"] = FOUND | {"left_out": 4}
    result = run(fake.data, "session", "ls", "--limit", "1")
    assert "4 more" in result.stderr
