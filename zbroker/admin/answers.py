"""The answers to requests, from what processes, files and the journal report. Any thread."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeVar

from msgspec import to_builtins

from zbroker.access.file import AccessFile
from zbroker.admin import alarms, core, requests, retention
from zbroker.admin.alarms import Alarm, AlarmFacts, AlarmWatch, held_limit
from zbroker.admin.audit import Audit
from zbroker.admin.branches import BranchReports
from zbroker.admin.client_reports import ClientReports, SubscriptionReports
from zbroker.admin.digest_reports import DigestReports
from zbroker.admin.documents import LocalFacts, document, stats_of, time_text
from zbroker.admin.drains import Drains
from zbroker.admin.exchanges import ExchangeReports
from zbroker.admin.jobs import Rewrite
from zbroker.admin.link_alarms import link_findings
from zbroker.admin.link_reports import LinkReports
from zbroker.admin.process_link import QUEUES, Sampler
from zbroker.admin.queues import QueueReports
from zbroker.admin.retention import SegmentView
from zbroker.admin.sessions import SessionReports
from zbroker.admin.survey import Tools
from zbroker.admin.topics import TopicReports
from zbroker.admin.worker import AdminWorker
from zbroker.clock import format_time
from zbroker.errors import ClientError, StorageError
from zbroker.wire import internal as m
from zbroker.wire.supervision import Status

JSON: Final = "application/json"

Document = dict[str, Any]
T = TypeVar("T")


class Reply(NamedTuple):
    """An HTTP answer."""

    body: bytes
    status: int = 200
    content_type: str = JSON

    @classmethod
    def of(cls, document: Document, status: int = 200) -> Self:
        """A document as JSON."""
        return cls(json.dumps(document).encode() + b"\n", status)


class AnswerSources(NamedTuple):
    """Where answers come from."""

    tools: Tools
    worker: AdminWorker
    sampling: Sampler
    subscriptions: SubscriptionReports
    clients: ClientReports
    topics: TopicReports
    audit: Audit
    access: AccessFile
    queues: QueueReports
    exchanges: ExchangeReports
    sessions: SessionReports
    branches: BranchReports
    links: LinkReports
    digests: DigestReports
    drains: Drains


class Answers:
    """One per process."""

    def __init__(self, parts: AnswerSources) -> None:
        self._parts = parts
        self._tools = parts.tools
        self._worker = parts.worker
        self._watch = AlarmWatch()
        self._alarms: list[Alarm] = []
        self._lock = threading.Lock()  # of the watch
        self._reads: dict[str, Callable[[str], Document]] = {
            "/status": lambda _: self.status(),
            "/journal": lambda _: self.journal(),
            "/holders": lambda _: self.holders(),
            "/actions": lambda _: self.actions(),
            "/queues": lambda _: parts.queues.all(),
            "/points": _asked(requests.PointsQuery, parts.queues.points),
            "/exchanges": _asked(requests.ExchangesQuery, parts.exchanges.exchanges),
            "/bindings": _asked(requests.BindingsQuery, parts.exchanges.bindings),
            "/sessions": _asked(requests.SessionsQuery, parts.sessions.sessions),
            "/transactions": _asked(requests.TransactionsQuery, parts.branches.transactions),
            "/replication": parts.links.all,
            "/replication/digests": _asked(requests.DigestsQuery, parts.digests.answer),
            "/topics": _asked(requests.TopicsQuery, parts.topics.answer),
            "/clients": _asked(requests.ClientsQuery, parts.clients.answer),
            "/subscriptions": _asked(requests.SubscriptionsQuery, parts.subscriptions.answer),
            "/history": _asked(requests.HistoryQuery, lambda q: parts.sampling.history(q.seconds)),
            "/audit": _asked(requests.AuditQuery, lambda q: parts.audit.document(q.limit)),
        }
        self._writes: dict[str, Callable[[bytes], Document]] = {
            "/journal/archive": _posted(
                requests.SegmentSelection, partial(self.rewrite, "archive")
            ),
            "/journal/compress": _posted(
                requests.SegmentSelection, partial(self.rewrite, "compress")
            ),
            "/journal/remove": _posted(requests.RemovalQuery, self.remove),
            "/journal/reindex": _posted(requests.EmptyRequest, lambda _: self.reindex()),
            "/journal/hold": _posted(requests.HoldRequest, self.hold),
            "/clients/disconnect": _posted(
                requests.ClientQuery, lambda ask: parts.clients.disconnect(ask.client)
            ),
            "/points": parts.queues.set_point,
            "/points/remove": parts.queues.remove_point,
            "/exchanges": _posted(requests.DeclareExchangeRequest, parts.exchanges.declare),
            "/exchanges/delete": _posted(requests.DeleteExchangeRequest, parts.exchanges.delete),
            "/bindings": _posted(requests.BindingRequest, parts.exchanges.bind),
            "/bindings/remove": _posted(requests.BindingRequest, parts.exchanges.unbind),
            "/sessions/end": _posted(requests.EndSessionRequest, parts.sessions.end),
            "/transactions/commit": _posted(requests.CommitRequest, parts.branches.commit),
            "/transactions/rollback": _posted(requests.ForcedRequest, parts.branches.rollback),
            "/transactions/forget": _posted(requests.ForcedRequest, parts.branches.forget),
            "/replication/drain": parts.drains.post,
            "/replication/fresh": parts.links.fresh,
        }

    def reply(self, path: str, query: str = "") -> Reply:
        """GET `path`, which core.refuse let pass. Raises: ClientError, StorageError."""
        if path == core.HEALTH:
            return self.health(requests.parse_query(requests.HealthQuery, query))
        return self.metrics() if path == "/metrics" else Reply.of(self.get(path, query))

    def get(self, path: str, query: str = "") -> Document:
        """The same for a path with a document."""
        queue = core.queue_of(path)
        if queue is not None:
            return self._parts.queues.get(queue.name, queue.what, query)
        number = core.action_number(path)
        return self._reads[path](query) if number is None else self.action(number)

    def post(self, path: str, body: bytes) -> Document:
        """POST likewise."""
        queue, link = core.queue_of(path), core.link_of(path)
        if queue is not None:
            return self._parts.queues.post(queue.name, queue.what, body)
        if link is not None:
            return self._parts.links.post(link.name, link.what, body)
        return self._writes[path](body)

    # -- reading --------------------------------------------------------------------------------

    def health(self, wanted: requests.HealthQuery) -> Reply:
        """For service managers: 200, or 503 while not every process is ready."""
        if wanted.live:
            return Reply.of({"state": "live"})
        status = self._parts.sampling.status()
        state = status.state if status is not None else "unknown"
        return Reply.of({"state": state}, 200 if state == "ready" else 503)

    def metrics(self) -> Reply:
        """For Prometheus."""
        # imported here: it takes 80 ms, and most instances are never asked
        from zbroker.admin import metrics

        status, parts = self._status(), self._parts
        text = metrics.text(
            stats_of(status), self._document(status), parts.audit.refused,
            parts.queues.watch.rows(), self._tools.clock.wall_ns(), parts.links.watch.seen(),
        )  # fmt: skip
        return Reply(text, content_type=metrics.CONTENT_TYPE)

    def status(self) -> Document:
        """What all processes report, and the alarms."""
        return self._document(self._status())

    def _status(self) -> Status:
        status = self._parts.sampling.status()
        if status is None:
            raise ClientError("not_ready", "the supervisor does not answer", "try again")
        return status

    def _document(self, status: Status) -> Document:
        try:
            running = json.loads(self._tools.paths.running.read_text())
        except (OSError, ValueError):
            running = {}  # not written yet: the status says `starting`
        alarms = [
            alarm.finding._asdict() | {"since": format_time(alarm.since_ns)}
            for alarm in self._look(status)
        ]
        parts, data_dir = self._parts, str(self._tools.paths.data)
        facts = LocalFacts(
            running, alarms, data_dir, parts.sampling.rates(), self._security(),
            parts.queues.watch.totals(), parts.links.summary(),
        )  # fmt: skip
        return document(status, facts)

    def _security(self) -> Document:
        file = self._parts.access
        return {
            "on": file.access.on, "access_version": file.version, "problem": file.problem
        }  # fmt: skip

    def watch(self, status: Status | None) -> int:
        """Looks for alarms and logs those that begin or end; how many there are."""
        return len(self._alarms if status is None else self._look(status))

    def _look(self, status: Status) -> list[Alarm]:
        log, worker = self._tools.log, self._worker
        try:
            disks = worker.survey.disks()
        except StorageError:
            disks = ()  # the journal's own complaint says more
        config, now_ns = self._tools.config, self._tools.clock.wall_ns()
        limit, links = held_limit(config.retention), self._parts.links.watch.seen()
        journal = stats_of(status).get("journal", {})
        facts = AlarmFacts(
            journal,
            disks,
            worker.blocked,
            limit,
            worker.failures,
            worker.survey.clock_behind_ms,
            queues=tuple(alarms.queue_findings(self._parts.queues.watch.seen(_up_ms(status)))),
            rules=self._parts.access.problem,
            keeper=alarms.largest_queue(self._parts.queues.watch.filled()),
            links=tuple(link_findings(links, limit)),
            in_doubt_ms=alarms.in_doubt_ms(journal, config.queues.branch_alarm, now_ns),
        )
        with self._lock:
            before = {alarm.finding.code for alarm in self._alarms}
            found = self._watch.look(facts, now_ns)
            self._alarms = found
        codes = {alarm.finding.code for alarm in found}
        for alarm in found:
            if alarm.finding.code not in before:
                log.warning(
                    "alarm %(alarm)s: %(what)s; %(means)s; %(next)s",
                    {"alarm" if key == "code" else key: text for key, text in
                     alarm.finding._asdict().items()},
                    extra={"code": "admin.alarm"},
                )  # fmt: skip
        for code in sorted(before - codes):
            log.info("alarm %(alarm)s is over", {"alarm": code}, extra={"code": "admin.alarm_over"})
        return found

    def journal(self) -> Document:
        """Every segment, and the readers that need some."""
        tools, worker = self._tools, self._worker
        rows = tools.catalog.rows()
        holders = worker.survey.holders()
        welcome = tools.link.welcome
        status = self._parts.sampling.status()
        stats = stats_of(status).get("journal", {}) if status else {}
        return {
            "instance": f"{tools.paths.instance:016x}",
            "generation": welcome.generation if welcome else 0,
            "generations": _generations(welcome),
            "log_time_ns": holders.log_time_ns,
            "directory": str(tools.paths.journal),
            "archive_directory": str(tools.paths.archive),
            "bytes": sum(row.bytes for row in rows),
            "free_bytes": worker.survey.disks()[0].free_bytes,
            "conflicts": stats.get("conflicts", 0),
            "stated": holders.stated,
            "removing": holders.removing,
            **_holders(holders),
            "segments": [_segment(row) for row in rows],
        }

    def holders(self) -> Document:
        """The readers, and the part of the log that each needs."""
        return _holders(self._worker.survey.holders())

    def actions(self) -> Document:
        """The action that runs, and earlier ones."""
        running = self._worker.running()
        return {
            "running": to_builtins(running) if running else None,
            "actions": to_builtins(self._tools.history.newest()),
        }

    def action(self, number: int) -> Document:
        """One action. Raises: ClientError not_found."""
        entry = self._tools.history.get(number)
        if entry is None:
            raise ClientError("not_found", f"there is no action {number}", "old ones are forgotten")
        return dict(to_builtins(entry))

    # -- changing -------------------------------------------------------------------------------

    def rewrite(self, kind: Rewrite, select: requests.SegmentSelection) -> Document:
        """Archives or compresses segments in the background; `dry_run` only says which."""
        wanted, through = requests.wanted(select)
        worker = self._worker
        state = worker.state(worker.survey.holders())
        taken, skipped = retention.by_hand(kind, state, wanted, through)
        number = None
        if taken and not select.dry_run:
            serials, size = [one.serial for one in taken], sum(one.bytes for one in taken)
            number = worker.submit(kind, serials, size, "asked for by hand")
        return {
            "id": number,
            "serials": [
                {"serial": one.serial, "bytes": one.bytes, "why": f"{kind} by hand"}
                for one in taken
            ],
            "skipped": [row._asdict() for row in skipped],
        }

    def remove(self, ask: requests.RemovalQuery) -> Document:
        """Gives up the oldest segments; the files go as soon as no reader has them open."""
        requests.check_through(ask)
        worker = self._worker
        entry = worker.entry("remove", "hand", f"asked for by hand, up to segment {ask.through}")
        made, removal = worker.remove(entry, ask, 100)
        return {
            "id": made.id if made else None,
            "serials": removal.serials,
            "floor": removal.log_start,
            "blocked": removal.blocked,
            "held_by": [_holding(held) for held in removal.held_by],
        }

    def reindex(self) -> Document:
        """Rebuilds the bookmark index from the log."""
        return {"id": self._worker.reindex().id}

    def hold(self, ask: requests.HoldRequest) -> Document:
        """Keeps a part of the log for a reader without a cursor."""
        since_ms = self._tools.clock.wall_ns() // 1_000_000
        holding = m.Holding(ask.who, ask.what, ask.position, since_ms)
        self._tools.leases.hold(self._tools.link, holding, ask.ttl_s)
        return {}


def _up_ms(status: Status) -> int:
    """How long the queues process has run."""
    processes = {str(one["room"]): one for one in status.processes}
    return int(float(str(processes.get(QUEUES, {}).get("uptime_s") or 0)) * 1_000)


def _asked(kind: type[T], answer: Callable[[T], Document]) -> Callable[[str], Document]:
    """The answer to a query of this kind."""
    return lambda query: answer(requests.parse_query(kind, query))


def _posted(kind: type[T], answer: Callable[[T], Document]) -> Callable[[bytes], Document]:
    """The answer to a body of this kind."""
    return lambda body: answer(requests.parse(kind, body))


def _generations(welcome: m.Welcome | None) -> list[Document]:
    begins = welcome.generations if welcome else []
    return [{"generation": generation, "first": first} for generation, first in begins]


def _holders(holders: m.Holders) -> Document:
    return {
        "floor": holders.log_start,
        "persisted": holders.persisted,
        "silent": holders.silent,
        "holders": [_holding(held) for held in holders.holdings],
    }


def _holding(held: m.Holding) -> Document:
    since = format_time(held.since_ms * 1_000_000) if held.since_ms else None
    return {"who": held.who, "what": held.what, "position": held.position, "since": since}


def _segment(row: SegmentView) -> Document:
    best = row.copies[0]
    return {
        "serial": row.serial,
        "place": "archive" if best.archived else "journal",
        "packed": best.packed,
        "first": row.first,
        "end": row.end,
        "first_time": time_text(row.first_time),
        "last_time": time_text(row.last_time),
        "bytes": row.bytes,
        "size": row.size,
        "open": row.is_open,
    }
