"""`zbroker-admin binding ls` lists bindings."""

from __future__ import annotations

import json

import pytest

from tests.cli.admins import FakeAdmin
from tests.cli.exchange.rows import BOUND, BOUND_LINE, OFFER, OFFER_LINE, bound, run


def test_each_binding_is_a_line(fake: FakeAdmin) -> None:
    fake.answers["GET /bindings?limit=1000"] = bound(BOUND, OFFER, left_out=7)
    result = run(fake.data, "binding", "ls")
    assert result.stdout == BOUND_LINE + OFFER_LINE
    assert "7 more" in result.stderr


def test_some_are_asked_for_by_name(fake: FakeAdmin) -> None:
    fake.answers["GET /bindings?exchange=events&queue=bills&limit=5"] = bound(BOUND)
    options = ["--exchange", "events", "--queue", "bills", "--limit", "5"]
    found = json.loads(run(fake.data, "binding", "ls", *options, "--json").stdout)
    assert found == bound(BOUND)


@pytest.mark.parametrize(
    ("options", "what"),
    [([], "no queue is bound\n"), (["--queue", "x"], "no queue is bound like that\n")],
)
def test_without_any_it_says_so(fake: FakeAdmin, options: list[str], what: str) -> None:
    query = "queue=x&limit=1000" if options else "limit=1000"
    fake.answers[f"GET /bindings?{query}"] = bound()
    assert run(fake.data, "binding", "ls", *options).stdout == what
