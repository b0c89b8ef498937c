"""The answers to requests, from what processes, files and the journal say. Any thread."""

from __future__ import annotations

import json
import threading
from typing import Any

from msgspec.structs import asdict

from zbroker.admin import actions, core
from zbroker.admin.alarms import Alarm, Facts, Watch
from zbroker.admin.catalog import Row
from zbroker.admin.history import Entry
from zbroker.admin.jobs import Rewrite
from zbroker.admin.subscriptions import Subscriptions
from zbroker.admin.supervisor_link import SupervisorLink
from zbroker.admin.survey import Tools
from zbroker.admin.view import Segment
from zbroker.admin.worker import Worker
from zbroker.clock import format_time
from zbroker.errors import ClientError, StorageError
from zbroker.wire import internal as m


class Answers:
    """One per process."""

    def __init__(
        self,
        tools: Tools,
        supervisor: SupervisorLink,
        worker: Worker,
        subscriptions: Subscriptions,
    ) -> None:
        self._tools = tools
        self._supervisor = supervisor
        self._worker = worker
        self._subscriptions = subscriptions
        self._watch = Watch()
        self._alarms: list[Alarm] = []
        self._lock = threading.Lock()  # of the watch

    def get(self, path: str, query: str = "") -> dict[str, Any]:
        """GET `path`, which core.refuse let pass. Raises: ClientError, StorageError."""
        if path == "/status":
            return self.status()
        if path == "/journal":
            return self.journal()
        if path == "/holders":
            return self.holders()
        if path == "/subscriptions":
            return self._subscriptions.answer(core.parse_query(core.Wanted, query))
        number = core.action_number(path)
        return self.actions() if number is None else self.action(number)

    def post(self, path: str, body: bytes) -> dict[str, Any]:
        """POST likewise."""
        if path == "/journal/remove":
            return self.remove(core.parse(core.Through, body))
        if path == "/journal/reindex":
            core.parse(core.Nothing, body)
            return self.reindex()
        if path == "/journal/hold":
            return self.hold(core.parse(core.Hold, body))
        return self.rewrite(path.rpartition("/")[2], core.parse(core.Select, body))

    # -- what is --------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What all processes say, and what is wrong."""
        status = self._supervisor.status()
        if status is None:
            raise ClientError("not_ready", "the supervisor does not answer", "try again")
        try:
            running = json.loads(self._tools.paths.running.read_text())
        except (OSError, ValueError):
            running = {}  # not written yet: the status says `starting`
        alarms = [_told(alarm) for alarm in self._look(status)]
        return core.document(status, running, alarms, str(self._tools.paths.data))

    def watch(self) -> int:
        """Looks for alarms and logs those that begin or end; how many there are."""
        status = self._supervisor.status()
        return len(self._alarms if status is None else self._look(status))

    def _look(self, status: m.Status) -> list[Alarm]:
        log, worker = self._tools.log, self._worker
        try:
            disks = worker.survey.disks()
        except StorageError:
            disks = ()  # the journal's own complaint says more
        facts = Facts(
            core.stats_of(status).get("journal", {}),
            disks,
            worker.blocked,
            self._tools.config.retention.held_alarm,
            worker.failures,
            worker.survey.clock_behind_ms,
        )
        with self._lock:
            before = {alarm.finding.code for alarm in self._alarms}
            found = self._watch.look(facts, self._tools.clock.wall_ns())
            self._alarms = found
        codes = {alarm.finding.code for alarm in found}
        for alarm in found:
            if alarm.finding.code not in before:
                log.warning("alarm %s: %s; %s; %s", *alarm.finding)
        for code in sorted(before - codes):
            log.info("alarm %s is over", code)
        return found

    def journal(self) -> dict[str, Any]:
        """Every segment, and who needs what."""
        tools, worker = self._tools, self._worker
        rows = tools.catalog.rows()
        holders = worker.survey.holders()
        welcome = tools.link.welcome
        status = self._supervisor.status()
        stats = core.stats_of(status).get("journal", {}) if status else {}
        return {
            "instance": f"{tools.paths.instance:016x}",
            "generation": welcome.generation if welcome else 0,
            "log_time_ns": holders.log_time_ns,
            "directory": str(tools.paths.journal),
            "archive_directory": str(tools.paths.archive),
            "bytes": sum(row.segment().bytes for row in rows),
            "free_bytes": worker.survey.disks()[0].free_bytes,
            "conflicts": stats.get("conflicts", 0),
            "stated": holders.stated,
            "removing": holders.removing,
            **_holders(holders),
            "segments": [_segment(row) for row in rows],
        }

    def holders(self) -> dict[str, Any]:
        """Who needs which part of the log."""
        return _holders(self._worker.survey.holders())

    def actions(self) -> dict[str, Any]:
        """What is done, and what was."""
        running = self._worker.running()
        return {
            "running": _action(running) if running else None,
            "actions": [_action(entry) for entry in self._tools.history.newest()],
        }

    def action(self, number: int) -> dict[str, Any]:
        """One of them."""
        entry = self._tools.history.get(number)
        if entry is None:
            raise ClientError("not_found", f"there is no action {number}", "old ones are forgotten")
        return _action(entry)

    # -- what shall be --------------------------------------------------------------------------

    def rewrite(self, action: str, select: core.Select) -> dict[str, Any]:
        """Archives or compresses in the background; `dry_run` only says what would be done."""
        wanted, through = core.wanted(select)
        kind: Rewrite = "archive" if action == "archive" else "compress"
        worker = self._worker
        state = worker.state(worker.survey.holders())
        taken, skipped = actions.by_hand(kind, state, wanted, through)
        number = None
        if taken and not select.dry_run:
            serials, size = [one.serial for one in taken], sum(one.bytes for one in taken)
            number = worker.submit(kind, serials, size, "asked for by hand")
        return {
            "id": number,
            "serials": [_taken(segment, kind) for segment in taken],
            "skipped": [{"serial": row.serial, "reason": row.reason} for row in skipped],
        }

    def remove(self, ask: core.Through) -> dict[str, Any]:
        """Gives up the oldest segments; the files go as soon as nobody reads them."""
        worker = self._worker
        entry = worker.entry("remove", "hand", f"asked for by hand, up to segment {ask.through}")
        made, removal = worker.remove(entry, ask.through, 100, dry_run=ask.dry_run)
        return {
            "id": made.id if made else None,
            "serials": removal.serials,
            "floor": removal.floor,
            "blocked": removal.blocked,
            "held_by": [_holding(held) for held in removal.held_by],
        }

    def reindex(self) -> dict[str, Any]:
        """Has the bookmark index made anew from the log."""
        return {"id": self._worker.reindex().id}

    def hold(self, ask: core.Hold) -> dict[str, Any]:
        """Keeps a part of the log for somebody without a cursor."""
        since_ms = self._tools.clock.wall_ns() // 1_000_000
        holding = m.Holding(ask.who, ask.what, ask.position, since_ms)
        self._tools.leases.hold(self._tools.link, holding, ask.ttl_s)
        return {}


def _told(alarm: Alarm) -> dict[str, str]:
    finding = alarm.finding
    return {
        "code": finding.code,
        "since": format_time(alarm.since_ns),
        "what": finding.what,
        "means": finding.means,
        "next": finding.next,
    }


def _holders(holders: m.Holders) -> dict[str, Any]:
    return {
        "floor": holders.floor,
        "persisted": holders.persisted,
        "silent": holders.silent,
        "holders": [_holding(held) for held in holders.holdings],
    }


def _holding(held: m.Holding) -> dict[str, Any]:
    since = format_time(held.since_ms * 1_000_000) if held.since_ms else None
    return {"who": held.who, "what": held.what, "position": held.position, "since": since}


def _segment(row: Row) -> dict[str, Any]:
    best = row.copies[0]
    return {
        "serial": row.serial,
        "place": "archive" if best.archived else "journal",
        "packed": best.packed,
        "first": row.first,
        "end": row.end,
        "first_time": None if row.first_time is None else format_time(row.first_time),
        "last_time": None if row.last_time is None else format_time(row.last_time),
        "bytes": row.segment().bytes,
        "size": row.size,
        "open": row.is_open,
    }


def _taken(segment: Segment, action: str) -> dict[str, Any]:
    return {"serial": segment.serial, "bytes": segment.bytes, "why": f"{action} by hand"}


def _action(entry: Entry) -> dict[str, Any]:
    return asdict(entry) | {"progress": asdict(entry.progress)}
