"""/queues/... and /points: the state of queues and points, and changes to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final

from msgspec.structs import asdict

from zbroker.admin import documents as document
from zbroker.admin import owner_reports
from zbroker.admin import requests as asking
from zbroker.admin.alarms import QueueObservation
from zbroker.admin.documents import read_definition
from zbroker.admin.process_link import QUEUES, PeriodicThread, QueueLink
from zbroker.admin.rates import Growth, Key, key_of
from zbroker.admin.requests import EmptyRequest, parse, parse_query
from zbroker.clock import Clock
from zbroker.errors import Bug, ClientError
from zbroker.wire import queue_surveys as q
from zbroker.wire.bodies import text_or_base64
from zbroker.wire.replicas import Links

Document = dict[str, Any]


STALE_MS: Final = 10_000  # older rows are not reported as if they were current


class QueueReports:
    """Answers from any thread."""

    def __init__(
        self, link: QueueLink, watch: QueueWatch, clock: Clock,
        links: Callable[[AbstractSet[int]], Links | None] = lambda _: None, name: str = "",
    ) -> None:  # fmt: skip
        """links: as the replication process reported them, for the names of these instances. name:
        of this instance."""
        self._link = link
        self._clock = clock
        self._links = links
        self._name = name
        self.watch = watch

    # -- reading --------------------------------------------------------------------------------

    def all(self) -> Document:
        """Every queue, by name. Raises: ClientError not_ready."""
        answer = self._link.look(q.Queues, q.AskQueues(0))
        rows = sorted(answer.rows, key=lambda row: row.name)
        return {"persisted": answer.persisted, "queues": [self._row(row) for row in rows]}

    def get(self, name: str, what: str, query: str) -> Document:
        """GET /queues/`name`/`what`. Raises: ClientError unknown_queue, not_ready, bad_field."""
        if what == "consumers":
            return self._consumers(name, parse_query(asking.ConsumersQuery, query))
        if what == "browse":
            return self._browse(name, parse_query(asking.BrowseQuery, query))
        if what == "explain":
            return self._explain(name, parse_query(asking.ExplainQuery, query))
        parse_query(EmptyRequest, query)
        row = self._one(name)
        known, now_ns = self._linked(row.owners), self._clock.wall_ns()
        owners = [owner_reports.document(one, known, now_ns) for one in row.owners]
        for owner in owners:
            owner["name"] = self._name if owner["here"] else owner["name"]
        return self._row(row) | {"definition": document.definition(row), "owners": owners}

    def points(self, wanted: asking.PointsQuery) -> Document:
        """Every point, a named place of the log; or the one that is wanted, with its place."""
        answer = self._link.look(q.Points, q.AskPoints(0, wanted.name))
        rows = sorted(answer.rows, key=lambda row: row.name)
        return {"points": [_point(row) for row in rows]}

    def _row(self, row: q.QueueRow) -> Document:
        return document.queue(row, self.watch.rates(row), self._clock.wall_ns())

    def _one(self, name: str) -> q.QueueRow:
        answer = self._link.look(q.Queues, q.AskQueues(0, name))
        for row in answer.rows:
            if row.name == name:
                return row
        raise ClientError("unknown_queue", f"there is no queue {name!r}")

    def _consumers(self, name: str, wanted: asking.ConsumersQuery) -> Document:
        answer = self._link.look(q.Consumers, q.AskConsumers(0, name, wanted.limit))
        if not answer.rows:
            self._one(name)  # it has no consumer, or it is not there
        return {"left_out": answer.left_out, "consumers": [asdict(row) for row in answer.rows]}

    def _browse(self, name: str, wanted: asking.BrowseQuery) -> Document:
        answer = self._link.look(q.Browsed, q.BrowseQueue(0, name, **asdict(wanted)))
        rows = [document.message(row) for row in answer.rows]
        for row, data in zip(rows, answer.payloads, strict=False):
            row |= text_or_base64(data)
        return {"next": answer.next, "messages": rows}

    def _explain(self, name: str, wanted: asking.ExplainQuery) -> Document:
        asking.check_why(wanted)
        answer = self._link.look(q.Explained, q.Explain(0, name, **asdict(wanted)))
        known, now_ns = self._linked(answer.owners), self._clock.wall_ns()
        single = bool(wanted.position or wanted.bookmark)
        more = owner_reports.sentences(name, answer.owners, known, now_ns, single=single)
        owners = [owner_reports.document(one, known, now_ns) for one in answer.owners]
        lines = [*answer.lines, *more]
        return {"queue": name, "state": answer.state, "lines": lines, "owners": owners}

    def _linked(self, owners: Iterable[q.OwnedMessages]) -> owner_reports.Linked:
        others = {one.instance for one in owners if not one.mine}
        said = self._links(others) if others else None
        return owner_reports.linked(said.rows if said is not None else ())

    # -- changing -------------------------------------------------------------------------------

    def post(self, name: str, what: str, body: bytes) -> Document:
        """POST /queues/`name`/`what`; it is durable when this returns. Raises: ClientError."""
        question = _question(name, what, body)
        done = self._link.change(question)
        report = {
            "queue": name,
            "dry_run": question.dry_run,
            "count": done.count,
            "text": done.text,
        }
        return report | {"position": done.position} if what == "purge" else report

    def set_point(self, body: bytes) -> Document:
        """POST /points. Raises: ClientError."""
        ask = parse(asking.SetPointRequest, body)
        done = self._link.change(q.SetPoint(0, ask.name, ask.at or 0, ask.vector))
        return {"name": ask.name, "position": done.position, "vector": done.vector}

    def remove_point(self, body: bytes) -> Document:
        """POST /points/remove. Raises: ClientError."""
        ask = parse(asking.RemovePointRequest, body)
        done = self._link.change(q.RemovePoint(0, ask.name, ask.dry_run))
        place = {"position": done.position or None, "vector": done.vector}
        return {"name": ask.name, "dry_run": ask.dry_run} | place


def _question(name: str, what: str, body: bytes) -> q.Purge | q.Requeue | q.Define | q.TakeOver:
    """The question that a request becomes. Raises: ClientError bad_field, bad_queue."""
    if what == "purge":
        purge = parse(asking.PurgeRequest, body)
        asking.check_purge(purge)
        before, point = purge.before or 0, purge.point or ""
        return q.Purge(0, name, before, point, purge.leased, purge.dry_run, purge.dead_letters)
    if what == "requeue":
        requeue = parse(asking.RequeueRequest, body)
        return q.Requeue(0, name, **asdict(requeue))
    if what == "takeover":
        taken = parse(asking.TakeOverRequest, body)
        return q.TakeOver(
            0,
            name,
            int(taken.instance, 16),
            taken.called,
            taken.may_duplicate,
            taken.dry_run,
            taken.until_back,
            taken.end,
        )
    if what == "delete":
        return q.Define(0, what, name, dry_run=parse(asking.DeleteRequest, body).dry_run)
    if what not in ("create", "alter"):
        raise Bug(f"core let {what!r} in")
    define = parse(asking.DefineRequest, body)
    return q.Define(0, what, name, read_definition(define.definition), define.dry_run)


class QueueWatch(PeriodicThread):
    """What the queues process reports each second: for rates, history, metrics, alarms.

    Only what changed is asked for, and only queues with messages or dead letters are looked at for
    alarms: a queue at which nothing happens costs nothing. Answers any thread.
    """

    def __init__(self, link: QueueLink, clock: Clock) -> None:
        super().__init__("queues")
        self._link = link
        self._clock = clock
        self._lock = threading.Lock()  # of all that follows
        self._growth = Growth()
        self._rows: dict[str, q.QueueRow] = {}
        self._filled: dict[str, q.QueueRow] = {}  # those with messages
        self._row_ms: dict[str, int] = {}  # when a row was reported
        self._depth = 0  # of all of them
        self._newest = self._incarnation = 0  # of the last answer
        self._first_ms: dict[Key, int | None] = {}  # when it was seen first; None: it was there
        #: the oldest message of other instances, by queue, and since when it is that
        self._elsewhere: dict[str, tuple[int, int]] = {}
        self._reported_ms: int | None = None

    def look(self) -> None:
        """Asks once."""
        try:
            ask = q.AskQueues(0, since=self._newest, of=self._incarnation)
            answer = self._link.look(q.Queues, ask)
        except ClientError:
            return  # it starts, or hangs: the rows from before grow old
        with self._lock:
            self._take(answer, self._clock.mono_ms())

    def _take(self, answer: q.Queues, now_ms: int) -> None:
        since = None if self._reported_ms is None else now_ms
        names = [row.name for row in answer.rows]
        over = self._rows.keys() - set(names) if answer.whole else answer.gone
        before = [row for name in (*over, *names) if (row := self._forget(name)) is not None]
        elsewhere = self._elsewhere
        for name in over:
            elsewhere.pop(name, None)
        gone = {key_of(row) for row in before} - {key_of(row) for row in answer.rows}
        for key in gone:
            del self._first_ms[key]
        for row in answer.rows:
            self._rows[row.name], self._row_ms[row.name] = row, now_ms
            self._first_ms.setdefault(key_of(row), since)
            self._depth += row.depth
            if row.depth or row.bytes:
                self._filled[row.name] = row
            if row.elsewhere and elsewhere.get(row.name, (0, 0))[0] != row.elsewhere_first:
                elsewhere[row.name] = row.elsewhere_first, now_ms
            elif not row.elsewhere:
                elsewhere.pop(row.name, None)
        self._growth.take(answer.rows, now_ms / 1_000, gone)
        self._newest, self._incarnation, self._reported_ms = answer.look, answer.incarnation, now_ms

    def _forget(self, name: str) -> q.QueueRow | None:
        row = self._rows.pop(name, None)
        if row is not None:
            self._depth -= row.depth
            self._filled.pop(name, None)
            del self._row_ms[name]
        return row

    # -- from any thread ------------------------------------------------------------------------

    def rows(self) -> list[q.QueueRow]:
        """Every queue as of its last change; none, if no report came for a while."""
        with self._lock:
            return list(self._rows.values()) if self._is_fresh() else []

    def filled(self) -> list[q.QueueRow]:
        """The queues with messages, likewise."""
        with self._lock:
            return list(self._filled.values()) if self._is_fresh() else []

    def rates(self, row: q.QueueRow) -> dict[str, float]:
        """The rates of one queue over the last seconds."""
        with self._lock:
            return self._growth.rates(key_of(row))

    def totals(self) -> Document:
        """All queues together, for the status."""
        return document.totals(self.rows())

    def numbers(self) -> dict[str, Document]:
        """Statistics of the queues process for the history; none while it is silent."""
        with self._lock:
            if not self._is_fresh():
                return {}
            grown = {f"{name}_grown": count for name, count in self._growth.grown.items()}
            return {QUEUES: {"depth": self._depth} | grown}

    def seen(self, up_ms: int) -> QueueObservation:
        """The queues that may be reason for an alarm. up_ms: how long the process has run."""
        now_ms = self._clock.mono_ms()
        with self._lock:
            dead = self._growth.dead()
            names = {*self._filled, *(dead.keys() & self._rows.keys())}
            rows = [self._rows[name] for name in names] if self._is_fresh() else []
            known_ms = {}
            for row in rows:
                first_ms = self._first_ms[key_of(row)]
                known_ms[row.name] = up_ms if first_ms is None else min(up_ms, now_ms - first_ms)
            ago_ms = {row.name: now_ms - self._row_ms[row.name] for row in rows}
            stays_ms = {name: now_ms - since_ms for name, (_, since_ms) in self._elsewhere.items()}
        return QueueObservation(rows, known_ms, dead, self._clock.wall_ns(), ago_ms, stays_ms)

    def _is_fresh(self) -> bool:
        reported_ms = self._reported_ms
        return reported_ms is not None and self._clock.mono_ms() - reported_ms < STALE_MS


def _point(row: q.PointRow) -> Document:
    """vector: by positions of all origins, if these are known. position: None of a point whose
    place in this log is looked up when it is used."""
    return {
        "name": row.name,
        "scope": "distributed" if row.shared else "local",
        "position": row.position or None,
        "vector": row.covers or row.vector,
        "set_at": row.set_at,
    }
