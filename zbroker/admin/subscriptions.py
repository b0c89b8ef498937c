"""GET /subscriptions: the subscriptions of all delivery workers, the farthest behind first."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from zbroker.admin.journal_link import AdminJournalLink
from zbroker.admin.lags import LogTimes, Moment
from zbroker.admin.process_link import ProcessLink
from zbroker.admin.requests import SubscriptionsQuery
from zbroker.clock import format_time
from zbroker.config import setting_of
from zbroker.errors import ClientError
from zbroker.wire import internal as m
from zbroker.wire.surveys import AskSubscriptions, SubscriptionRow
from zbroker.wire.surveys import Subscriptions as Told

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
            "subscriptions": [_told(one, lags.get(one.row.handled)) for one in shown],
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


def _told(found: _Found, lag_s: float | None) -> dict[str, Any]:
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
