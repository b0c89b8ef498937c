"""/queues/... and /points: what queues hold, who takes it, why nothing is delivered; changes."""

from __future__ import annotations

from typing import Any

from zbroker.admin import queue_document as document
from zbroker.admin import queue_requests as asking
from zbroker.admin.queue_link import QueueLink
from zbroker.admin.queue_settings import definition
from zbroker.admin.queue_watch import QueueWatch
from zbroker.admin.requests import EmptyRequest, parse, parse_query
from zbroker.clock import Clock
from zbroker.errors import Bug, ClientError
from zbroker.wire import queue_surveys as q

Document = dict[str, Any]


class QueueReports:
    """Answers from any thread."""

    def __init__(self, desk: QueueLink, watch: QueueWatch, clock: Clock) -> None:
        self._desk = desk
        self._clock = clock
        self.watch = watch

    # -- what is --------------------------------------------------------------------------------

    def all(self) -> Document:
        """Every queue, by name. Raises: ClientError not_ready."""
        told = self._desk.look(q.Queues, q.AskQueues(0))
        rows = sorted(told.rows, key=lambda row: row.name)
        return {"persisted": told.persisted, "queues": [self._row(row) for row in rows]}

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
        return self._row(row) | {"definition": document.definition(row)}

    def points(self) -> Document:
        """Every named place of the log."""
        told = self._desk.look(q.Points, q.AskPoints(0))
        rows = sorted(told.rows, key=lambda row: row.name)
        return {"points": [document.point(row) for row in rows]}

    def _row(self, row: q.QueueRow) -> Document:
        return document.queue(row, self.watch.rates(row), self._clock.wall_ns())

    def _one(self, name: str) -> q.QueueRow:
        told = self._desk.look(q.Queues, q.AskQueues(0, name))
        for row in told.rows:
            if row.name == name:
                return row
        raise ClientError("unknown_queue", f"there is no queue {name!r}")

    def _consumers(self, name: str, wanted: asking.ConsumersQuery) -> Document:
        told = self._desk.look(q.Consumers, q.AskConsumers(0, name, wanted.limit))
        if not told.rows:
            self._one(name)  # nobody consumes it, or it is not there
        return {
            "left_out": told.left_out,
            "consumers": [document.consumer(row) for row in told.rows],
        }

    def _browse(self, name: str, wanted: asking.BrowseQuery) -> Document:
        ask = q.BrowseQueue(
            0, name, wanted.after, wanted.limit, wanted.filter, wanted.state, wanted.data
        )
        told = self._desk.look(q.Browsed, ask)
        rows = [document.message(row) for row in told.rows]
        for row, data in zip(rows, told.payloads, strict=False):
            row |= document.payload(data)
        return {"next": told.next, "messages": rows}

    def _explain(self, name: str, wanted: asking.ExplainQuery) -> Document:
        asking.check_why(wanted)
        told = self._desk.look(q.Explained, q.Explain(0, name, wanted.position, wanted.bookmark))
        return {"queue": name, "state": told.state, "lines": told.lines}

    # -- what shall be --------------------------------------------------------------------------

    def post(self, name: str, what: str, body: bytes) -> Document:
        """POST /queues/`name`/`what`; it is durable when this returns. Raises: ClientError."""
        question = _question(name, what, body)
        done = self._desk.change(question)
        told: Document = {
            "queue": name,
            "dry_run": question.dry_run,
            "count": done.count,
            "text": done.text,
        }
        return told | {"position": done.position} if what == "purge" else told

    def set_point(self, body: bytes) -> Document:
        """POST /points. Raises: ClientError."""
        ask = parse(asking.SetPointRequest, body)
        done = self._desk.change(q.SetPoint(0, ask.name, ask.at or 0))
        return {"name": ask.name, "position": done.position, "vector": done.vector}

    def remove_point(self, body: bytes) -> Document:
        """POST /points/remove. Raises: ClientError."""
        ask = parse(asking.RemovePointRequest, body)
        done = self._desk.change(q.RemovePoint(0, ask.name, ask.dry_run))
        place = {"position": done.position, "vector": done.vector}
        return {"name": ask.name, "dry_run": ask.dry_run} | place


def _question(name: str, what: str, body: bytes) -> q.Purge | q.Requeue | q.Define:
    """What the room is asked to do. Raises: ClientError bad_field, bad_queue."""
    if what == "purge":
        purge = parse(asking.PurgeRequest, body)
        asking.check_purge(purge)
        before, point = purge.before or 0, purge.point or ""
        return q.Purge(0, name, before, point, purge.leased, purge.dry_run, purge.dead_letters)
    if what == "requeue":
        requeue = parse(asking.RequeueRequest, body)
        return q.Requeue(0, name, requeue.bookmarks, requeue.limit, requeue.dry_run)
    if what == "delete":
        return q.Define(0, what, name, dry_run=parse(asking.DeleteRequest, body).dry_run)
    if what not in ("create", "alter"):
        raise Bug(f"core let {what!r} in")
    define = parse(asking.DefineRequest, body)
    return q.Define(0, what, name, definition(define.definition), define.dry_run)
