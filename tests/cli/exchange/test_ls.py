"""`zbroker-admin exchange ls` lists exchanges."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.exchange.rows import EVENTS, run
from tests.cli.journals import Maker

FOUND = {"exchanges": [EVENTS]}


def test_each_exchange_is_a_line(fake: FakeAdmin) -> None:
    fake.answers["GET /exchanges"] = FOUND
    assert run(fake.data, "exchange", "ls").stdout == (
        "name=events kind=topic bindings=1 alternate=- auto_delete=no internal=no predeclared=no\n"
    )


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers["GET /exchanges"] = FOUND
    assert json.loads(run(fake.data, "exchange", "ls", "--json").stdout) == FOUND


def test_without_an_instance_the_exit_code_is_not_found(maker: Maker) -> None:
    assert run(maker.directory.parent, "exchange", "ls").exit_code == 3
