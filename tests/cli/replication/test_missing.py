"""`zbroker-admin replication missing` lists what is not in the log."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.replication.rows import ALL, links, run
from zbroker.cli.replication.queries import NOTHING

ROW = {"origin": "10b714bc24174273.5", "first": 1, "last": 900, "why": "state"}


def test_each_range_is_a_row(fake: FakeAdmin) -> None:
    fake.answers[ALL] = links() | {"missing": [ROW]}
    lines = run(fake.data, "missing").stdout.splitlines()
    assert "10b714bc24174273.5" in lines[-1]
    assert "900" in lines[-1]
    assert json.loads(run(fake.data, "missing", "--json").stdout) == {"missing": [ROW]}


def test_a_whole_log_says_so(fake: FakeAdmin) -> None:
    fake.answers[ALL] = links() | {"missing": []}
    assert NOTHING in run(fake.data, "missing").stdout


def test_a_log_that_waits_says_so_in_ls(fake: FakeAdmin) -> None:
    fake.answers[ALL] = links() | {"waits": "the log is empty, and b did not answer yet"}
    assert "b did not answer yet" in run(fake.data, "ls").stderr
