"""`zbroker-admin transaction ls` lists distributed transactions."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.exchange.rows import run
from tests.cli.transaction.rows import ROW

FOUND = {"left_out": 0, "transactions": [ROW, ROW | {"here": False, "state": "rolled_back"}]}


def test_each_transaction_is_a_line(fake: FakeAdmin) -> None:
    fake.answers["GET /transactions?limit=1000"] = FOUND
    here, there = run(fake.data, "transaction", "ls").stdout.splitlines()
    assert here == (
        'principal=shop xid=7:transfer-1:broker state=prepared age="1.5 h" instance=here '
        "messages=2 locked=1 queues=orders,bills session=billing prepared=20261127T101500Z"
    )
    assert "state=rolled_back" in there
    assert "instance=10b714bc24174273" in there


def test_json_is_what_the_admin_says(fake: FakeAdmin) -> None:
    fake.answers["GET /transactions?principal=shop&limit=1000"] = FOUND
    result = run(fake.data, "transaction", "ls", "--principal", "shop", "--json")
    assert json.loads(result.stdout) == FOUND


def test_more_than_are_shown_are_counted(fake: FakeAdmin) -> None:
    fake.answers["GET /transactions?limit=1"] = FOUND | {"left_out": 4}
    assert "4 more" in run(fake.data, "transaction", "ls", "--limit", "1").stderr


def test_none_is_good(fake: FakeAdmin) -> None:
    fake.answers["GET /transactions?limit=1000"] = {"left_out": 0, "transactions": []}
    result = run(fake.data, "transaction", "ls")
    assert result.stdout == "no distributed transaction waits for a decision\n"
