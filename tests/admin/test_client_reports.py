"""zbroker/admin/client_reports.py: clients, subscriptions and their lag."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.admin.rig import Rig
from zbroker.admin.client_reports import (
    NS_PER_S,
    ClientReports,
    LogTimes,
    Moment,
    SubscriptionReports,
    between,
)
from zbroker.admin.requests import ClientsQuery, SubscriptionsQuery, parse_query
from zbroker.errors import ClientError
from zbroker.log.reader import Gap, Log, first_time
from zbroker.server.disconnects_file import DisconnectsFile
from zbroker.wire import internal as m
from zbroker.wire import surveys
from zbroker.wire import surveys as s
from zbroker.wire.messages import Options

KEYS = {
    "door", "room", "client", "principal", "instance", "address", "connected_s", "session",
    "publisher", "acked", "window_bytes", "messages", "subscriptions", "heartbeat_s",
}  # fmt: skip


def row(client: str, **more: Any) -> s.ClientRow:
    made = s.ClientRow(client, "p", "i", "127.0.0.1:5", 1_500, 7, 9, 40, 100, 3, 0, 30.0)
    for key, value in more.items():
        setattr(made, key, value)
    return made


class FakeLink:
    """Processes that answer what the test says."""

    processes = ("ingest", "delivery", "delivery-2")

    def __init__(self) -> None:
        self.answers: dict[str, Any] = dict.fromkeys(self.processes)
        self.asked: list[Any] = []

    def ask(self, answer: type, question: Any, processes: Any) -> dict[str, Any]:
        assert list(processes) == list(self.processes)
        assert all(one is None or isinstance(one, answer) for one in self.answers.values())
        self.asked.append(question)
        return self.answers


class Bench:
    def __init__(self, data: Path) -> None:
        self.link = FakeLink()
        link: Any = self.link
        self.disconnects = DisconnectsFile(data / "disconnects.json", logging.getLogger("test"))
        self.clients = ClientReports(link, self.disconnects)

    def rows(self, process: str, *rows: s.ClientRow, left_out: int = 0) -> None:
        self.link.answers[process] = s.Clients(1, list(rows), left_out)

    def ended(self, *counts: int | None) -> None:
        for process, count in zip(self.link.processes, counts, strict=True):
            self.link.answers[process] = None if count is None else s.Disconnected(1, count)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    for process in made.link.processes:
        made.rows(process)
    return made


def test_a_row_has_the_published_keys(bench: Bench) -> None:
    bench.rows("delivery-2", row("ann", connected_ms=None, publisher=None, acked=None))
    bench.rows("ingest", row("ann"))
    found = bench.clients.answer(ClientsQuery())
    assert json.loads(json.dumps(found)) == found
    other, one = found["clients"]
    assert one["publisher"] == "9"  # text: it may be above 2**53
    assert set(one) == set(other) == KEYS
    assert (one["door"], one["room"], one["connected_s"]) == ("ingest", "ingest", 1.5)
    assert (other["door"], other["room"], other["connected_s"]) == ("delivery", "delivery-2", None)


def test_listeners_are_reported_as_one_list(bench: Bench) -> None:
    bench.rows("ingest", row("a"), row("c"), left_out=2)
    bench.rows("delivery", row("b"), row("d"), left_out=1)
    found = bench.clients.answer(ClientsQuery(limit=3))
    assert [reported["client"] for reported in found["clients"]] == ["a", "b", "c"]
    assert (found["left_out"], found["silent"]) == (4, [])


def test_a_process_that_does_not_answer_is_named(bench: Bench) -> None:
    bench.link.answers["delivery"] = None
    assert bench.clients.answer(ClientsQuery())["silent"] == ["delivery"]


def test_what_is_wanted_goes_to_the_processes(bench: Bench) -> None:
    bench.clients.answer(ClientsQuery("ann", 7))
    assert bench.link.asked == [s.AskClients(0, "ann", 7)]


def test_a_client_is_ended_at_every_listener(bench: Bench) -> None:
    bench.ended(1, 0, 2)
    assert bench.clients.disconnect("ann") == {"disconnected": 3}
    assert bench.link.asked == [s.Disconnect(0, "ann", 1)]


def test_a_client_that_is_not_there_is_not_found(bench: Bench) -> None:
    bench.ended(0, 0, 0)
    with pytest.raises(ClientError, match="no client 'ann'") as caught:
        bench.clients.disconnect("ann")
    assert caught.value.code == "not_found"
    assert bench.disconnects.known.clients == {"ann": 1}, "its tokens end all the same"


def test_a_listener_that_does_not_answer_may_have_kept_it(bench: Bench) -> None:
    bench.ended(1, None, 0)
    with pytest.raises(ClientError, match=r"1 ended, but .*: delivery") as caught:
        bench.clients.disconnect("ann")
    assert caught.value.code == "not_ready"


SUBSCRIPTIONS_KEYS = {
    "worker", "client", "sid", "topic", "regex", "filter", "options", "state", "due_ms", "starts",
    "position", "handled", "in_hand", "lag", "lag_s", "credit", "sent_messages", "sent_bytes",
    "since",
}  # fmt: skip


def subscriptions_row(
    client: str, position: int, sid: str = "s", **more: Any
) -> surveys.SubscriptionRow:
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
        self.answers: dict[str, surveys.Subscriptions | None] = {}
        self.asked: list[surveys.AskSubscriptions] = []

    def worker(self, name: str, *rows: surveys.SubscriptionRow, left_out: int = 0) -> None:
        self.answers[name] = surveys.Subscriptions(1, 5, 100, list(rows), left_out)

    processes = ("ingest", "delivery", "delivery-2")

    def ask(
        self, answer: type, question: surveys.AskSubscriptions, processes: list[str]
    ) -> dict[str, surveys.Subscriptions | None]:
        assert answer is surveys.Subscriptions
        assert processes == ["delivery", "delivery-2"], "only these have any"
        self.asked.append(question)
        return self.answers


class SubscriptionsBench:
    def __init__(self, data: Path) -> None:
        self.rig = Rig(data)
        self.delivery = Delivery()
        delivery: Any = self.delivery
        journal: Any = self.rig.journal
        times = LogTimes(self.rig.paths.journal, self.rig.paths.archive)
        self.subscriptions = SubscriptionReports(delivery, journal, times)

    def answer(self, wanted: SubscriptionsQuery | None = None) -> dict[str, Any]:
        found = self.subscriptions.answer(wanted or SubscriptionsQuery())
        assert json.loads(json.dumps(found)) == found
        return found

    def clients(self, wanted: SubscriptionsQuery | None = None) -> list[str]:
        return [
            subscriptions_row["client"]
            for subscriptions_row in self.answer(wanted)["subscriptions"]
        ]


@pytest.fixture
def subscriptions_bench(tmp_path: Path) -> SubscriptionsBench:
    return SubscriptionsBench(tmp_path)


def test_no_one_is_subscribed(subscriptions_bench: SubscriptionsBench) -> None:
    subscriptions_bench.delivery.worker("delivery")
    assert subscriptions_bench.answer() == {
        "persisted": 100, "silent": [], "left_out": 0, "subscriptions": [],
    }  # fmt: skip


def test_a_row_has_the_published_keys_for_subscriptions(
    subscriptions_bench: SubscriptionsBench,
) -> None:
    more = {"options": Options(rate="2X"), "state": "rate", "due_ms": 20, "starts_ns": NS_PER_S}
    subscriptions_bench.delivery.worker("delivery", subscriptions_row("ann", 40, **more))
    [reported] = subscriptions_bench.answer()["subscriptions"]
    assert set(reported) == SUBSCRIPTIONS_KEYS
    assert (reported["options"], reported["due_ms"], reported["lag"]) == ({"rate": "2X"}, 20, 60)
    assert (reported["starts"], reported["since"]) == ("19700101T000001Z", "19700101T000001Z")


def test_workers_are_reported_as_one_list(subscriptions_bench: SubscriptionsBench) -> None:
    subscriptions_bench.delivery.worker(
        "delivery", subscriptions_row("a", 10), subscriptions_row("b", 50)
    )
    subscriptions_bench.delivery.worker(
        "delivery-2",
        subscriptions_row("c", 5),
        subscriptions_row("d", 50),
        subscriptions_row("d", 50),
    )
    assert subscriptions_bench.clients() == ["c", "a", "b", "d", "d"]
    assert subscriptions_bench.answer()["subscriptions"][0]["worker"] == "delivery-2"


def test_what_is_over_the_limit_is_counted(subscriptions_bench: SubscriptionsBench) -> None:
    subscriptions_bench.delivery.worker(
        "delivery", subscriptions_row("a", 10), subscriptions_row("b", 50), left_out=4
    )
    subscriptions_bench.delivery.worker(
        "delivery-2", subscriptions_row("c", 5), subscriptions_row("d", 50), left_out=3
    )
    found = subscriptions_bench.answer(SubscriptionsQuery(limit=2))
    assert [reported["client"] for reported in found["subscriptions"]] == ["c", "a"]
    assert found["left_out"] == 9


def test_a_worker_that_does_not_answer_is_named(subscriptions_bench: SubscriptionsBench) -> None:
    subscriptions_bench.delivery.worker("delivery", subscriptions_row("a", 10))
    subscriptions_bench.delivery.answers["delivery-2"] = None
    found = subscriptions_bench.answer()
    assert (found["silent"], len(found["subscriptions"])) == (["delivery-2"], 1)


def test_what_is_wanted_goes_to_the_workers(subscriptions_bench: SubscriptionsBench) -> None:
    subscriptions_bench.answer(SubscriptionsQuery("ann", "t", 7))
    [ask] = subscriptions_bench.delivery.asked
    assert (ask.client, ask.topic, ask.limit) == ("ann", "t", 7)


def test_a_lag_is_reported_in_log_time_too(subscriptions_bench: SubscriptionsBench) -> None:
    log = Log(subscriptions_bench.rig.paths.journal, subscriptions_bench.rig.paths.archive)
    start = log.starts[2].position
    [(batch, _)] = [item for item in log.headers(log.seek(start), start + 1) if len(item) == 2]
    log.close()
    newest_ns = batch.log_time + 3 * NS_PER_S
    subscriptions_bench.rig.journal.holders = m.Holders(
        1, 1, subscriptions_bench.rig.end, newest_ns, []
    )
    subscriptions_bench.delivery.worker(
        "delivery",
        subscriptions_row("a", start, lag=7),
        subscriptions_row("b", 100),
        subscriptions_row("c", 0),
    )
    lags = {
        reported["client"]: reported["lag_s"]
        for reported in subscriptions_bench.answer()["subscriptions"]
    }
    assert lags == {"a": 3.0, "b": 0.0, "c": None}


def test_without_a_journal_the_lag_in_messages_is_left(
    subscriptions_bench: SubscriptionsBench,
) -> None:
    subscriptions_bench.rig.journal.welcome = None
    subscriptions_bench.delivery.worker("delivery", subscriptions_row("a", 40))
    [reported] = subscriptions_bench.answer()["subscriptions"]
    assert (reported["lag"], reported["lag_s"]) == (60, None)


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


SMALL = st.integers(0, 1_000)


@given(SMALL, SMALL, SMALL, SMALL, SMALL)
def test_an_estimate_stays_between_its_ends(
    position: int, low: int, low_ns: int, high: int, high_ns: int
) -> None:
    found = between(position, Moment(low, low_ns), Moment(high, high_ns))
    assert min(low_ns, max(low_ns, high_ns)) <= found <= max(low_ns, high_ns)


@given(st.lists(SMALL, min_size=2), SMALL, SMALL)
def test_what_is_later_is_never_reported_as_earlier(
    positions: list[int], low_ns: int, more_ns: int
) -> None:
    low, high = Moment(0, low_ns), Moment(1_000, low_ns + more_ns)
    found = [between(position, low, high) for position in sorted(positions)]
    assert found == sorted(found)


def test_the_ends_are_exact() -> None:
    low, high = Moment(10, 100), Moment(20, 300)
    assert [between(at, low, high) for at in (10, 15, 20)] == [100, 200, 300]


def times(log: Log, end: int) -> dict[int, int]:
    """The exact log time of the first message of every batch."""
    items = log.headers(log.seek(log.first_position), end)
    pairs = [item for item in items if not isinstance(item, Gap)]
    return {batch.position: first_time(batch) for batch, _ in pairs}


def test_an_estimate_is_off_by_a_segment_at_most(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    log = Log(rig.paths.journal, rig.paths.archive)
    exact = times(log, rig.end)
    starts = [start.position for start in log.starts]
    newest = Moment(rig.end, max(exact.values()))
    log_times = LogTimes(rig.paths.journal, rig.paths.archive)
    found = log_times.of(exact, newest)
    assert set(found) == set(exact)
    assert len(starts) > 3
    for position, ns in found.items():
        begin = max(start for start in starts if start <= position)
        end = min((start for start in starts if start > position), default=None)
        assert exact[begin] <= ns <= (exact[end] if end is not None else newest.ns)
    assert [found[start] for start in starts] == [exact[start] for start in starts]
    assert log_times.of(exact, newest) == found, "its files were closed and are opened again"
    log.close()


def test_what_is_not_in_the_log_has_no_time(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    log_times = LogTimes(rig.paths.journal, rig.paths.archive)
    assert log_times.of([0], Moment(rig.end, 1)) == {}
    nowhere = LogTimes(tmp_path / "none", tmp_path / "nothing")
    assert nowhere.of([5], Moment(9, 9)) == {}
