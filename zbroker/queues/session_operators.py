"""Sessions for operators: which there are, and the end of one. Pure.

The end of a session is that it begins once more, without a client: commits of before are refused
by the journal, and its open stages end.
"""

from __future__ import annotations

from zbroker.errors import ClientError
from zbroker.log.format import KIND_TRANSACTION
from zbroker.log.records import TransactionRecord
from zbroker.queues.admin_answers import OperatorAnswers, refusal_of
from zbroker.queues.context import QueuesConnection, QueuesContext
from zbroker.queues.timed_sessions import BY_OPERATOR, begun
from zbroker.queues.transaction_commands import epoch_above
from zbroker.wire import queue_surveys as s
from zbroker.wire import session_surveys as y
from zbroker.wire.transactions import SessionFound, SessionKey, SessionList, SessionRow


class OperatorSessions:
    """Answers questions. All of them raise ClientError."""

    def __init__(self, shared: QueuesContext, answers: OperatorAnswers) -> None:
        self._shared, self._answers = shared, answers

    def survey(self, rid: bytes, ask: y.AskSessionRows) -> None:
        """Answers once the journal has said them."""

        def found(rows: SessionList) -> None:
            if rows.code:
                error = ClientError(rows.code, rows.reason)
                self._answers.tell(rid, refusal_of(ask, error))
                return
            shown = [self._shown(row) for row in rows.rows]
            self._answers.tell(rid, y.SessionsSurveyed(ask.cid, shown, rows.left_out))

        self._shared.list_sessions(ask.principal, ask.session, ask.limit, found)

    def _shown(self, row: SessionRow) -> y.SurveyedSession:
        clients = (
            one.token.name for one in self._attached(row.principal, row.session)
            if one.epochs[row.session] == row.epoch
        )  # fmt: skip
        client = next(clients, "")
        return y.SurveyedSession(
            row.principal, row.session, row.epoch, row.instance, row.committed, row.number,
            row.messages, row.position, client, row.timeout_ms, self._state(row, client), row.ended,
            row.code, row.text,
        )  # fmt: skip

    def _state(self, row: SessionRow, client: str) -> str:
        if row.ended:
            return "ended"
        if client:
            return "attached"
        return self._shared.manager.sessions.state_of(SessionKey(row.principal, row.session))

    def end(self, rid: bytes, ask: y.EndSession) -> None:
        """Answers once it is durable."""

        def found(row: SessionFound) -> None:
            self._answers.reply(rid, ask, lambda: self._end(rid, ask, row))

        self._shared.find_session(ask.principal, ask.session, found)

    def _end(self, rid: bytes, ask: y.EndSession, row: SessionFound) -> s.Changed | None:
        """Raises: ClientError."""
        if row.code:
            raise ClientError(row.code, row.reason)
        if not row.epoch:
            text = f"{ask.principal!r} has no session {ask.session[:64]!r}"
            raise ClientError("unknown_session", text)
        attached = self._attached(ask.principal, ask.session)
        answer = s.Changed(ask.cid, len(attached))
        if ask.dry_run:
            return answer
        epoch = epoch_above(row.epoch, self._shared.now)
        record = TransactionRecord(
            ask.principal, ask.session, epoch, after=row.epoch, ended=BY_OPERATOR
        )
        manager = self._shared.manager
        begin = begun(record, manager.origin.instance)
        done = self._answers.tell_when_durable(
            rid, answer, lambda _position: manager.sessions.learn(begin)
        )
        manager.commits.add_record(KIND_TRANSACTION, record, done)
        return None

    def _attached(self, principal: str, session: str) -> list[QueuesConnection]:
        return [
            one for one in self._shared.connections.values()
            if one.token.principal == principal and session in one.epochs
        ]  # fmt: skip
