"""`zbroker-admin journal holders` tells who needs the log."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.journals import Maker, admin, run

HOLDERS = {
    "floor": 1,
    "persisted": 100,
    "silent": ["delivery"],
    "holders": [
        {"who": "a", "what": "replay of orders", "position": 7, "since": "20260101T000000Z"}
    ],
}


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers["GET /holders"] = HOLDERS
    assert json.loads(admin(fake.data, "--json", "journal", "holders").stdout) == HOLDERS


def test_each_holder_is_a_line(fake: FakeAdmin) -> None:
    fake.answers["GET /holders"] = HOLDERS
    assert admin(fake.data, "journal", "holders").stdout.splitlines() == [
        "floor     1",
        "persisted 100",
        "silent    delivery",
        'position=7 who=a what="replay of orders" since=20260101T000000Z',
    ]


def test_no_one_is_said_too(fake: FakeAdmin) -> None:
    fake.answers["GET /holders"] = HOLDERS | {"holders": []}
    assert admin(fake.data, "journal", "holders").stdout.endswith("nothing holds the log back\n")


def test_without_an_instance_the_exit_code_is_not_found(maker: Maker) -> None:
    assert run(maker, "holders").exit_code == 3
