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
from functools import partial
from typing import Final, NamedTuple

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


class AttachTry(NamedTuple):
    """An attach of a client, that may look so often."""

    connection: QueuesConnection
    command: AttachSession
    tries: int

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.connection.token.principal, self.command.session)


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
        self._find(AttachTry(connection, command, ATTACH_TRIES))

    def _find(self, one: AttachTry) -> None:
        """Raises: ClientError."""
        self._shared.find_session(
            *one.key, lambda row: self._try(one, lambda: self._look(one, row))
        )

    def _try(self, one: AttachTry, do: Callable[[], None]) -> None:
        """A refusal is its answer."""
        try:
            do()
        except ClientError as error:
            self._shared.refuse_late(one.connection, error, one.command.cid)

    def _look(self, one: AttachTry, row: SessionFound) -> None:
        """Begins it, or waits until it may begin here. Raises: ClientError."""
        if row.code:
            raise ClientError(row.code, row.reason)
        if self._moves.is_elsewhere(one.command, row):
            self._wait(one, row)
            return
        _check_holder(one.command, row)
        self._begin(one, row)

    def _wait(self, one: AttachTry, row: SessionFound) -> None:
        """The instance where it is hands it over, or its log comes. Raises: ClientError."""

        def over(now: SessionFound, late: bool) -> None:
            self._try(one, lambda: self._waited(one, now, late))

        wanted = partial(self._shared.is_here, one.connection)
        self._moves.wait(one.key, one.command, row, over, wanted)

    def _waited(self, one: AttachTry, row: SessionFound, late: bool) -> None:
        """Raises: ClientError."""
        if late:
            _check_holder(one.command, row)
            raise elsewhere(one.key, row, one.command.epoch)
        self._look(one, row)

    def _begin(self, one: AttachTry, row: SessionFound) -> None:
        epoch, command = epoch_above(row.epoch, self._shared.now), one.command
        record = TransactionRecord(
            *one.key, epoch, holder=command.holder, after=row.epoch,
            timeout_ms=min(command.timeout_ms, self._timeout_max_ms),
        )  # fmt: skip

        def landed(code: str, reason: str, position: int) -> None:
            if code == "session_fenced":
                # attaches of this very program may have been on their way, and were not answered
                self._try(one, lambda: self._once_more(one))
            elif code:
                self._shared.refuse_late(one.connection, ClientError(code, reason), command.cid)
            else:
                # what its program holds from before this process is not of another one
                before = not self._sessions.known
                self._sessions.learn(begin_of(one.key, row), begins=True, before=before)
                self._sessions.learn(begun(record, self._here), begins=True)
                self._restate(one)
                self._shared.promises.at(position, lambda: self._try(one, find_again))

        def find_again() -> None:
            self._shared.find_session(
                *one.key, lambda now: self._try(one, lambda: self._began(one, row, epoch, now))
            )

        self._shared.manager.commits.add_record(KIND_TRANSACTION, record, landed)

    def _began(self, one: AttachTry, row: SessionFound, epoch: int, now: SessionFound) -> None:
        """row, now: its row before and after that. Raises: ClientError."""
        command = one.command
        if now.code:
            raise ClientError(now.code, now.reason)
        if now.epoch == epoch:
            if self._shared.is_here(one.connection):
                one.connection.epochs[command.session] = epoch
                self._sessions.attached(one.key, epoch, one.connection.rid)
                answer = SessionAttached(
                    command.session, epoch, now.stage, now.committed, now.number, now.position,
                    now.messages, command.cid, now.timeout_ms, row.ended, row.end_code,
                    row.end_text, True, row.epoch,
                )  # fmt: skip
                self._shared.send(one.connection.rid, answer)
        elif now.holder == command.holder != "":
            # it was handed over for a connection that this very program had elsewhere
            self._once_more(one)
        else:
            text = f"session {command.session[:64]!r} began again meanwhile"
            raise ClientError("session_fenced", text)

    def _once_more(self, one: AttachTry) -> None:
        """Raises: ClientError."""
        if not self._shared.is_here(one.connection):
            return
        if one.tries <= 1:
            text = f"session {one.command.session[:64]!r} is being attached, here or elsewhere"
            raise ClientError("not_ready", text, "attach it at one place at a time")
        self._find(one._replace(tries=one.tries - 1))

    def _restate(self, one: AttachTry) -> None:
        if one.command.consumers is not None:
            client = one.connection.token.name
            said = ((queue, f"{client}/{holder}") for queue, holder in one.command.consumers)
            self._sessions.said(one.key, said)

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
