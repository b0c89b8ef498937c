"""GET /subscriptions: several workers' rows as one answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.admin.desk import Desk
from zbroker.admin.lags import LogTimes
from zbroker.admin.requests import SubscriptionsQuery, parse_query
from zbroker.admin.subscriptions import NS_PER_S, SubscriptionReports
from zbroker.errors import ClientError
from zbroker.log.reader import Log
from zbroker.wire import internal as m
from zbroker.wire import surveys
from zbroker.wire.messages import Options

KEYS = {
    "worker", "client", "sid", "topic", "regex", "filter", "options", "state", "due_ms", "starts",
    "position", "handled", "in_hand", "lag", "lag_s", "credit", "sent_messages", "sent_bytes",
    "since",
}  # fmt: skip


def row(client: str, position: int, sid: str = "s", **more: Any) -> surveys.SubscriptionRow:
    lag = max(0, 100 - position) if position else 0
    made = surveys.SubscriptionRow(
        client, sid, "t", False, "", Options(), "sending", position, lag, 10, 1, 2, 1_000,
        handled=position,
    )  # fmt: skip
    for key, value in more.items():
        setattr(made, key, value)
    return made


class Delivery:
    """Workers that answer what the test says."""

    def __init__(self) -> None:
        self.told: dict[str, surveys.Subscriptions | None] = {}
        self.asked: list[surveys.AskSubscriptions] = []

    def worker(self, name: str, *rows: surveys.SubscriptionRow, left_out: int = 0) -> None:
        self.told[name] = surveys.Subscriptions(1, 5, 100, list(rows), left_out)

    rooms = ("ingest", "delivery", "delivery-2")

    def ask(
        self, answer: type, question: surveys.AskSubscriptions, rooms: list[str]
    ) -> dict[str, surveys.Subscriptions | None]:
        assert answer is surveys.Subscriptions
        assert rooms == ["delivery", "delivery-2"], "only these have any"
        self.asked.append(question)
        return self.told


class Bench:
    def __init__(self, data: Path) -> None:
        self.desk = Desk(data)
        self.delivery = Delivery()
        delivery: Any = self.delivery
        journal: Any = self.desk.journal
        times = LogTimes(self.desk.paths.journal, self.desk.paths.archive)
        self.subscriptions = SubscriptionReports(delivery, journal, times)

    def answer(self, wanted: SubscriptionsQuery | None = None) -> dict[str, Any]:
        found = self.subscriptions.answer(wanted or SubscriptionsQuery())
        assert json.loads(json.dumps(found)) == found
        return found

    def clients(self, wanted: SubscriptionsQuery | None = None) -> list[str]:
        return [row["client"] for row in self.answer(wanted)["subscriptions"]]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_nobody_is_subscribed(bench: Bench) -> None:
    bench.delivery.worker("delivery")
    assert bench.answer() == {
        "persisted": 100, "silent": [], "left_out": 0, "subscriptions": [],
    }  # fmt: skip


def test_a_row_has_the_published_keys(bench: Bench) -> None:
    more = {"options": Options(rate="2X"), "state": "rate", "due_ms": 20, "starts_ns": NS_PER_S}
    bench.delivery.worker("delivery", row("ann", 40, **more))
    [told] = bench.answer()["subscriptions"]
    assert set(told) == KEYS
    assert (told["options"], told["due_ms"], told["lag"]) == ({"rate": "2X"}, 20, 60)
    assert (told["starts"], told["since"]) == ("19700101T000001Z", "19700101T000001Z")


def test_workers_are_told_as_one_list(bench: Bench) -> None:
    bench.delivery.worker("delivery", row("a", 10), row("b", 50))
    bench.delivery.worker("delivery-2", row("c", 5), row("d", 50), row("d", 50))
    assert bench.clients() == ["c", "a", "b", "d", "d"]
    assert bench.answer()["subscriptions"][0]["worker"] == "delivery-2"


def test_what_is_over_the_limit_is_counted(bench: Bench) -> None:
    bench.delivery.worker("delivery", row("a", 10), row("b", 50), left_out=4)
    bench.delivery.worker("delivery-2", row("c", 5), row("d", 50), left_out=3)
    found = bench.answer(SubscriptionsQuery(limit=2))
    assert [told["client"] for told in found["subscriptions"]] == ["c", "a"]
    assert found["left_out"] == 9


def test_a_worker_that_does_not_answer_is_named(bench: Bench) -> None:
    bench.delivery.worker("delivery", row("a", 10))
    bench.delivery.told["delivery-2"] = None
    found = bench.answer()
    assert (found["silent"], len(found["subscriptions"])) == (["delivery-2"], 1)


def test_what_is_wanted_goes_to_the_workers(bench: Bench) -> None:
    bench.answer(SubscriptionsQuery("ann", "t", 7))
    [ask] = bench.delivery.asked
    assert (ask.client, ask.topic, ask.limit) == ("ann", "t", 7)


def test_a_lag_is_told_in_log_time_too(bench: Bench) -> None:
    log = Log(bench.desk.paths.journal, bench.desk.paths.archive)
    start = log.starts[2].position
    [(batch, _)] = [item for item in log.headers(log.seek(start), start + 1) if len(item) == 2]
    log.close()
    newest_ns = batch.log_time + 3 * NS_PER_S
    bench.desk.journal.holders = m.Holders(1, 1, bench.desk.end, newest_ns, [])
    bench.delivery.worker("delivery", row("a", start, lag=7), row("b", 100), row("c", 0))
    lags = {told["client"]: told["lag_s"] for told in bench.answer()["subscriptions"]}
    assert lags == {"a": 3.0, "b": 0.0, "c": None}


def test_without_a_journal_the_lag_in_messages_is_left(bench: Bench) -> None:
    bench.desk.journal.welcome = None
    bench.delivery.worker("delivery", row("a", 40))
    [told] = bench.answer()["subscriptions"]
    assert (told["lag"], told["lag_s"]) == (60, None)


# -- what is asked --------------------------------------------------------------------------------


def test_a_query_says_which() -> None:
    assert parse_query(SubscriptionsQuery, "") == SubscriptionsQuery()
    query = "client=a%20b&topic=x%2B&limit=5"
    assert parse_query(SubscriptionsQuery, query) == SubscriptionsQuery("a b", "x+", 5)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0", "limit=1001", "limit=x", "limit=", "sid=1", "client=%ff",
        "client=" + 256 * "a", "&".join(f"k{n}=1" for n in range(11)),
    ],
)  # fmt: skip
def test_a_wrong_query_is_refused(query: str) -> None:
    with pytest.raises(ClientError, match="the query") as caught:
        parse_query(SubscriptionsQuery, query)
    assert caught.value.code == "bad_field"
