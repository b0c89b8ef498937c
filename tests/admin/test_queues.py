"""/queues/... and /points: what the queues process tells, as JSON; what it is asked to change."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.admin.queue_rows import SECOND_NS, Clock, FakeQueues, consumer, message, row
from zbroker.admin.queues import STALE_MS, QueueReports, QueueWatch
from zbroker.admin.requests import PointsQuery
from zbroker.config.queues import QueueConfig
from zbroker.errors import ClientError
from zbroker.wire import queue_surveys as q
from zbroker.wire.replicas import Links, ReplicationRow

QUEUE_KEYS = {
    "name", "kind", "topic", "regex", "source", "life", "created", "state", "depth", "ready",
    "leased", "delayed", "going", "consumers", "active", "full", "first", "last", "oldest",
    "oldest_s", "behind", "barrier", "holding", "bytes", "idle_s", "memory_bytes", "entered",
    "delivered", "redelivered", "acked", "failed", "dead", "expired", "dropped", "rates",
    "acts_for", "elsewhere", "elsewhere_first", "elsewhere_s",
}  # fmt: skip
RATE_KEYS = {"entered_s", "delivered_s", "acked_s"}
CONSUMER_KEYS = {
    "queue", "client", "sid", "address", "backlog", "held", "credit", "delivered", "acked",
    "filter", "next_end_ms", "gone", "active",
}  # fmt: skip
MESSAGE_KEYS = {
    "position", "bookmark", "topic", "time", "size", "state", "deliveries", "failures", "owner",
    "due_ms",
}  # fmt: skip


class Bench:
    def __init__(self) -> None:
        self.process = FakeQueues(
            row("work", depth=2, first=5, last=9, oldest_ns=97 * SECOND_NS), row("b")
        )
        self.watch = QueueWatch(self.process.link, Clock())
        self.queues = QueueReports(self.process.link, self.watch, Clock())

    def get(self, name: str, what: str = "", query: str = "") -> dict[str, Any]:
        found = self.queues.get(name, what, query)
        assert json.loads(json.dumps(found)) == found
        return found

    def post(self, what: str, name: str = "work", **body: object) -> dict[str, Any]:
        return self.queues.post(name, what, json.dumps(body).encode())

    def refused(self, what: str, **body: object) -> ClientError:
        before = len(self.process.asked)
        with pytest.raises(ClientError) as caught:
            self.post(what, **body)
        assert len(self.process.asked) == before, "the process is not asked for what is wrong"
        return caught.value


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- what is --------------------------------------------------------------------------------------


def test_queues_are_reported_by_name(bench: Bench) -> None:
    found = bench.queues.all()
    assert json.loads(json.dumps(found)) == found
    assert found["persisted"] == 90
    assert [one["name"] for one in found["queues"]] == ["b", "work"]
    assert all(set(one) == QUEUE_KEYS for one in found["queues"])


def test_a_queue_tells_its_oldest_message(bench: Bench) -> None:
    found = bench.get("work")
    assert (found["first"], found["last"]) == (5, 9)
    assert (found["oldest"], found["oldest_s"]) == ("19700101T000137Z", 3.0)


def test_an_empty_queue_has_no_oldest_message(bench: Bench) -> None:
    found = bench.get("b")
    assert {found[key] for key in ("first", "last", "oldest", "oldest_s", "idle_s")} == {None}


def test_a_message_from_the_future_is_not_younger_than_new(bench: Bench) -> None:
    bench.process.rows = [row("work", depth=1, oldest_ns=200 * SECOND_NS)]
    assert bench.get("work")["oldest_s"] == 0


def test_one_queue_tells_all_that_it_is(bench: Bench) -> None:
    bench.process.rows = [row("work", definition={"name": "work", "lease": 5_000})]
    found = bench.get("work")
    assert set(found) == QUEUE_KEYS | {"definition", "owners"}
    assert set(found["definition"]) == set(QueueConfig.__struct_fields__)
    assert (found["definition"]["lease"], found["definition"]["name"]) == (5_000, "work")
    assert found["definition"]["fairness"] == "", "also what no one set"


def test_rates_are_those_of_the_watch(bench: Bench) -> None:
    bench.watch.look()
    bench.process.rows = [row("work", acked=10)]
    clock: Any = bench.watch._clock
    clock.ms += 2_000
    bench.watch.look()
    found = bench.get("work")["rates"]
    assert found == {"entered_s": 0.0, "delivered_s": 0.0, "acked_s": 5.0}
    assert set(found) == RATE_KEYS


@pytest.mark.parametrize("what", ["", "consumers"])
def test_a_queue_that_is_not_there_is_unknown(bench: Bench, what: str) -> None:
    bench.process.say = lambda ask: q.Consumers(ask.cid, [])
    with pytest.raises(ClientError, match="no queue 'x'") as caught:
        bench.get("x", what)
    assert caught.value.code == "unknown_queue"


def test_consumers_have_the_published_keys(bench: Bench) -> None:
    bench.process.say = lambda ask: q.Consumers(ask.cid, [consumer(), consumer(gone=True)], 4)
    found = bench.get("work", "consumers", "limit=7")
    assert found["left_out"] == 4
    assert [one["gone"] for one in found["consumers"]] == [False, True]
    assert all(set(one) == CONSUMER_KEYS for one in found["consumers"])
    assert bench.process.asked == [q.AskConsumers(0, "work", 7)]


def test_a_queue_may_have_no_consumer(bench: Bench) -> None:
    bench.process.say = lambda ask: q.Consumers(ask.cid, [])
    assert bench.get("work", "consumers") == {"left_out": 0, "consumers": []}


def test_messages_have_the_published_keys(bench: Bench) -> None:
    bench.process.say = lambda ask: q.Browsed(ask.cid, [message(5), message(9)], 10)
    found = bench.get("work", "browse", "after=4&limit=2&state=leased&filter=%2Fx%3D1")
    assert found["next"] == 10
    assert [one["position"] for one in found["messages"]] == [5, 9]
    assert all(set(one) == MESSAGE_KEYS for one in found["messages"])
    assert bench.process.asked == [q.BrowseQueue(0, "work", 4, 2, "/x=1", "leased", data=False)]


def test_payloads_come_as_text_or_base64(bench: Bench) -> None:
    rows = [message(5), message(9)]
    bench.process.say = lambda ask: q.Browsed(ask.cid, rows, payloads=[b'{"x": 1}', b"\xff"])
    one, other = bench.get("work", "browse", "data=1")["messages"]
    assert (one["data"], other["data_base64"]) == ('{"x": 1}', "/w==")
    assert bench.process.asked[0].data


def test_why_nothing_is_delivered_is_reported(bench: Bench) -> None:
    lines = ["no one consumes this queue", "2 messages are ready"]
    bench.process.say = lambda ask: q.Explained(ask.cid, "idle", lines)
    expected = {"queue": "work", "state": "idle", "lines": lines, "owners": []}
    assert bench.get("work", "explain") == expected
    assert bench.get("work", "explain", "position=5") == expected
    assert bench.get("work", "explain", "bookmark=7%7C5%7C") == expected
    assert bench.process.asked == [
        q.Explain(0, "work"), q.Explain(0, "work", 5), q.Explain(0, "work", 0, "7|5|"),
    ]  # fmt: skip


def test_owners_have_names_where_links_know_them(bench: Bench) -> None:
    theirs = q.OwnedMessages(0xA, 3, 7, 40 * SECOND_NS)
    bench.process.rows = [row("work", owners=[theirs, q.OwnedMessages(0xC, 1, 9, mine=True)])]
    said, wanted = Links(1, [ReplicationRow("a", "out", "down", 0xA)], 90), []
    bench.queues = QueueReports(
        bench.process.link, bench.watch, Clock(), lambda others: wanted.append(others) or said, "c"
    )  # fmt: skip
    one, other = bench.get("work")["owners"]
    assert (one["name"], one["instance"], one["up"]) == ("a", "000000000000000a", False)
    assert (one["depth"], one["since"], one["since_s"]) == (3, "19700101T000040Z", 60.0)
    assert (other["name"], other["here"], other["up"]) == ("c", True, True)
    bench.process.say = lambda ask: q.Explained(ask.cid, "waiting", ["why"], [theirs])
    found = bench.get("work", "explain")
    assert found["lines"][0] == "why"
    assert "queue takeover work --from a" in found["lines"][-1]
    assert [each["name"] for each in found["owners"]] == ["a"]
    assert wanted == [{0xA}, {0xA}], "of this one no link has to know"


def test_the_watch_knows_for_how_long_one_message_is_the_oldest_of_others(bench: Bench) -> None:
    clock: Any = bench.watch._clock
    bench.process.rows = [row("work", elsewhere=2, elsewhere_first=7)]
    bench.watch.look()
    clock.ms += 5_000
    bench.process.changed = [row("work", elsewhere=1, elsewhere_first=7)], []
    bench.watch.look()
    assert bench.watch.seen(0).stays_ms == {"work": 5_000}
    bench.process.changed = [row("work", elsewhere=1, elsewhere_first=9)], []
    bench.watch.look()
    assert bench.watch.seen(0).stays_ms == {"work": 0}
    bench.process.changed = [row("work")], []
    bench.watch.look()
    assert bench.watch.seen(0).stays_ms == {}
    bench.process.changed = [row("work", elsewhere=1, elsewhere_first=9)], []
    bench.watch.look()
    bench.process.changed = [], ["work"]
    bench.watch.look()
    assert bench.watch.seen(0).stays_ms == {}


@pytest.mark.parametrize(
    ("what", "query"),
    [
        ("", "limit=1"), ("consumers", "limit=0"), ("browse", "limit=1001"), ("browse", "after=-1"),
        ("browse", "data=maybe"), ("explain", "position=1&bookmark=7%7C5%7C"),
        ("explain", "position=x"),
    ],
)  # fmt: skip
def test_a_wrong_query_is_refused(bench: Bench, what: str, query: str) -> None:
    with pytest.raises(ClientError) as caught:
        bench.get("work", what, query)
    assert caught.value.code == "bad_field"
    assert bench.process.asked == []


@pytest.mark.parametrize("what", ["browse", "explain"])
def test_what_the_process_refuses_is_an_error(bench: Bench, what: str) -> None:
    kinds = {"browse": q.Browsed, "explain": q.Explained}
    bench.process.say = lambda ask: kinds[what](
        ask.cid, code="unknown_queue", reason="no such queue"
    )
    with pytest.raises(ClientError, match="no such queue") as caught:
        bench.get("x", what)
    assert caught.value.code == "unknown_queue"


# -- what shall be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "body", "asked"),
    [
        ("purge", {"before": 7}, q.Purge(0, "work", 7)),
        ("purge", {"point": "eod", "leased": True}, q.Purge(0, "work", 0, "eod", leased=True)),
        ("purge", {"all": True, "dry_run": True}, q.Purge(0, "work", dry_run=True)),
        ("requeue", {}, q.Requeue(0, "work")),
        ("requeue", {"bookmarks": ["7|5|"], "limit": 3}, q.Requeue(0, "work", ["7|5|"], 3)),
        ("requeue", {"dry_run": True}, q.Requeue(0, "work", dry_run=True)),
        (
            "takeover",
            {"instance": "0" * 14 + "ab", "called": "a", "may_duplicate": True, "dry_run": True},
            q.TakeOver(0, "work", 0xAB, "a", may_duplicate=True, dry_run=True),
        ),
        ("delete", {"dry_run": True}, q.Define(0, "delete", "work", dry_run=True)),
        ("delete", {}, q.Define(0, "delete", "work")),
        (
            "create",
            {"definition": {"topic": "orders", "lease": "30s", "size_alarm": "1KiB"}},
            q.Define(0, "create", "work", {"topic": "orders", "lease": 30_000, "size_alarm": 1024}),
        ),
        (
            "alter",
            {"definition": {"retry_delay": ["1s", 5]}, "dry_run": True},
            q.Define(0, "alter", "work", {"retry_delay": [1_000, 5]}, dry_run=True),
        ),
    ],
)  # fmt: skip
def test_what_is_asked_for_reaches_the_process(
    bench: Bench, what: str, body: dict[str, Any], asked: q.QueuesQuestion
) -> None:
    bench.process.say = lambda ask: q.Changed(ask.cid, 4, 9, text="so it is")
    reported = bench.post(what, **body)
    assert reported.pop("position", None) == (9 if what == "purge" else None)
    assert reported == {
        "queue": "work", "dry_run": bool(body.get("dry_run")), "count": 4, "text": "so it is",
    }  # fmt: skip
    assert bench.process.asked == [asked]


@pytest.mark.parametrize(
    "body", [{}, {"dry_run": True}, {"leased": True}, {"all": True, "before": 7}, {"all": False},
             {"before": 7, "point": "eod"}, {"before": 0}, {"before": "7"}, {"through": 7}],
)  # fmt: skip
def test_a_purge_says_what_leaves_in_one_way(bench: Bench, body: dict[str, Any]) -> None:
    assert bench.refused("purge", **body).code == "bad_field"


@pytest.mark.parametrize(
    ("what", "body", "code"),
    [
        ("requeue", {"limit": 0}, "bad_field"),
        ("takeover", {}, "bad_field"),
        ("takeover", {"instance": "7"}, "bad_field"),
        ("requeue", {"bookmark": "7|5|"}, "bad_field"),
        ("delete", {"definition": {}}, "bad_field"),
        ("create", {"definition": {"leese": 1}}, "bad_queue"),
        ("alter", {"definition": {"lease": "long"}}, "bad_queue"),
        ("alter", {"definition": {"name": "other"}}, "bad_queue"),
        ("alter", {"lease": 5}, "bad_field"),
    ],
)
def test_a_wrong_body_is_refused(bench: Bench, what: str, body: dict[str, Any], code: str) -> None:
    assert bench.refused(what, **body).code == code


def test_a_change_that_the_process_refuses_is_an_error(bench: Bench) -> None:
    bench.process.say = lambda ask: q.Changed(
        ask.cid, code="queue_exists", reason="it is", hint="alter"
    )
    with pytest.raises(ClientError, match="it is") as caught:
        bench.post("create", definition={"topic": "orders"})
    assert (caught.value.code, caught.value.hint) == ("queue_exists", "alter")


# -- points ---------------------------------------------------------------------------------------


def test_points_are_reported_by_name(bench: Bench) -> None:
    rows = [q.PointRow("eod", 7, "1.0.6", 9), q.PointRow("audit", 5, "1.0.4", 8)]
    bench.process.say = lambda ask: q.Points(ask.cid, rows)
    audit, eod = bench.queues.points(PointsQuery())["points"]
    assert bench.process.asked == [q.AskPoints(0)]
    assert audit["name"] == "audit"
    assert eod == {"name": "eod", "scope": "local", "position": 7, "vector": "1.0.6", "set_at": 9}


def test_the_place_of_one_point_is_asked_for_by_name(bench: Bench) -> None:
    rows = [q.PointRow("eod", 7, "", 9, "a1.0.6", shared=True)]
    bench.process.say = lambda ask: q.Points(ask.cid, rows)
    [eod] = bench.queues.points(PointsQuery("eod"))["points"]
    assert bench.process.asked == [q.AskPoints(0, "eod")]
    assert (eod["scope"], eod["position"], eod["vector"]) == ("distributed", 7, "a1.0.6")
    rows[0].position = 0
    [eod] = bench.queues.points(PointsQuery())["points"]
    assert eod["position"] is None
    bench.process.say = lambda ask: q.Points(ask.cid, code="unknown_point", reason="there is none")
    with pytest.raises(ClientError, match="there is none"):
        bench.queues.points(PointsQuery("noon"))


@pytest.mark.parametrize(
    ("body", "asked"),
    [({"name": "eod"}, q.SetPoint(0, "eod")), ({"name": "eod", "at": 7}, q.SetPoint(0, "eod", 7))],
)
def test_a_point_is_set_here_or_there(
    bench: Bench, body: dict[str, Any], asked: q.SetPoint
) -> None:
    bench.process.say = lambda ask: q.Changed(ask.cid, position=7, vector="1.0.7")
    reported = bench.queues.set_point(json.dumps(body).encode())
    assert reported == {"name": "eod", "position": 7, "vector": "1.0.7"}
    assert bench.process.asked == [asked]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_point_is_removed(bench: Bench, dry_run: bool) -> None:
    bench.process.say = lambda ask: q.Changed(ask.cid, position=7, vector="1.0.7")
    reported = bench.queues.remove_point(json.dumps({"name": "eod", "dry_run": dry_run}).encode())
    assert reported == {"name": "eod", "dry_run": dry_run, "position": 7, "vector": "1.0.7"}
    assert bench.process.asked == [q.RemovePoint(0, "eod", dry_run)]


@pytest.mark.parametrize("body", [b"{}", b'{"name": ""}', b'{"name": "a", "at": 1}'])
def test_a_removal_has_a_name_and_no_place(bench: Bench, body: bytes) -> None:
    with pytest.raises(ClientError) as caught:
        bench.queues.remove_point(body)
    assert caught.value.code == "bad_field"
    assert bench.process.asked == []


@pytest.mark.parametrize("body", [b"{}", b'{"name": ""}', b'{"name": "a", "at": 0}'])
def test_a_point_has_a_name_and_a_place(bench: Bench, body: bytes) -> None:
    with pytest.raises(ClientError) as caught:
        bench.queues.set_point(body)
    assert caught.value.code == "bad_field"
    assert bench.process.asked == []


BOUND_S = 10.0
HOUR_MS = 3_600_000


class WatchBench:
    def __init__(self) -> None:
        self.process, self.clock = FakeQueues(), Clock()
        self.watch = QueueWatch(self.process.link, self.clock)

    def look(self, *rows: q.QueueRow, after_ms: int = 1_000) -> None:
        self.process.rows = list(rows)
        self.clock.ms += after_ms
        self.watch.look()

    def known_ms(self, up_ms: int = HOUR_MS) -> dict[str, int]:
        return dict(self.watch.seen(up_ms).known_ms)


@pytest.fixture
def watch_bench() -> WatchBench:
    return WatchBench()


def test_before_the_first_look_nothing_is_known(watch_bench: WatchBench) -> None:
    assert watch_bench.watch.rows() == []
    assert watch_bench.watch.numbers() == {}
    assert watch_bench.watch.totals()["count"] == 0


def test_totals_are_those_of_all_queues(watch_bench: WatchBench) -> None:
    watch_bench.look(row("a", depth=3, ready=2, dead=1), row("b", depth=4, leased=4))
    found = watch_bench.watch.totals()
    assert {key: found[key] for key in ("count", "depth", "ready", "leased", "dead")} == {
        "count": 2, "depth": 7, "ready": 2, "leased": 4, "dead": 1,
    }  # fmt: skip


def test_the_history_gets_what_has_grown(watch_bench: WatchBench) -> None:
    watch_bench.look(row("a", depth=3, acked=50))
    watch_bench.look(row("a", depth=2, acked=52), row("b", depth=5))
    found = watch_bench.watch.numbers()["queues"]
    assert (found["depth"], found["acked_grown"]) == (7, 2)


def test_a_process_that_hangs_is_believed_for_a_while(watch_bench: WatchBench) -> None:
    watch_bench.look(row("a", depth=3))
    watch_bench.process.silent = True
    watch_bench.look(after_ms=STALE_MS - 1)
    assert [one.name for one in watch_bench.watch.rows()] == ["a"]
    watch_bench.look(after_ms=1)
    assert watch_bench.watch.rows() == []
    assert watch_bench.watch.numbers() == {}


def test_a_queue_that_was_there_is_known_as_long_as_the_process_runs(
    watch_bench: WatchBench,
) -> None:
    watch_bench.look(row("a", depth=1))
    assert watch_bench.known_ms() == {"a": HOUR_MS}


def test_a_queue_that_is_new_is_known_since_it_came(watch_bench: WatchBench) -> None:
    watch_bench.look(row("a", depth=1))
    watch_bench.look(row("a", depth=1), row("b", depth=1))
    watch_bench.look(row("a", depth=1), row("b", depth=1), after_ms=500)
    assert watch_bench.known_ms() == {"a": HOUR_MS, "b": 500}
    assert watch_bench.known_ms(up_ms=100) == {"a": 100, "b": 100}


def test_a_queue_that_is_made_again_is_new(watch_bench: WatchBench) -> None:
    watch_bench.look(row("a", depth=1))
    watch_bench.look(row("a", life=2, depth=1))
    assert watch_bench.known_ms() == {"a": 0}


def test_only_what_changed_is_asked_for(watch_bench: WatchBench) -> None:
    watch_bench.look(row("a", depth=1), row("b", depth=2), row("c", depth=4, bytes=9))
    watch_bench.process.changed = [row("b", depth=7), row("d", depth=8)], ["c"]
    watch_bench.look()
    assert [(ask.since, ask.of) for ask in watch_bench.process.asked] == [(0, 0), (1, 1)]
    assert sorted((one.name, one.depth) for one in watch_bench.watch.rows()) == [
        ("a", 1), ("b", 7), ("d", 8),
    ]  # fmt: skip
    assert watch_bench.watch.numbers()["queues"]["depth"] == 16
    assert sorted(one.name for one in watch_bench.watch.filled()) == ["a", "b", "d"]
    watch_bench.process.changed = [row("b")], []
    watch_bench.look()
    assert sorted(one.name for one in watch_bench.watch.filled()) == ["a", "d"]


def test_what_does_not_change_grows_older(watch_bench: WatchBench) -> None:
    """How long no one took from it follows from the time: the process says it once."""
    watch_bench.look(row("a", depth=1, idle_ms=500), row("empty", idle_ms=500))
    watch_bench.process.changed = [], []
    watch_bench.look(after_ms=2_000)
    seen = watch_bench.watch.seen(HOUR_MS)
    assert ([one.name for one in seen.rows], dict(seen.ago_ms)) == (["a"], {"a": 2_000})


def test_another_process_tells_everything(watch_bench: WatchBench) -> None:
    watch_bench.look(row("a", depth=1), row("b"))
    watch_bench.process.incarnation = 2
    watch_bench.look(row("b", depth=3))
    assert [(one.name, one.depth) for one in watch_bench.watch.rows()] == [("b", 3)]
    watch_bench.look(row("b", depth=3))
    assert watch_bench.process.asked[-1].of == 2


def test_dead_letters_of_late_are_seen(watch_bench: WatchBench) -> None:
    watch_bench.look(row("a"))
    watch_bench.look(row("a", dead=2))
    seen = watch_bench.watch.seen(0)
    assert (dict(seen.dead), seen.now_ns) == ({"a": 2}, watch_bench.clock.wall_ns())


@pytest.fixture
def running(watch_bench: WatchBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchBench]:
    monkeypatch.setattr(watch_bench.watch, "every_s", 0.001)
    yield watch_bench
    watch_bench.watch.stop()
    watch_bench.watch._thread.join(BOUND_S)
    assert not watch_bench.watch._thread.is_alive()


def test_once_begun_it_asks_again_and_again(running: WatchBench) -> None:
    asked, several = running.process.ask, threading.Event()

    def ask(*arguments: Any) -> Any:
        found = asked(*arguments)
        if len(running.process.asked) >= 3:
            several.set()
        return found

    running.process.ask = ask  # type: ignore[method-assign]
    running.watch.start()
    assert several.wait(BOUND_S)
