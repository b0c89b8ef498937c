"""What the journal answers to questions of the other processes. Pure.

Each waits in line with what is placed in groups; its answer leaves after the sync, since it is
about all that was placed before it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Raw, msgpack

from zbroker.errors import ClientError
from zbroker.journal.forked_records import ForkedRecords
from zbroker.journal.group_builder import DISK_FULL, NOT_READY, GroupBuilder
from zbroker.journal.origin_rows import travelling
from zbroker.journal.stages import abort_of
from zbroker.journal.units import CommitPlacer
from zbroker.log import records
from zbroker.log.format import KIND_ABORT, KIND_FORGOTTEN
from zbroker.wire import internal as m
from zbroker.wire import replicas as w
from zbroker.wire.exchange_messages import AskExchanges, ExchangeRows
from zbroker.wire.stages import AbortStages, CommitStages, StagesDone
from zbroker.wire.units import AskNamed, NamedRows

ABORTED_MAX: Final = 100  # stages that one request may end while the disk is nearly full

Question = (
    m.Open | m.Close | AskNamed | CommitStages | AbortStages
    | w.AskOrigins | w.AskPublishers | w.ForgetPeer | w.ForkOrigin | AskExchanges
)  # fmt: skip


class QuestionAnswers:
    """Answers from the log of `to`; some of them place a record. commits: of stages. forks:
    records that are taken again."""

    def __init__(self, to: GroupBuilder, forks: ForkedRecords) -> None:
        self._to, self._forks = to, forks
        self.commits = CommitPlacer(to)

    def answer(
        self, ask: Question
    ) -> (
        m.Opened | NamedRows | StagesDone | w.OriginRows | w.PublisherNames | w.PeerForgotten
        | w.OriginForked | ExchangeRows | None
    ):  # fmt: skip
        """Its answer is durable when it leaves; None for a Close, which has none."""
        if isinstance(ask, m.Open):
            return self._open(ask)
        if isinstance(ask, AskNamed):
            named = self._to.sessions.named
            wiring, points = list(named.wiring.rows()), list(named.points.rows())
            definitions = list(named.definitions.rows())
            return NamedRows(ask.cid, self._to.next_position, wiring, points, definitions)
        if isinstance(ask, AskExchanges):
            exchanges = self._to.sessions.exchanges
            new, whole = exchanges.since(ask.after)
            packed = [Raw(msgpack.encode(row)) for row in new]
            changes, position = exchanges.changes, self._to.next_position
            return ExchangeRows(ask.cid, changes, position, packed, whole)
        if isinstance(ask, CommitStages):
            return self.commits.place(ask)
        if isinstance(ask, AbortStages):
            return self._abort(ask)
        if isinstance(ask, w.AskOrigins):
            return self._origin_rows(ask)
        if isinstance(ask, w.ForgetPeer):
            return self._forget(ask)
        if isinstance(ask, w.ForkOrigin):
            return self._fork(ask)
        if isinstance(ask, w.AskPublishers):
            known = (self._to.sessions.get(one) for one in ask.ids)
            rows = [w.PublisherName(k.id, k.name, k.principal) for k in known if k is not None]
            return w.PublisherNames(ask.cid, rows)
        self._to.sessions.close(ask.name, ask.session)
        return None

    def _origin_rows(self, ask: w.AskOrigins) -> w.OriginRows:
        to = self._to
        to.sessions.origins.note_own(to.batches, to.generation)
        takes_state = to.takes_state and to.sessions.is_empty
        rows = travelling(to.sessions)
        return w.OriginRows(
            ask.cid, to.generation, to.started_ns, *rows, takes_state, filling=to.fills
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
