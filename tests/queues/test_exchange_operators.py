"""Exchanges and bindings of operators: what the admin asks for, and what it is answered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.test_exchange_commands import bench, bind, declare, keys
from zbroker.wire import exchange_surveys as x
from zbroker.wire import queue_surveys as s

DECLARE = x.ChangeExchange(1, "declare", "events", "topic")
BIND = x.ChangeBinding(1, "bind", "bills", "events", "#")


def test_an_operator_makes_and_ends_what_a_client_does() -> None:
    at = bench()
    assert at.ask(DECLARE) == s.Changed(1, 1)
    assert at.ask(DECLARE) == s.Changed(1, 0)
    assert at.ask(BIND) == s.Changed(1, 1)
    assert at.ask(BIND) == s.Changed(1, 0)
    assert keys(at) == [("bills", "#")]
    assert at.ask(x.ChangeBinding(1, "unbind", "bills", "events", "#")) == s.Changed(1, 1)
    assert keys(at) == []
    bind(at, "a")
    bind(at, "b")
    assert at.ask(x.ChangeExchange(1, "delete", "events")) == s.Changed(1, 2)
    assert at.manager.exchanges.table.exchange("events") is None


def test_a_change_is_answered_when_it_is_durable_and_used() -> None:
    at = bench()
    at.routes_at_once = False
    at.holding = True
    assert at.ask(DECLARE) is None
    at.land()
    assert at.reported == []
    at.route()
    assert at.reported == [(b"admin", s.Changed(1, 1))]


@pytest.mark.parametrize(
    "ask",
    [
        x.ChangeExchange(1, "declare", "new", dry_run=True),
        x.ChangeExchange(1, "delete", "events", dry_run=True),
        x.ChangeBinding(1, "bind", "bills", "events", "more", dry_run=True),
        x.ChangeBinding(1, "unbind", "bills", "events", "#", dry_run=True),
    ],
)
def test_a_dry_run_says_what_would_be_and_changes_nothing(ask: Any) -> None:
    at = bench()
    declare(at)
    bind(at)
    before = at.manager.exchanges.table.rows()
    assert at.ask(ask) == s.Changed(1, 1)
    assert at.manager.exchanges.table.rows() == before


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (x.ChangeExchange(1, "fly", "events"), "bad_field"),
        (x.ChangeBinding(1, "fly", "bills", "events"), "bad_field"),
        (x.ChangeExchange(1, "declare", "events", "direct"), "exchange_exists"),
        (x.ChangeExchange(1, "declare", "amq.mine"), "reserved_name"),
        (x.ChangeExchange(1, "delete", "none"), "unknown_exchange"),
        (x.ChangeExchange(1, "delete", "events", if_unused=True), "exchange_in_use"),
        (x.ChangeBinding(1, "bind", "none", "events"), "unknown_queue"),
        (x.ChangeBinding(1, "bind", "bills", "events", arguments={"n": [1]}), "bad_field"),
        (x.ChangeBinding(1, "unbind", "bills", "events", "none"), "unknown_binding"),
    ],
)
def test_what_cannot_be_is_refused(ask: Any, code: str) -> None:
    at = bench()
    declare(at)
    bind(at)
    assert at.ask(ask).code == code


def test_a_unit_that_was_refused_is_answered_so() -> None:
    at = bench()
    at.holding = True
    at.ask(DECLARE)
    at.refuse("too_large")
    assert at.reported[-1][1].code == "too_large"
