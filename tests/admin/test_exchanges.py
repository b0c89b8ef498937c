"""/exchanges and /bindings: what the queues process says, as JSON; what it is asked to change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.admin.queue_rows import FakeQueues
from zbroker.admin import requests
from zbroker.admin.exchanges import ExchangeReports
from zbroker.admin.requests import parse, parse_query
from zbroker.errors import ClientError
from zbroker.wire import exchange_surveys as x
from zbroker.wire import queue_surveys as q

EVENTS = x.SurveyedExchange(
    "events", "topic", "lost", auto_delete=True, internal=False, predeclared=False, bindings=2
)
ARGUMENTS = {"x-match": "all", "b": b"\xff", "n": 1, "nil": None}
BOUND = x.SurveyedBinding("events", "bills", "#", ARGUMENTS, 0xAB, here=False)


class Bench:
    def __init__(self) -> None:
        self.process = FakeQueues()
        self.reports = ExchangeReports(self.process.link)

    def exchanges(self, query: str = "") -> Any:
        return self.reports.exchanges(parse_query(requests.ExchangesQuery, query))

    def bindings(self, query: str = "") -> Any:
        found = self.reports.bindings(parse_query(requests.BindingsQuery, query))
        assert json.loads(json.dumps(found)) == found
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_exchanges_have_the_published_keys(bench: Bench) -> None:
    bench.process.say = lambda ask: x.ExchangesSurveyed(ask.cid, rows=[EVENTS])
    assert bench.exchanges() == {
        "exchanges": [
            {
                "name": "events", "kind": "topic", "alternate": "lost", "auto_delete": True,
                "internal": False, "predeclared": False, "bindings": 2,
            }
        ]
    }  # fmt: skip
    bench.exchanges("exchange=events")
    assert bench.process.asked == [x.AskExchangeRows(0), x.AskExchangeRows(0, "events")]


def test_an_exchange_that_is_not_there_is_unknown(bench: Bench) -> None:
    bench.process.say = lambda ask: x.ExchangesSurveyed(ask.cid)
    assert bench.exchanges() == {"exchanges": []}
    with pytest.raises(ClientError, match="no exchange 'e'") as caught:
        bench.exchanges("exchange=e")
    assert caught.value.code == "unknown_exchange"


def test_bindings_have_the_published_keys(bench: Bench) -> None:
    here = x.SurveyedBinding("events", "audit", "", {}, 0, here=True)
    bench.process.say = lambda ask: x.BindingsSurveyed(ask.cid, rows=[BOUND, here], left_out=3)
    found = bench.bindings("exchange=events&queue=bills&limit=2")
    assert found["left_out"] == 3
    assert found["bindings"] == [
        {
            "exchange": "events", "queue": "bills", "key": "#",
            "arguments": {"x-match": "all", "b": {"base64": "/w=="}, "n": 1, "nil": None},
            "instance": "00000000000000ab", "here": False,
        },
        {
            "exchange": "events", "queue": "audit", "key": "", "arguments": {}, "instance": "",
            "here": True,
        },
    ]  # fmt: skip
    assert bench.process.asked == [x.AskBindingRows(0, "events", "bills", 2)]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "other=1"])
def test_a_wrong_query_is_refused(bench: Bench, query: str) -> None:
    with pytest.raises(ClientError) as caught:
        bench.bindings(query)
    assert caught.value.code == "bad_field"


def test_what_the_process_refuses_is_an_error(bench: Bench) -> None:
    bench.process.say = lambda ask: x.ExchangesSurveyed(ask.cid, code="not_ready", reason="reading")
    with pytest.raises(ClientError, match="reading") as caught:
        bench.exchanges()
    assert caught.value.code == "not_ready"


@pytest.mark.parametrize(
    ("what", "kind", "body", "asked", "answer"),
    [
        (
            "declare", requests.DeclareExchangeRequest,
            {"exchange": "e", "kind": "topic", "alternate": "f", "auto_delete": True},
            x.ChangeExchange(0, "declare", "e", "topic", "f", auto_delete=True),
            {"exchange": "e", "dry_run": False, "changed": True},
        ),
        (
            "delete", requests.DeleteExchangeRequest,
            {"exchange": "e", "if_unused": True, "dry_run": True},
            x.ChangeExchange(0, "delete", "e", if_unused=True, dry_run=True),
            {"exchange": "e", "dry_run": True, "bindings": 3},
        ),
        (
            "bind", requests.BindingRequest,
            {"queue": "q", "exchange": "e", "key": "k", "arguments": {"n": 1, "b": True, "s": "1"}},
            x.ChangeBinding(0, "bind", "q", "e", "k", {"n": 1, "b": True, "s": "1"}),
            {"queue": "q", "exchange": "e", "key": "k", "dry_run": False, "changed": True},
        ),
        (
            "unbind", requests.BindingRequest, {"queue": "q", "exchange": "e"},
            x.ChangeBinding(0, "unbind", "q", "e"),
            {"queue": "q", "exchange": "e", "key": "", "dry_run": False, "changed": True},
        ),
    ],
)  # fmt: skip
def test_a_request_becomes_a_question(
    bench: Bench, what: str, kind: Any, body: Any, asked: Any, answer: Any
) -> None:
    bench.process.say = lambda ask: q.Changed(ask.cid, 3)
    found = getattr(bench.reports, what)(parse(kind, json.dumps(body).encode()))
    assert found == answer
    assert bench.process.asked == [asked]


def test_what_was_so_is_no_change(bench: Bench) -> None:
    bench.process.say = lambda ask: q.Changed(ask.cid, 0)
    assert not bench.reports.declare(requests.DeclareExchangeRequest("e"))["changed"]
    assert not bench.reports.bind(requests.BindingRequest("q", "e"))["changed"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (requests.DeclareExchangeRequest, {}),
        (requests.DeclareExchangeRequest, {"exchange": ""}),
        (requests.DeclareExchangeRequest, {"exchange": "e", "other": 1}),
        (requests.DeleteExchangeRequest, {"exchange": 1}),
        (requests.BindingRequest, {"queue": "q"}),
        (requests.BindingRequest, {"queue": "q", "exchange": "e", "arguments": {"n": [1]}}),
        (requests.BindingRequest, {"queue": "q", "exchange": "e", "arguments": {"n": 1 << 64}}),
        (requests.BindingRequest, {"queue": "q", "exchange": "e", "key": 256 * "k"}),
    ],
)
def test_a_wrong_request_is_refused(kind: Any, body: Any) -> None:
    with pytest.raises(ClientError) as caught:
        parse(kind, json.dumps(body).encode())
    assert caught.value.code == "bad_field"
