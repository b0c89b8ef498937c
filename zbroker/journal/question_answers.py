"""What the journal answers to questions of the other processes. Pure.

Each waits in line with what is placed in groups; its answer leaves after the sync, since it is
about all that was placed before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Raw, msgpack

from zbroker.errors import ClientError
from zbroker.journal.commit_placer import RETURNING, CommitPlacer
from zbroker.journal.forked_records import ForkedRecords
from zbroker.journal.group_builder import DISK_FULL, NOT_READY, GroupBuilder
from zbroker.journal.origin_rows import newest, travelling
from zbroker.journal.stages import abort_of
from zbroker.log import records
from zbroker.log.format import KIND_ABORT, KIND_FORGOTTEN
from zbroker.wire import internal as m
from zbroker.wire import replicas as w
from zbroker.wire.branches import AskBranches, BranchesFound
from zbroker.wire.exchange_messages import AskExchanges, ExchangeRows
from zbroker.wire.stages import AbortStages, CommitStages, StagesDone
from zbroker.wire.transactions import AskSession, AskSessions, SessionFound, SessionList
from zbroker.wire.units import AskNamed, NamedRow, NamedRows

ABORTED_MAX: Final = 100  # stages that one request may end while the disk is nearly full

Question = (
    m.Open | m.Close | AskNamed | CommitStages | AbortStages
    | w.AskOrigins | w.AskPublishers | w.ForgetPeer | w.ForkOrigin | AskExchanges | AskSession
    | AskSessions | AskBranches
)  # fmt: skip


class QuestionAnswers:
    """Answers from the log of `to`; some of them place a record. commits: of stages. forks:
    records that are taken again."""

    def __init__(self, to: GroupBuilder, forks: ForkedRecords) -> None:
        self._to, self._forks = to, forks
        self.commits = CommitPlacer(to)
        self._by_type: dict[type, Callable[[Any], m.InternalMessage | None]] = {
            m.Open: self._open,
            m.Close: self._close,
            AskNamed: self._named,
            AskExchanges: self._exchanges,
            AskSession: self._session,
            AskSessions: self._sessions,
            AskBranches: self._branches,
            CommitStages: self.commits.place,
            AbortStages: self._abort,
            w.AskOrigins: self._origin_rows,
            w.AskPublishers: self._publishers,
            w.ForgetPeer: self._forget,
            w.ForkOrigin: self._fork,
        }

    def answer(self, ask: Question) -> m.InternalMessage | None:
        """Its answer is durable when it leaves; None for a Close, which has none."""
        return self._by_type[type(ask)](ask)

    def _close(self, ask: m.Close) -> None:
        self._to.sessions.close(ask.name, ask.session)

    def _named(self, ask: AskNamed) -> NamedRows:
        named = self._to.sessions.named
        wiring, points = list(named.wiring.rows()), list(named.points.rows())
        definitions = list(named.definitions.rows())
        shared = [
            NamedRow(row.name, row.position, msgpack.encode(row)) for row in named.shared.rows()
        ]
        return NamedRows(ask.cid, self._to.next_position, wiring, points, definitions, shared)

    def _exchanges(self, ask: AskExchanges) -> ExchangeRows:
        exchanges = self._to.sessions.exchanges
        new, whole = exchanges.since(ask.after)
        packed = [Raw(msgpack.encode(row)) for row in new]
        changes, position = exchanges.changes, self._to.next_position
        return ExchangeRows(ask.cid, changes, position, packed, whole)

    def _publishers(self, ask: w.AskPublishers) -> w.PublisherNames:
        known = (self._to.sessions.get(one) for one in ask.ids)
        rows = [w.PublisherName(k.id, k.name, k.principal) for k in known if k is not None]
        return w.PublisherNames(ask.cid, rows)

    def _session(self, ask: AskSession) -> SessionFound:
        if self._to.commits_wait():
            return SessionFound(ask.cid, code="not_ready", reason=RETURNING)
        return self._to.sessions.transactions.found(ask)

    def _sessions(self, ask: AskSessions) -> SessionList:
        return self._to.sessions.transactions.listed(ask)

    def _branches(self, ask: AskBranches) -> BranchesFound:
        if self._to.commits_wait():
            return BranchesFound(ask.cid, code="not_ready", reason=RETURNING)
        return self._to.sessions.transactions.branches.found(ask)

    def _origin_rows(self, ask: w.AskOrigins) -> w.OriginRows:
        to = self._to
        to.sessions.origins.note_own(to.batches, to.generation)
        takes_state = to.takes_state and to.sessions.is_empty
        rows, closed, forgotten, open_generations = travelling(to.sessions)
        return w.OriginRows(
            ask.cid,
            to.generation,
            to.started_ns,
            rows,
            closed,
            forgotten,
            open_generations,
            takes_state,
            to.fills,
            to.awaits,
            to.later.rows(to.sessions.origins, newest(rows, closed)),
        )

    def _open(self, ask: m.Open) -> m.Opened:
        try:
            known = self._to.sessions.open(ask.name, ask.principal, self._to.wall_ns)
        except ClientError as error:
            return m.Opened(ask.cid, ask.name, code=error.code, reason=error.reason)
        return m.Opened(
            ask.cid, ask.name, known.id, known.session, known.high, known.unbroken,
            known.last_position, len(self._to.sessions.missing),
        )  # fmt: skip

    def _forget(self, ask: w.ForgetPeer) -> w.PeerForgotten:
        if self._to.fenced:
            return w.PeerForgotten(ask.cid, code="not_ready", reason=NOT_READY)
        if ask.peer not in self._to.sessions.forgotten_peers.names:
            self._to.control(KIND_FORGOTTEN, records.encode(records.ForgottenRecord(ask.peer)))
        return w.PeerForgotten(ask.cid)

    def _fork(self, ask: w.ForkOrigin) -> w.OriginForked:
        if self._to.fenced:
            return w.OriginForked(ask.cid, code="not_ready", reason=NOT_READY)
        try:
            return w.OriginForked(ask.cid, end=self._forks.begin(ask))
        except ClientError as error:
            return w.OriginForked(ask.cid, code=error.code, reason=error.reason)

    def _abort(self, ask: AbortStages) -> StagesDone:
        keys = self._to.sessions.stages.known(ask.principal, dict.fromkeys(ask.stages))
        if not keys:
            return StagesDone(ask.cid)  # stages that are not here need no record
        if self._to.fenced:
            return StagesDone(ask.cid, code="not_ready", reason=NOT_READY)
        if not self._to.accepting and len(keys) > ABORTED_MAX:
            return StagesDone(ask.cid, code="disk_full", reason=DISK_FULL)
        self._to.control(KIND_ABORT, records.encode(abort_of(keys)))
        return StagesDone(ask.cid)
