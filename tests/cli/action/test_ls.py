"""`zbroker-admin action ls` tells what was done to segments."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.journals import Maker, admin, run, segments

ACTIONS = [
    {"id": number, "time": "20260101T000000Z", "action": "archive", "by": "policy", "why": "old",
     "serials": [1, 2, 3], "bytes": 2048, "result": "done", "reason": "", "took_s": 1.5,
     "progress": {"done": 0, "total": 0}}
    for number in (3, 2, 1)
]  # fmt: skip


def test_the_newest_are_reported_first(fake: FakeAdmin) -> None:
    fake.answers["GET /actions"] = {"running": None, "actions": ACTIONS}
    found = json.loads(admin(fake.data, "--json", "action", "ls", "--limit", "2").stdout)
    assert found == {"running": None, "actions": ACTIONS[:2]}


def test_a_line_has_what_by_whom_and_why(fake: FakeAdmin) -> None:
    fake.answers["GET /actions"] = {"running": None, "actions": ACTIONS}
    line = admin(fake.data, "action", "ls").stdout.splitlines()[0]
    assert line.startswith("id=3 time=20260101T000000Z action=archive by=policy serials=1-3 ")
    assert "result=done" in line


def test_without_an_instance_the_file_tells(maker: Maker) -> None:
    segments(maker, 3)
    assert run(maker, "archive", "--through", "1").exit_code == 0
    assert run(maker, "compress", "--through", "2").exit_code == 0
    found = json.loads(admin(maker.directory.parent, "--json", "action", "ls").stdout)
    assert [(a["id"], a["action"], a["serials"]) for a in found["actions"]] == [
        (2, "compress", [1, 2]), (1, "archive", [1]),
    ]  # fmt: skip


def test_nothing_at_all_is_not_found(maker: Maker) -> None:
    maker.close()
    result = admin(maker.directory.parent, "action", "ls")
    assert result.exit_code == 3
    assert "no instance runs" in result.stderr
