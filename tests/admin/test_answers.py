"""zbroker/admin/answers.py: the shapes that the command line reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.admin.link_rows import FakeReplication, link, source
from tests.admin.queue_rows import FakeQueues, row
from tests.admin.rig import Rig
from zbroker.access.file import AccessFile
from zbroker.admin import core, jobs, requests
from zbroker.admin.answers import Answers, AnswerSources
from zbroker.admin.audit import DONE, Audit, AuditedRequest
from zbroker.admin.branches import BranchReports
from zbroker.admin.digest_reports import DigestReports
from zbroker.admin.drains import Drains
from zbroker.admin.exchanges import ExchangeReports
from zbroker.admin.link_alarms import GRACE_MS
from zbroker.admin.link_reports import LinkReports, LinkWatch
from zbroker.admin.process_link import Sampler
from zbroker.admin.queues import QueueReports, QueueWatch
from zbroker.admin.retention import BlockedRemoval
from zbroker.admin.sessions import SessionReports
from zbroker.errors import ClientError
from zbroker.wire import branch_surveys as b
from zbroker.wire import exchange_surveys as x
from zbroker.wire import internal as m
from zbroker.wire import queue_surveys as q
from zbroker.wire import session_surveys as y
from zbroker.wire.replicas import ChangeLink
from zbroker.wire.supervision import Status

SEGMENT_KEYS = {
    "serial", "place", "packed", "first", "end", "first_time", "last_time", "bytes", "size", "open",
}  # fmt: skip
JOURNAL_KEYS = {
    "instance", "generation", "generations", "floor", "persisted", "log_time_ns", "directory",
    "archive_directory", "bytes", "free_bytes", "conflicts", "stated", "removing", "silent",
    "holders", "segments",
}  # fmt: skip
ACTION_KEYS = {
    "id", "time", "action", "by", "why", "serials", "bytes", "result", "reason", "took_s",
    "progress",
}  # fmt: skip


class Supervisor:
    """What processes say; tests set `stats` of the journal."""

    def __init__(self) -> None:
        self.stats: dict[str, Any] = {"conflicts": 3}
        self.silent = False
        self.state = "ready"

    def ask(self, _kind: object, _question: object, _processes: object) -> dict[str, Status | None]:
        process: dict[str, Any] = {"room": "journal", "stats": self.stats}
        queues: dict[str, Any] = {"room": "queues", "uptime_s": 7_200}
        status = Status(1, self.state, [process, queues])
        return {"supervisor": None if self.silent else status}


def reported_by_process(ask: Any) -> Any:
    """What the queues process says to each question but what queues there are."""
    if isinstance(ask, q.AskPoints):
        return q.Points(ask.cid, [])
    if isinstance(ask, x.AskExchangeRows):
        return x.ExchangesSurveyed(ask.cid)
    if isinstance(ask, x.AskBindingRows):
        return x.BindingsSurveyed(ask.cid)
    if isinstance(ask, y.AskSessionRows):
        return y.SessionsSurveyed(ask.cid)
    if isinstance(ask, b.AskBranchRows):
        return b.BranchesSurveyed(ask.cid)
    if isinstance(ask, b.ChangeBranch):
        return b.BranchChanged(ask.cid, 7, 1, 2)
    changes = (
        q.Purge | q.SetPoint | q.RemovePoint | x.ChangeExchange | x.ChangeBinding | y.EndSession
    )
    return q.Changed(ask.cid, 3, 7) if isinstance(ask, changes) else None


class Subscriptions:
    """Echoes what is wanted."""

    def answer(self, wanted: requests.SubscriptionsQuery) -> dict[str, Any]:
        return {"client": wanted.client, "limit": wanted.limit}


class Clients:
    """Echoes what is wanted, and knows ann."""

    def answer(self, wanted: requests.ClientsQuery) -> dict[str, Any]:
        return {"client": wanted.client, "limit": wanted.limit}

    def disconnect(self, client: str) -> dict[str, Any]:
        return {"disconnected": int(client == "ann")}


class Topics:
    """Echoes what is wanted."""

    def answer(self, wanted: requests.TopicsQuery) -> dict[str, Any]:
        return {"match": wanted.match, "limit": wanted.limit}


class Bench:
    def __init__(self, data: Path, **retention: int) -> None:
        self.rig = Rig(data, **retention)
        self.process = FakeQueues()
        self.process.say = reported_by_process
        self.supervisor = Supervisor()
        supervisor: Any = self.supervisor
        self.subscriptions = Subscriptions()
        subscriptions: Any = self.subscriptions
        self.clients = Clients()
        clients: Any = self.clients
        topics: Any = Topics()
        tools = self.rig.tools
        self.watch_queues = QueueWatch(self.process.link, tools.clock)
        self.replication = FakeReplication(link())
        links = LinkWatch(self.replication.link, tools.clock, tools.catalog.rows)
        self.watch_links = links
        self.sampling = Sampler(supervisor, tools.clock, self.watch_queues.numbers)
        self.audit = Audit(tools.paths.audit, tools.clock, tools.log)
        access = AccessFile(None, tools.clock, tools.log)
        self.answers = Answers(
            AnswerSources(
                tools, self.rig.worker, self.sampling, subscriptions, clients, topics, self.audit,
                access, QueueReports(self.process.link, self.watch_queues, tools.clock),
                ExchangeReports(self.process.link),
                SessionReports(self.process.link),
                BranchReports(self.process.link, tools.clock),
                LinkReports(self.replication.link, links, []),
                DigestReports(tools.paths, lambda: 1, tools.clock),
                Drains(clients, self.replication.link, lambda: 1, tools.clock, "main"),
            )
        )  # fmt: skip

    def watch(self) -> int:
        return self.answers.watch(self.sampling.take())

    def post(self, path: str, **body: object) -> dict[str, Any]:
        return self.answers.post(path, json.dumps(body).encode())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(jobs, "PACE_BYTES_S", 1 << 40)
    monkeypatch.setattr("os.setpriority", lambda *_: None)  # the thread is that of the tests
    return Bench(tmp_path)


def test_every_answer_is_json(bench: Bench) -> None:
    bench.post("/journal/archive", serials=[1])
    bench.rig.turns()
    for path in ("/status", "/journal", "/holders", "/actions", "/actions/1"):
        found = bench.answers.get(path)
        assert json.loads(json.dumps(found)) == found


def test_a_query_says_which_subscriptions(bench: Bench) -> None:
    found = bench.answers.get("/subscriptions", "client=ann&limit=3")
    assert found == {"client": "ann", "limit": 3}


def test_the_journal_has_the_published_keys(bench: Bench) -> None:
    found = bench.answers.get("/journal")
    assert set(found) == JOURNAL_KEYS
    assert all(set(segment) == SEGMENT_KEYS for segment in found["segments"])
    assert (found["instance"], found["conflicts"]) == ("000000000000abcd", 3)
    assert found["generations"] == []
    assert bench.rig.journal.welcome is not None
    bench.rig.journal.welcome.generations = [(1, 1), (7, 30)]
    assert bench.answers.get("/journal")["generations"] == [
        {"generation": 1, "first": 1}, {"generation": 7, "first": 30},
    ]  # fmt: skip


def test_segments_join_and_the_open_one_has_no_end(bench: Bench) -> None:
    bench.rig.turns()  # summaries are made
    segments = bench.answers.get("/journal")["segments"]
    assert [segment["serial"] for segment in segments] == [1, 2, 3, 4, 5]
    assert [segment["end"] for segment in segments[:-1]] == [
        segment["first"] for segment in segments[1:]
    ]
    assert segments[-1]["end"] is None
    assert [segment["open"] for segment in segments] == [False] * 4 + [True]
    assert segments[0]["first_time"] == "19700101T000000.000001Z"
    assert segments[-1]["last_time"] is None


def test_a_segment_tells_where_it_is(bench: Bench) -> None:
    bench.post("/journal/archive", serials=[1])
    bench.rig.turns()
    bench.post("/journal/compress", serials=[1, 2])
    bench.rig.turns()
    found = bench.answers.get("/journal")["segments"]
    assert [(segment["place"], segment["packed"]) for segment in found[:3]] == [
        ("archive", True), ("journal", True), ("journal", False),
    ]  # fmt: skip
    assert found[1]["bytes"] < found[1]["size"] == found[2]["size"] == found[2]["bytes"]


def test_holders_are_reported_by_name(bench: Bench) -> None:
    holdings = [m.Holding("spark", "a job", 7, 1_000), m.Holding("x", "", 9, 0)]
    bench.rig.journal.holders = m.Holders(0, 5, 90, 1, holdings, ["delivery"])
    assert bench.answers.get("/holders") == {
        "floor": 5,
        "persisted": 90,
        "silent": ["delivery"],
        "holders": [
            {"who": "spark", "what": "a job", "position": 7, "since": "19700101T000001Z"},
            {"who": "x", "what": "", "position": 9, "since": None},
        ],
    }


@pytest.mark.parametrize("action", ["archive", "compress"])
def test_a_dry_run_says_what_would_be_done(bench: Bench, action: str) -> None:
    found = bench.post(f"/journal/{action}", through=2, dry_run=True)
    assert found["id"] is None
    assert [row["serial"] for row in found["serials"]] == [1, 2]
    assert {"serial", "bytes", "why"} == set(found["serials"][0])
    assert bench.answers.get("/actions")["actions"] == []


def test_what_is_left_out_is_reported(bench: Bench) -> None:
    found = bench.post("/journal/archive", serials=[5, 9])
    assert found["id"] is None
    assert [row["serial"] for row in found["skipped"]] == [5, 9]


def test_a_request_can_be_followed(bench: Bench) -> None:
    number = bench.post("/journal/archive", through=2)["id"]
    found = bench.answers.get(f"/actions/{number}")
    assert set(found) == ACTION_KEYS
    assert (found["result"], found["by"], found["serials"]) == ("queued", "hand", [1, 2])
    again = bench.post("/journal/archive", through=2)
    assert [row["reason"] for row in again["skipped"]] == ["it is being worked on"] * 2
    bench.rig.turns()
    found = bench.answers.get(f"/actions/{number}")
    assert (found["result"], found["progress"]["done"]) == ("done", found["bytes"])


def test_what_runs_is_reported(bench: Bench) -> None:
    assert bench.answers.get("/actions") == {"running": None, "actions": []}
    number = bench.post("/journal/remove", through=2)["id"]
    found = bench.answers.get("/actions")
    assert found["running"]["id"] == number
    assert found["actions"][0]["progress"] == {"done": 0, "total": 2}


def test_a_removal_tells_what_goes(bench: Bench) -> None:
    dry = bench.post("/journal/remove", through=2, dry_run=True)
    assert (dry["id"], dry["serials"]) == (None, [1, 2])
    assert set(dry) == {"id", "serials", "floor", "blocked", "held_by"}
    assert bench.rig.files()[1] == ["j"]


def test_an_action_that_is_not_known_is_not_found(bench: Bench) -> None:
    with pytest.raises(ClientError, match="not_found"):
        bench.answers.get("/actions/7")


def test_one_new_index_at_a_time(bench: Bench) -> None:
    assert bench.post("/journal/reindex")["id"] == 1
    with pytest.raises(ClientError, match="too_many"):
        bench.post("/journal/reindex")


def test_a_hold_reaches_the_journal_and_is_reported_again_to_the_next_one(bench: Bench) -> None:
    assert bench.post("/journal/hold", who="b", what="backup", position=3, ttl_s=60) == {}
    [ask] = [ask for ask in bench.rig.journal.asked if isinstance(ask, m.Lease)]
    assert (ask.holding.who, ask.holding.position, ask.ttl_ms) == ("b", 3, 60_000)
    assert bench.rig.journal.welcome is not None
    bench.rig.journal.welcome.incarnation += 1
    bench.rig.clock.seconds += 10
    bench.post("/journal/remove", through=1, dry_run=True)
    again = [ask for ask in bench.rig.journal.asked if isinstance(ask, m.Lease)][1:]
    assert [(ask.holding.who, ask.ttl_ms) for ask in again] == [("b", 50_000)]


def test_a_hold_that_the_journal_refuses_is_an_error(bench: Bench) -> None:
    bench.rig.journal.refuse[m.Lease] = ("bookmark_expired", "too old")
    with pytest.raises(ClientError, match="too old"):
        bench.post("/journal/hold", who="b", what="backup", position=3, ttl_s=60)


def test_without_the_journal_there_is_an_error_and_a_status(bench: Bench) -> None:
    bench.rig.journal.welcome = None
    for path in ("/journal", "/holders"):
        with pytest.raises(ClientError, match="not_ready"):
            bench.answers.get(path)
    assert bench.answers.get("/status")["state"] == "ready"


def test_a_silent_supervisor_is_an_error(bench: Bench) -> None:
    bench.supervisor.silent = True
    with pytest.raises(ClientError, match="not_ready"):
        bench.answers.get("/status")
    assert bench.watch() == 0


def test_alarms_are_in_the_status_and_in_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.supervisor.stats = {"damage": 1, "accepting": 1}
    caplog.set_level("INFO")
    codes = {alarm["code"] for alarm in bench.answers.get("/status")["alarms"]}
    assert "damage" in codes
    assert bench.watch() == len(codes)
    bench.supervisor.stats = {}
    bench.watch()
    lines = [record.message for record in caplog.records if "damage" in record.message]
    assert [line.split(":")[0] for line in lines] == ["alarm damage", "alarm damage is over"]


def test_an_alarm_has_the_published_keys(bench: Bench) -> None:
    bench.supervisor.stats = {"damage": 1}
    [alarm] = [a for a in bench.answers.get("/status")["alarms"] if a["code"] == "damage"]
    assert set(alarm) == {"code", "since", "what", "means", "next"}
    assert alarm["since"] == "19700101T010000Z"


# -- numbers, and who is there --------------------------------------------------------------------


def test_health_is_bad_until_every_process_is_ready(bench: Bench) -> None:
    assert bench.answers.reply("/health") == (b'{"state": "ready"}\n', 200, "application/json")
    bench.supervisor.state = "starting"
    found = bench.answers.reply("/health")
    assert (found.status, json.loads(found.body)) == (503, {"state": "starting"})
    bench.supervisor.silent = True
    assert bench.answers.reply("/health").status == 503


def test_who_answers_lives(bench: Bench) -> None:
    bench.supervisor.silent = True
    assert bench.answers.reply("/health", "live=1").status == 200


def test_the_status_tells_rates_and_security(bench: Bench) -> None:
    bench.supervisor.stats = {"bytes_written": 100}
    bench.watch()
    bench.supervisor.stats = {"bytes_written": 160}
    bench.rig.clock.seconds += 2
    bench.watch()
    found = bench.answers.get("/status")
    assert found["rates"] == {
        "bytes_in_s": 30.0, "bytes_out_s": 0.0, "messages_in_s": 0.0, "messages_out_s": 0.0,
        "queue_acked_s": 0.0, "queue_delivered_s": 0.0, "queue_in_s": 0.0,
    }  # fmt: skip
    assert found["security"] == {"on": False, "access_version": 0, "problem": ""}


def test_history_tells_what_was(bench: Bench) -> None:
    bench.supervisor.stats = {"sync_ms": 1.5}
    bench.watch()
    bench.supervisor.silent = True
    bench.rig.clock.seconds += 1
    bench.watch()
    found = bench.answers.get("/history", "seconds=60")
    assert (found["step_s"], found["times"]) == (1, [3_600])
    assert found["series"]["fsync_ms"] == [1.5]


def test_metrics_are_text(bench: Bench) -> None:
    found = bench.answers.reply("/metrics")
    assert found.content_type.startswith("text/plain")
    assert b"zbroker_log_damage" not in found.body
    bench.supervisor.stats = {"damage": 3}
    assert b"zbroker_log_damage 3.0\n" in bench.answers.reply("/metrics").body


def test_the_audit_log_can_be_read(bench: Bench) -> None:
    bench.audit.write(AuditedRequest("ann", "127.0.0.1:1", "POST /x"), DONE)
    bench.audit.write(AuditedRequest("bob", "127.0.0.1:2", "POST /x"), DONE)
    found = bench.answers.get("/audit", "limit=1")
    assert ([entry["who"] for entry in found["entries"]], found["intact"]) == (["bob"], True)


@pytest.mark.parametrize(
    ("path", "query", "found"),
    [
        ("/clients", "client=ann&limit=5", {"client": "ann", "limit": 5}),
        ("/topics", "match=a*", {"match": "a*", "limit": 1_000}),
        ("/subscriptions", "client=ann", {"client": "ann", "limit": 1_000}),
    ],
)
def test_a_query_reaches_who_knows(
    bench: Bench, path: str, query: str, found: dict[str, Any]
) -> None:
    assert bench.answers.get(path, query) == found
    with pytest.raises(ClientError, match="the query"):
        bench.answers.get(path, "limit=0")


def test_a_client_can_be_disconnected(bench: Bench) -> None:
    assert bench.post("/clients/disconnect", client="ann") == {"disconnected": 1}
    with pytest.raises(ClientError, match="the body"):
        bench.post("/clients/disconnect")


@pytest.mark.parametrize("path", core.READS)
def test_every_path_that_is_let_in_is_answered(bench: Bench, path: str) -> None:
    assert bench.answers.reply(path).status == 200


# -- links to other instances ---------------------------------------------------------------------


def test_links_are_in_the_status_in_metrics_and_in_alarms(bench: Bench) -> None:
    bench.replication.rows = [link(state="down", lag=4), source("c")]
    assert [one["name"] for one in bench.answers.get("/replication")["links"]] == ["b", "c"]
    bench.watch_links.look()
    bench.rig.clock.seconds += GRACE_MS // 1_000
    bench.watch_links.look()
    status = bench.answers.get("/status")
    assert (status["replication"]["up"], status["replication"]["lag"]) == (0, 4)
    assert "sync_unreachable" in {alarm["code"] for alarm in status["alarms"]}
    reported = bench.answers.reply("/metrics").body
    assert b'zbroker_replication_lag{link="b"} 4.0\n' in reported
    assert b'zbroker_alarm{code="sync_unreachable"} 1.0\n' in reported


def test_changes_reach_the_replication_process(bench: Bench) -> None:
    assert bench.post("/replication/b/pause") == {"link": "b", "dry_run": False, "text": "done"}
    bench.post("/replication/a%2Fb/downgrade", dry_run=True)
    asked = [ChangeLink(0, "pause", "b"), ChangeLink(0, "downgrade", "a/b", dry_run=True)]
    assert bench.replication.asked == asked


# -- queues ---------------------------------------------------------------------------------------


def test_a_path_with_a_name_is_about_that_queue(bench: Bench) -> None:
    bench.process.rows = [row("a/b", depth=3)]
    assert bench.answers.get("/queues")["queues"][0]["name"] == "a/b"
    assert bench.answers.get("/queues/a%2Fb")["depth"] == 3
    with pytest.raises(ClientError, match="no queue 'x'"):
        bench.answers.get("/queues/x")


def test_changes_reach_the_queues_process(bench: Bench) -> None:
    assert bench.post("/queues/work/purge", all=True)["count"] == 3
    assert bench.post("/points", name="eod")["position"] == 7
    assert bench.post("/points/remove", name="eod")["position"] == 7
    asked = [q.Purge(0, "work"), q.SetPoint(0, "eod"), q.RemovePoint(0, "eod")]
    assert bench.process.asked == asked


def test_exchanges_and_bindings_have_paths(bench: Bench) -> None:
    assert bench.answers.get("/exchanges") == {"exchanges": []}
    assert bench.answers.get("/bindings", "queue=bills")["bindings"] == []
    assert bench.post("/exchanges", exchange="e")["changed"]
    assert bench.post("/bindings", queue="q", exchange="e")["changed"]
    assert bench.post("/bindings/remove", queue="q", exchange="e")["changed"]
    assert bench.post("/exchanges/delete", exchange="e")["bindings"] == 3
    assert [getattr(one, "what", "") for one in bench.process.asked] == [
        "", "", "declare", "bind", "unbind", "delete"
    ]  # fmt: skip


def test_sessions_have_paths(bench: Bench) -> None:
    assert bench.answers.get("/sessions", "principal=shop") == {"left_out": 0, "sessions": []}
    assert bench.post("/sessions/end", session="billing")["attached"] == 3
    assert bench.process.asked == [
        y.AskSessionRows(0, "shop", "", 1_000), y.EndSession(0, "", "billing")
    ]  # fmt: skip


def test_transactions_have_paths(bench: Bench) -> None:
    assert bench.answers.get("/transactions", "limit=5") == {"left_out": 0, "transactions": []}
    for decision in ("commit", "rollback", "forget"):
        found = bench.post(f"/transactions/{decision}", xid="7:a:b", principal="shop")
        assert (found["decision"], found["locked"]) == (decision, 2)
    assert [ask.decision for ask in bench.process.asked[1:]] == ["commit", "rollback", "forget"]


@pytest.mark.parametrize(("since_s", "raised"), [(0, True), (1, False)])
def test_a_transaction_that_is_in_doubt_for_an_hour_is_an_alarm(
    bench: Bench, since_s: int, raised: bool
) -> None:
    """The statistics of the journal say so: no process is asked for it."""
    bench.supervisor.stats |= {
        "branches_prepared": 2, "branches_decided": 1, "branches_since_s": since_s
    }  # fmt: skip
    found = {alarm["code"]: alarm for alarm in bench.answers.get("/status")["alarms"]}
    assert ("transaction_in_doubt" in found) == raised
    assert bench.process.asked == []
    reported = bench.answers.reply("/metrics").body
    assert b'zbroker_branches{state="prepared"} 2.0\n' in reported
    assert b"zbroker_branch_oldest_seconds %d.0\n" % (3_600 - since_s) in reported


def test_queues_are_in_the_status_in_metrics_and_in_the_history(bench: Bench) -> None:
    bench.process.rows = [row("work", depth=3, acked=4)]
    bench.watch_queues.look()
    bench.watch()
    bench.process.rows = [row("work", depth=1, acked=6)]
    bench.rig.clock.seconds += 1
    bench.watch_queues.look()
    bench.watch()
    status = bench.answers.get("/status")
    assert (status["queues"]["count"], status["queues"]["depth"]) == (1, 1)
    assert status["rates"]["queue_acked_s"] == 2.0
    assert b'zbroker_queue_depth{queue="work"} 1.0\n' in bench.answers.reply("/metrics").body
    assert bench.answers.get("/history")["series"]["queue_depth"] == [2.0], "the mean of a step"


def test_an_access_file_that_cannot_be_used_is_an_alarm(bench: Bench) -> None:
    bench.answers._parts.access.problem = "access.toml:3: there is no action 'fly'"
    [alarm] = [a for a in bench.answers.get("/status")["alarms"] if a["code"] == "access_file"]
    assert "there is no action 'fly'" in alarm["what"]


def test_a_queue_that_holds_back_a_rule_is_an_alarm_at_once(bench: Bench) -> None:
    held = BlockedRemoval("held", 5, "segment 1: needed by queues (rare)", ("rare",))
    bench.rig.worker.blocked = held
    codes = [alarm["code"] for alarm in bench.answers.get("/status")["alarms"]]
    assert "queue_holds" in codes


def test_a_queue_that_no_one_takes_from_is_an_alarm(bench: Bench) -> None:
    bench.process.rows = [row("work", depth=3, ready=3)]
    bench.watch_queues.look()
    [alarm] = [a for a in bench.answers.get("/status")["alarms"] if a["code"] == "queue_idle"]
    assert "work was never consumed since 19691231T230000Z (2 h)" in alarm["what"]
