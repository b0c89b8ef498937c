"""`zbroker-admin client ls` tells who is connected."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from tests.cli.admins import FakeAdmin
from tests.cli.client.rows import FOUND
from tests.cli.journals import Maker
from zbroker.cli.admin_main import main

ALL = "GET /clients?limit=1000"


def ls(data: Any, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), "client", "ls", *arguments])


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers[ALL] = FOUND
    assert json.loads(ls(fake.data, "--json").stdout) == FOUND


def test_each_connection_is_a_line_those_of_a_client_together(fake: FakeAdmin) -> None:
    fake.answers[ALL] = FOUND
    assert ls(fake.data).stdout.splitlines() == [
        "client=pricer principal=ann door=delivery address=10.0.0.1:5000 connected_s=60 acked=- "
        "window_bytes=- messages=41 subscriptions=2 heartbeat_s=- room=delivery-2",
        "client=pricer principal=ann door=ingest address=10.0.0.1:5000 connected_s=60 acked=40 "
        "window_bytes=512 messages=41 subscriptions=0 heartbeat_s=- room=ingest",
    ]


def test_what_is_wanted_is_asked_for(fake: FakeAdmin) -> None:
    fake.answers["GET /clients?client=a+b&limit=3"] = FOUND
    assert ls(fake.data, "--client", "a b", "--limit", "3").exit_code == 0


def test_what_is_not_reported_is_said(fake: FakeAdmin) -> None:
    fake.answers[ALL] = {"clients": [], "silent": ["delivery-2"], "left_out": 4}
    result = ls(fake.data)
    assert result.stdout == "no client is connected\n"
    assert result.stderr.splitlines() == [
        "delivery-2 does not answer: its clients are not among these",
        "4 more; see --limit and --client",
    ]


def test_without_an_instance_the_exit_code_is_not_found(maker: Maker) -> None:
    assert ls(maker.directory.parent).exit_code == 3
