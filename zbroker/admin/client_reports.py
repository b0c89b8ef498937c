"""GET /clients and GET /subscriptions, from what the processes with listeners report."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from zbroker.admin.documents import row_document, time_text
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

NEWEST_WAIT_S: Final = 1.0  # for the journal: without it lags are reported in messages only
NS_PER_S: Final = 1_000_000_000

Report = dict[str, Any]


def _merged(
    answers: Mapping[str, Any], limit: int, order: Callable[[str, Any], tuple[Any, ...]]
) -> tuple[list[tuple[str, Any]], Report]:
    """The first rows of all answers, each with its process, and what they leave out.

    A silent process has None in place of an answer.
    """
    found = [(process, row) for process, answer in answers.items() if answer for row in answer.rows]
    found.sort(key=lambda one: order(*one))
    more = sum(answer.left_out for answer in answers.values() if answer)
    silent = [process for process, answer in answers.items() if answer is None]
    return found[:limit], {"silent": silent, "left_out": more + max(0, len(found) - limit)}


class ClientReports:
    """GET /clients. Answers from any thread."""

    def __init__(self, link: ProcessLink, disconnects: DisconnectsFile) -> None:
        self._link = link
        self._disconnects = disconnects

    def answer(self, wanted: ClientsQuery) -> Report:
        """Every connection, by name. Raises: ClientError not_ready."""
        ask = s.AskClients(0, wanted.client, wanted.limit)
        answers = self._link.ask(s.Clients, ask, self._link.processes)
        shown, report = _merged(answers, wanted.limit, lambda process, row: (row.client, process))
        return report | {"clients": [_client(process, row) for process, row in shown]}

    def disconnect(self, client: str) -> Report:
        """Ends its connections and tokens at every listener.

        Tokens end also where it is not connected: it may keep one for later.
        Raises: ClientError not_found, not_ready.
        """
        ask = s.Disconnect(0, client, self._disconnects.add(client))
        answers = self._link.ask(s.Disconnected, ask, self._link.processes)
        ended = sum(one.count for one in answers.values() if one is not None)
        silent = [process for process, one in answers.items() if one is None]
        if silent:
            reason = f"{ended} ended, but these processes did not answer: {', '.join(silent)}"
            raise ClientError("not_ready", reason, "ask again")
        if not ended:
            reason = f"no client {client!r} is connected; tokens that it may have count no more"
            raise ClientError("not_found", reason, "see GET /clients")
        return {"disconnected": ended}


def _client(process: str, row: s.ClientRow) -> Report:
    return row_document(
        row, "connected_ms", door=setting_of(process), room=process,
        connected_s=None if row.connected_ms is None else row.connected_ms / 1_000,
        publisher=None if row.publisher is None else str(row.publisher),
    )  # fmt: skip


class SubscriptionReports:
    """GET /subscriptions: those of all delivery workers. Answers from any thread."""

    def __init__(self, link: ProcessLink, journal: AdminJournalLink, times: LogTimes) -> None:
        self._link = link
        self._journal = journal
        self._times = times

    def answer(self, wanted: SubscriptionsQuery) -> Report:
        """The subscriptions with the largest lag. Raises: ClientError not_ready."""
        ask = s.AskSubscriptions(0, wanted.client, wanted.topic, wanted.limit)
        workers = [name for name in self._link.processes if setting_of(name) == "delivery"]
        answers = self._link.ask(s.Subscriptions, ask, workers)
        limit = wanted.limit
        shown, report = _merged(answers, limit, lambda _, row: (-row.lag, row.client, row.sid))
        lags = self._lags([row for _, row in shown])
        return report | {
            "persisted": max((one.persisted for one in answers.values() if one), default=0),
            "subscriptions": [
                _subscription(worker, row, lags.get(row.handled)) for worker, row in shown
            ],
        }

    def _lags(self, rows: list[s.SubscriptionRow]) -> dict[int, float]:
        """The lag in log time (s) by position, as far as it can be estimated."""
        late = [row.handled for row in rows if row.lag]
        lags = {row.handled: 0.0 for row in rows if row.handled and not row.lag}
        if not late:
            return lags
        try:
            holders = self._journal.ask(m.Holders, m.AskHolders, NEWEST_WAIT_S)
        except ClientError:
            return lags  # the journal is restarting: positions are all that is known
        newest = Moment(holders.persisted, holders.log_time_ns)
        times = self._times.of(late, newest)
        return lags | {at: round(max(0, newest.ns - ns) / NS_PER_S, 3) for at, ns in times.items()}


def _subscription(worker: str, row: s.SubscriptionRow, lag_s: float | None) -> Report:
    return row_document(
        row, "starts_ns", "since_ms", worker=worker, lag_s=lag_s,
        options=msgspec.to_builtins(row.options), starts=time_text(row.starts_ns),
        since=format_time(row.since_ms * 1_000_000) if row.since_ms else None,
    )  # fmt: skip


# -- the log time of a position -------------------------------------------------------------------


class Moment(NamedTuple):
    """The message at `position` was placed at `ns`."""

    position: int
    ns: int


def between(position: int, low: Moment, high: Moment) -> int:
    """The log time of `position`, if time goes evenly from `low` to `high`.

    That is an estimate, off by a segment's time at most: it costs one header per segment where the
    exact time would cost a walk.
    """
    if high.position <= low.position:
        return low.ns
    share = (position - low.position) * (high.ns - low.ns) // (high.position - low.position)
    return low.ns + max(0, min(share, high.ns - low.ns))


class LogTimes:
    """Estimates log times from the first message of each segment.

    Thread-safe; keeps no file open between two questions.
    """

    def __init__(self, journal: Path, archive: Path) -> None:
        self._places = (journal, archive)
        self._log: Log | None = None
        self._lock = threading.Lock()

    def of(self, positions: Iterable[int], newest: Moment) -> dict[int, int]:
        """The log times of the positions for which there is an estimate.

        newest: the end of the log.
        """
        with self._lock:
            try:
                return self._of(sorted(set(positions)), newest)
            except StorageError:
                return {}  # damage is reported by the journal and by `journal verify`
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
