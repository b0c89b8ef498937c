"""`zbroker-admin exchange info` shows an exchange with its bindings."""

from __future__ import annotations

import json

from tests.cli.admins import FakeAdmin
from tests.cli.exchange.rows import BOUND, BOUND_LINE, EVENTS, bound, run


def test_it_shows_what_is_bound(fake: FakeAdmin) -> None:
    fake.answers["GET /exchanges?exchange=events"] = {"exchanges": [EVENTS]}
    fake.answers["GET /bindings?exchange=events"] = bound(BOUND, left_out=4)
    result = run(fake.data, "exchange", "info", "events")
    assert result.stdout.startswith("name        events\nkind        topic\n")
    assert result.stdout.endswith(BOUND_LINE)
    assert "4 more; see binding ls" in result.stderr


def test_json_has_both(fake: FakeAdmin) -> None:
    fake.answers["GET /exchanges?exchange=events"] = {"exchanges": [EVENTS]}
    fake.answers["GET /bindings?exchange=events"] = bound(BOUND)
    found = json.loads(run(fake.data, "exchange", "info", "events", "--json").stdout)
    assert found == {"exchange": EVENTS, **bound(BOUND)}


def test_an_unknown_exchange_is_not_found(fake: FakeAdmin) -> None:
    reason = "there is no exchange 'none'"
    refusal = {"code": "unknown_exchange", "reason": reason, "hint": "look"}
    fake.answers["GET /exchanges?exchange=none"] = (404, refusal)
    result = run(fake.data, "exchange", "info", "none")
    assert (result.exit_code, reason in result.stderr) == (3, True)
    assert run(fake.data, "exchange", "info", "").exit_code == 2
