"""Sessions that attach, and their commits: messages that appear and leave queues, as one. Pure.

    attach   AskSession --where it began last--> its record, in a higher epoch, lands
                        --AskSession: its last commit--> answered
                        --elsewhere--> that instance is asked first: session_moves.py
    detach   AskSession --it is this epoch, here--> its end lands --> answered
    commit   each message is held by its consumer here --> a unit: the record, dead letters, what
               left the queues; lands --> answered
             refused, or one was not held --> nothing of it holds

The journal refuses a unit of an epoch that is over, so a connection that was replaced commits
nothing more; all that its session had sent before is in the log, or refused, when the answer to the
attach leaves. A commit that was not answered is therefore never asked for again.

Messages that a transaction publishes do not come by here: they are staged at ingest, and durable
before the commit is sent. Source: seed 001, "Dtx commands"; select, commit and rollback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zbroker.engine.contract import Now
from zbroker.errors import ClientError
from zbroker.ids import check_client_name
from zbroker.log.format import KIND_TRANSACTION
from zbroker.log.records import EPOCH_MAX, TransactionRecord
from zbroker.queues.context import QueuesConnection, QueuesContext
from zbroker.queues.scope_changes import ScopeChanges
from zbroker.queues.session_moves import SessionMoves, elsewhere
from zbroker.queues.timed_sessions import DETACHED, EXCEPTION, begin_of, begun, end_after
from zbroker.queues.transaction_takes import TransactionTakes
from zbroker.wire.transactions import (
    AttachSession,
    CommitTransaction,
    DetachSession,
    SessionAttached,
    SessionDetached,
    SessionFound,
    SessionKey,
    TransactionCommitted,
)

ATTACHED_MAX: Final = 100  # sessions of one connection
ATTACH_TRIES: Final = 3  # while others attach it


class TransactionCommands:
    """Commits them for clients."""

    def __init__(
        self, shared: QueuesContext, scopes: ScopeChanges, moves: SessionMoves, timeout_max_ms: int
    ) -> None:
        """timeout_max_ms: of a session, however long a one is asked for."""
        self._shared, self._takes = shared, TransactionTakes(shared, scopes)
        self._moves = moves
        self._sessions, self._timeout_max_ms = shared.manager.sessions, timeout_max_ms

    # -- sessions -----------------------------------------------------------------------------

    def attach(self, connection: QueuesConnection, command: AttachSession) -> None:
        """Raises: ClientError."""
        check_client_name(command.session)
        if not self._shared.manager.known:
            raise ClientError("not_ready", "the queues are being read")
        if len(connection.epochs) >= ATTACHED_MAX and command.session not in connection.epochs:
            raise ClientError("too_many", f"a connection attaches at most {ATTACHED_MAX} sessions")
        connection.epochs.pop(command.session, None)

        self._find(connection, command, ATTACH_TRIES)

    def _find(self, connection: QueuesConnection, command: AttachSession, tries: int) -> None:
        """Raises: ClientError."""

        def found(row: SessionFound) -> None:
            try:
                self._look(connection, command, row, tries)
            except ClientError as error:
                self._shared.refuse_late(connection, error, command.cid)

        self._shared.find_session(connection.token.principal, command.session, found)

    def _look(
        self, connection: QueuesConnection, command: AttachSession, row: SessionFound, tries: int
    ) -> None:
        """Begins it, or waits until it may begin here. Raises: ClientError."""
        if row.code:
            raise ClientError(row.code, row.reason)
        if row.epoch and row.instance != self._here and not command.force:
            self._wait(connection, command, row)
            return
        _check_holder(command, row)
        self._begin(connection, command, row, tries)

    def _begin(
        self, connection: QueuesConnection, command: AttachSession, row: SessionFound, tries: int
    ) -> None:
        epoch = epoch_above(row.epoch, self._shared.now)
        principal = connection.token.principal
        key = SessionKey(principal, command.session)
        record = TransactionRecord(
            *key, epoch, holder=command.holder, after=row.epoch,
            timeout_ms=min(command.timeout_ms, self._timeout_max_ms),
        )  # fmt: skip

        def landed(code: str, reason: str, position: int) -> None:
            if code == "session_fenced" and tries > 1:
                # an attach of this very program may have been on its way, and was not answered
                look(lambda: self._find(connection, command, tries - 1))
            elif code:
                self._shared.refuse_late(connection, ClientError(code, reason), command.cid)
            else:
                # what its program holds from before this process is not of another one
                self._sessions.learn(begin_of(key, row), begins=True)
                self._sessions.learn(begun(record, self._here), begins=True)
                self._shared.promises.at(position, lambda: look(find_again))

        def find_again() -> None:
            self._shared.find_session(principal, command.session, began)

        def look(find: Callable[[], None]) -> None:
            try:
                find()
            except ClientError as error:
                self._shared.refuse_late(connection, error, command.cid)

        def began(now: SessionFound) -> None:
            if now.code or now.epoch != epoch:
                text = f"session {command.session[:64]!r} began again meanwhile"
                error = ClientError(now.code or "session_fenced", now.reason or text)
                self._shared.refuse_late(connection, error, command.cid)
            elif self._shared.is_here(connection):
                connection.epochs[command.session] = epoch
                self._sessions.attached(key, epoch, connection.rid)
                answer = SessionAttached(
                    command.session, epoch, now.stage, now.committed, now.number, now.position,
                    now.messages, command.cid, now.timeout_ms, row.ended, row.end_code,
                    row.end_text, True,
                )  # fmt: skip
                self._shared.send(connection.rid, answer)

        self._shared.manager.commits.add_record(KIND_TRANSACTION, record, landed)

    def _wait(
        self, connection: QueuesConnection, command: AttachSession, row: SessionFound
    ) -> None:
        """The instance where it is hands it over. Raises: ClientError."""
        key = SessionKey(connection.token.principal, command.session)

        def over(now: SessionFound, late: bool) -> None:
            if not self._shared.is_here(connection):
                return
            try:
                if late:
                    _check_holder(command, now)
                    raise elsewhere(key, now)
                self._look(connection, command, now, ATTACH_TRIES)
            except ClientError as error:
                self._shared.refuse_late(connection, error, command.cid)

        self._moves.wait(key, command.holder if command.again else "", row, over)

    @property
    def _here(self) -> int:
        return self._shared.manager.origin.instance

    def detach(self, connection: QueuesConnection, command: DetachSession) -> None:
        """Raises: ClientError."""
        if not self._shared.manager.known:
            raise ClientError("not_ready", "the queues are being read")

        def found(row: SessionFound) -> None:
            try:
                self._end(connection, command, row)
            except ClientError as error:
                self._shared.refuse_late(connection, error, command.cid)

        self._shared.find_session(connection.token.principal, command.session, found)

    def _end(self, connection: QueuesConnection, command: DetachSession, row: SessionFound) -> None:
        """Raises: ClientError."""
        if row.code:
            raise ClientError(row.code, row.reason)
        answer = SessionDetached(command.session, command.cid)
        if row.ended and row.epoch == command.epoch + 1:
            self._shared.answer_late(connection, answer)  # it was not answered before
            return
        if row.epoch != command.epoch or row.ended:
            text = f"session {command.session[:64]!r} is not attached in epoch {command.epoch}"
            raise ClientError("session_fenced", text)
        key = SessionKey(connection.token.principal, command.session)
        if row.instance != self._here:
            raise elsewhere(key, row)
        ended = EXCEPTION if command.code or command.text else DETACHED
        record = end_after(key, command.epoch, ended, command.code, command.text)

        def landed(code: str, reason: str, position: int) -> None:
            if code:
                self._shared.refuse_late(connection, ClientError(code, reason), command.cid)
                return
            self._sessions.learn(begun(record, self._here))
            self._shared.promises.at(position, lambda: self._shared.answer_late(connection, answer))

        self._shared.manager.commits.add_record(KIND_TRANSACTION, record, landed)

    # -- commits ------------------------------------------------------------------------------

    def commit(self, connection: QueuesConnection, command: CommitTransaction) -> None:
        """Raises: ClientError; then nothing has changed."""
        takes = self._takes.held(connection, command)
        record = TransactionRecord(
            connection.token.principal, command.session, command.epoch, command.number,
            command.messages,
        )  # fmt: skip
        taken = [(take.one, self._takes.settled(take)) for take in takes]
        accepted = sum(len(take.positions) for take in takes)
        rejected = sum(len(take.positions) for take in takes if take.reject)

        def done(error: ClientError | None, first: int, position: int) -> None:
            if error is not None:
                self._shared.refuse_late(connection, error, command.cid)
                return
            shown = first - command.messages if command.messages else 0
            answer = TransactionCommitted(
                command.session, command.number, shown, command.messages, accepted, command.cid,
                rejected,
            )  # fmt: skip
            self._shared.promises.at(position, lambda: self._shared.answer_late(connection, answer))

        self._takes.commit(KIND_TRANSACTION, record, taken, done)


def epoch_above(last: int, now: Now) -> int:
    """The next epoch of a session. last: the highest that is known, 0: none."""
    return min(EPOCH_MAX, max(last + 1, now.wall_ns))


def _check_holder(command: AttachSession, row: SessionFound) -> None:
    """Raises: ClientError session_fenced, if its program has it no more."""
    if command.again and row.epoch and row.holder != command.holder:
        what = f"ended: {row.ended}" if row.ended else "was attached by another program"
        text = f"session {command.session[:64]!r} {what} meanwhile"
        raise ClientError("session_fenced", text)
