"""The connection of a session to the queues process: it attaches, and commits. Blocks.

    attach --> attached in an epoch --commit--> committed, aborted, or fenced: it is over
                     |                 |
                     +---- lost -------+--> attach again: was it committed?

A commit that was not answered is not sent again. The session attaches again: in a higher epoch, so
it cannot arrive any more, and the answer says whether it had.
"""

from __future__ import annotations

import secrets
import time
from typing import Final, NamedTuple

from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.questions import NOT_READY, PAUSE_S, LostError, QuestionLink, ask
from zbroker.errors import TEMPORARY, ZBrokerError
from zbroker.wire.transactions import (
    Accepted,
    AttachSession,
    CommitTransaction,
    SessionAttached,
    TransactionCommitted,
)

_AGAIN: Final = TEMPORARY | NOT_READY
_LOST: Final = "the connection was lost before the commit arrived: nothing of the transaction holds"
_HINT: Final = "the broker may be starting, or its disk be full"


class TransactionId(NamedTuple):
    """One transaction of a session: its epoch, and its number in that."""

    epoch: int
    number: int


class SessionLink:
    """One session, of the client whose queues listener this is. name: of the session."""

    def __init__(self, listeners: ListenerEndpoints, name: str, *, force: bool) -> None:
        self._listeners, self.name, self._force = listeners, name, force
        self._holder = secrets.token_hex(8)
        self._connection: QuestionLink | None = None
        self._attached: SessionAttached | None = None
        self._number = 0

    def attach(self, timeout: float) -> SessionAttached:
        """Raises: ZBrokerError session_elsewhere, session_fenced (another program took it),
        too_many, "timeout", ..."""
        self.close()

        def begin(connection: QuestionLink) -> SessionAttached:
            again = self._attached is not None
            command = AttachSession(self.name, self._holder, again=again, force=self._force)
            answer = connection.ask(command)
            assert isinstance(answer, SessionAttached)
            self._connection, connection.kept = connection, True
            return answer

        what = f"session({self.name!r})"
        found = ask(self._listeners, timeout, what, begin, _AGAIN, _HINT)
        self._attached, self._number = found, 0
        return found

    @property
    def last(self) -> TransactionId | None:
        """The transaction that was committed last before it was attached, if there was one."""
        found = self._attached
        if found is None or not found.number:
            return None
        return TransactionId(found.committed, found.number)

    def begin(self, timeout: float) -> tuple[TransactionId, str]:
        """The next transaction, and the token for its messages; the session attaches where it has
        to.

        Raises: as `attach`.
        """
        attached, connection = self._attached, self._connection
        if attached is None or connection is None or connection.lost:
            attached = self.attach(timeout)
        self._number += 1
        return TransactionId(attached.epoch, self._number), f"{attached.stage}{self._number}"

    def commit(
        self, messages: int, accepts: list[Accepted], timeout: float
    ) -> TransactionCommitted:
        """Commits the transaction whose token was given last.

        Raises: ZBrokerError transaction_aborted, session_fenced, ...: nothing of it holds;
        outcome_unknown (the broker cannot be asked in time).
        """
        attached, connection, number = self._attached, self._connection, self._number
        assert attached is not None, "it was attached before"
        end = time.monotonic() + timeout
        while connection is not None:
            connection.end = end
            command = CommitTransaction(self.name, attached.epoch, number, messages, accepts)
            try:
                answer = connection.ask(command)
            except LostError:
                break
            except ZBrokerError as error:
                if error.code == "not_logged_on":
                    break  # it was lost before, and its successor knows of no session here
                if error.code not in _AGAIN or time.monotonic() + PAUSE_S >= end:
                    raise
                time.sleep(PAUSE_S)
                continue
            assert isinstance(answer, TransactionCommitted)
            return answer
        return self._look(attached.epoch, number, end)

    def _look(self, epoch: int, number: int, end: float) -> TransactionCommitted:
        """What became of a commit without an answer. Raises: as `commit`."""
        try:
            now = self.attach(max(PAUSE_S, end - time.monotonic()))
        except ZBrokerError as error:
            text = f"the commit of {self.name!r} was not answered, and its session cannot ask"
            hint = "open the session again when the broker is there, and compare `last`"
            raise ZBrokerError("outcome_unknown", f"{text}: {error}", hint) from None
        if (now.committed, now.number) != (epoch, number):
            raise ZBrokerError("transaction_aborted", _LOST, "process the messages that come again")
        return TransactionCommitted(self.name, number, now.position, now.messages)

    def close(self) -> None:
        """The session can be attached again, here and elsewhere."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
