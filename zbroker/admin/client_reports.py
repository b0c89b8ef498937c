"""GET /clients and GET /subscriptions, from what the processes with listeners report."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from zbroker.admin.journal_link import AdminJournalLink
from zbroker.admin.process_link import ProcessLink
from zbroker.admin.requests import ClientsQuery, SubscriptionsQuery
from zbroker.clock import format_time
from zbroker.config import setting_of
from zbroker.errors import ClientError, StorageError
from zbroker.log.format import Batch
from zbroker.log.reader import Cursor, Gap, Log, first_time
from zbroker.server.disconnects_file import DisconnectsFile
from zbroker.wire import internal as m
from zbroker.wire import surveys as s
from zbroker.wire.surveys import AskSubscriptions, SubscriptionRow
from zbroker.wire.surveys import Subscriptions as Told


class ClientReports:
    """Answers from any thread."""

    def __init__(self, desks: ProcessLink, disconnects: DisconnectsFile) -> None:
        self._desks = desks
        self._disconnects = disconnects

    def answer(self, wanted: ClientsQuery) -> dict[str, Any]:
        """Every connection, by name. Raises: ClientError not_ready."""
        ask = s.AskClients(0, wanted.client, wanted.limit)
        told = self._desks.ask(s.Clients, ask, self._desks.rooms)
        answers = {room: answer for room, answer in told.items() if answer is not None}
        found = [(row.client, room, row) for room, one in answers.items() for row in one.rows]
        found.sort(key=lambda one: one[:2])
        shown = found[: wanted.limit]
        return {
            "silent": [room for room, answer in told.items() if answer is None],
            "left_out": sum(one.left_out for one in answers.values()) + len(found) - len(shown),
            "clients": [_told(room, row) for _, room, row in shown],
        }

    def disconnect(self, client: str) -> dict[str, Any]:
        """Ends them, and its tokens, at every door. Raises: ClientError not_found, not_ready.

        Its tokens end also where it is not connected: somebody may keep one for later.
        """
        ask = s.Disconnect(0, client, self._disconnects.add(client))
        told = self._desks.ask(s.Disconnected, ask, self._desks.rooms)
        ended = sum(one.count for one in told.values() if one is not None)
        silent = [room for room, one in told.items() if one is None]
        if silent:
            reason = f"{ended} ended, but these rooms did not answer: {', '.join(silent)}"
            raise ClientError("not_ready", reason, "ask again")
        if not ended:
            reason = f"no client {client!r} is connected; tokens that it may have count no more"
            raise ClientError("not_found", reason, "see GET /clients")
        return {"disconnected": ended}


def _told(room: str, row: s.ClientRow) -> dict[str, Any]:
    return {
        "door": setting_of(room),
        "room": room,
        "client": row.client,
        "principal": row.principal,
        "instance": row.instance,
        "address": row.address,
        "connected_s": None if row.connected_ms is None else row.connected_ms / 1_000,
        "session": row.session,
        "publisher": None if row.publisher is None else str(row.publisher),
        "acked": row.acked,
        "window_bytes": row.window_bytes,
        "messages": row.messages,
        "subscriptions": row.subscriptions,
        "heartbeat_s": row.heartbeat_s,
    }


NEWEST_WAIT_S: Final = 1.0  # for the journal: without it lags are told in messages only
NS_PER_S: Final = 1_000_000_000


class _Found(NamedTuple):
    """A row, and who told it."""

    worker: str
    row: SubscriptionRow


class SubscriptionReports:
    """Answers from any thread."""

    def __init__(self, desks: ProcessLink, journal: AdminJournalLink, times: LogTimes) -> None:
        self._desks = desks
        self._journal = journal
        self._times = times

    def answer(self, wanted: SubscriptionsQuery) -> dict[str, Any]:
        """The whole document. Raises: ClientError not_ready."""
        ask = AskSubscriptions(0, wanted.client, wanted.topic, wanted.limit)
        rooms = [room for room in self._desks.rooms if setting_of(room) == "delivery"]
        told = self._desks.ask(Told, ask, rooms)
        answers = {worker: answer for worker, answer in told.items() if answer is not None}
        found = [_Found(worker, row) for worker, one in answers.items() for row in one.rows]
        found.sort(key=lambda one: (-one.row.lag, one.row.client, one.row.sid))
        shown = found[: wanted.limit]
        lags = self._lags([one.row for one in shown])
        return {
            "persisted": max((answer.persisted for answer in answers.values()), default=0),
            "silent": [worker for worker, answer in told.items() if answer is None],
            "left_out": sum(one.left_out for one in answers.values()) + len(found) - len(shown),
            "subscriptions": [_subscription(one, lags.get(one.row.handled)) for one in shown],
        }

    def _lags(self, rows: list[SubscriptionRow]) -> dict[int, float]:
        """By position how far behind in log time, in s, where that can be told."""
        behind = [row.handled for row in rows if row.lag]
        lags = {row.handled: 0.0 for row in rows if row.handled and not row.lag}
        if not behind:
            return lags
        try:
            holders = self._journal.ask(m.Holders, m.AskHolders, NEWEST_WAIT_S)
        except ClientError:
            return lags  # the journal is restarting: positions are all that is known
        newest = Moment(holders.persisted, holders.log_time_ns)
        times = self._times.of(behind, newest)
        return lags | {at: round(max(0, newest.ns - ns) / NS_PER_S, 3) for at, ns in times.items()}


def _subscription(found: _Found, lag_s: float | None) -> dict[str, Any]:
    row = found.row
    return {
        "worker": found.worker,
        "client": row.client,
        "sid": row.sid,
        "topic": row.topic,
        "regex": row.regex,
        "filter": row.filter,
        "options": msgspec.to_builtins(row.options),
        "state": row.state,
        "due_ms": row.due_ms,
        "starts": None if row.starts_ns is None else format_time(row.starts_ns),
        "position": row.position,
        "handled": row.handled,
        "in_hand": row.in_hand,
        "lag": row.lag,
        "lag_s": lag_s,
        "credit": row.credit,
        "sent_messages": row.sent_messages,
        "sent_bytes": row.sent_bytes,
        "since": format_time(row.since_ms * 1_000_000) if row.since_ms else None,
    }


class Moment(NamedTuple):
    """What stands at `position` was placed at `ns`."""

    position: int
    ns: int


def between(position: int, low: Moment, high: Moment) -> int:
    """The log time of `position`, if it goes evenly from `low` to `high`."""
    if high.position <= low.position:
        return low.ns
    share = (position - low.position) * (high.ns - low.ns) // (high.position - low.position)
    return low.ns + max(0, min(share, high.ns - low.ns))


class LogTimes:
    """Thread-safe; keeps no file open between two questions."""

    def __init__(self, journal: Path, archive: Path) -> None:
        self._places = (journal, archive)
        self._log: Log | None = None
        self._lock = threading.Lock()

    def of(self, positions: Iterable[int], newest: Moment) -> dict[int, int]:
        """The log times of those that can be told; `newest` is the end of the log."""
        with self._lock:
            try:
                return self._of(sorted(set(positions)), newest)
            except StorageError:
                return {}  # damage is told by the journal and by `journal verify`
            finally:
                if self._log is not None:
                    self._log.close()

    def _of(self, positions: list[int], newest: Moment) -> dict[int, int]:
        if self._log is None:
            self._log = Log(*self._places)
        self._log.refresh()
        starts = self._log.starts
        known: dict[int, Moment | None] = {len(starts): newest}
        found: dict[int, int] = {}
        for position in positions:
            at = bisect_right(starts, position, key=lambda start: start.position)
            if at == 0:
                continue
            for index in (at - 1, at):
                if index not in known:
                    known[index] = _begin(self._log, starts[index], newest.position)
            low, high = known[at - 1], known[at]
            if low is not None:
                found[position] = between(position, low, high or newest)
        return found


def _begin(log: Log, start: Cursor, end: int) -> Moment | None:
    """The first message of a segment, if it can be read."""
    item = next(iter(log.headers(start, end)), None)
    if item is None or isinstance(item, Gap):
        return None
    batch: Batch = item[0]
    return Moment(batch.position, first_time(batch))
