"""The connection of a session to the queues process: it attaches, and commits. Blocks.

    attach --> attached in an epoch --commit--> committed, aborted, or fenced: it is over
                     |                 |
                     +---- lost -------+--> attach again: was it committed?

A commit that was not answered is not sent again. The session attaches again: in a higher epoch, so
it cannot arrive any more, and the answer says whether it had. At another instance only if that goes
on from the epoch of the commit: two may have begun the session without knowing of each other.

A session with a time-out attaches again by itself, see session_keeper.py, also while a transaction
is open: that is over then. A task of an event loop that is cancelled leaves a thread with its
question. So threads share a link, and one at a time uses it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.questions import NOT_READY, PAUSE_S, LostError, QuestionLink, ask
from zbroker.errors import TEMPORARY, ZBrokerError
from zbroker.wire.messages import Heartbeat
from zbroker.wire.transactions import (
    Accepted,
    AttachSession,
    CommitTransaction,
    DetachSession,
    RejectedMessages,
    SessionAttached,
    SessionDetached,
    TransactionCommitted,
)

AGAIN: Final = TEMPORARY | NOT_READY
_LOST: Final = "the connection was lost before the broker had it: nothing of the transaction holds"
HINT: Final = "the broker may be starting, or its disk be full"
_ELSEWHERE: Final = "attach there, or wait for its log; if it is gone, open the session with force"


class TransactionId(NamedTuple):
    """One transaction of a session: its epoch, and its number in that."""

    epoch: int
    number: int


class SessionEnd(NamedTuple):
    """Why a session was over. reason: "timed out", "detached", "exception", "ended by an operator".
    code, text: as its program said, if it was an exception."""

    reason: str
    code: str = ""
    text: str = ""


class Takes(NamedTuple):
    """What a transaction takes from queues."""

    accepts: list[Accepted]
    rejects: list[RejectedMessages]


class DetachedError(LostError):
    """The session has no connection: the command was not done."""


class SessionLink:
    """One session, of the client whose queues listener this is. name: of the session. timeout_ms:
    that it asks for. on_attached: called with each epoch. consumers: says which it has that hold
    messages, by queue and holder; None: too many. error: why it is over."""

    def __init__(
        self, listeners: ListenerEndpoints, name: str, *, force: bool, timeout_ms: int = 0,
        on_attached: Callable[[int], None] = lambda _epoch: None,
        consumers: Callable[[], list[tuple[str, str]] | None] = lambda: None,
    ) -> None:  # fmt: skip
        self._consumers = consumers
        self._listeners, self.name, self._force = listeners, name, force
        self.timeout_ms, self._on_attached = timeout_ms, on_attached
        self.error: ZBrokerError | None = None
        self.lock = threading.RLock()
        self._holder = secrets.token_hex(8)
        self._connection: QuestionLink | None = None
        self._attached: SessionAttached | None = None
        self._attached_at = ""  # the URL of the broker
        self._goes_on = True  # the newest epoch is known to come after the one before
        self._open: TransactionId | None = None
        self._number = 0
        self._closed = False

    def attach(self, timeout: float) -> SessionAttached:
        """Raises: ZBrokerError session_elsewhere, session_fenced (another program took it),
        too_many, "timeout", ..."""

        def begin(connection: QuestionLink) -> tuple[SessionAttached, str]:
            again = self._attached is not None
            command = AttachSession(
                self.name, self._holder, again=again, force=self._force, timeout_ms=self.timeout_ms,
                epoch=self.epoch,
            )  # fmt: skip
            if again and self.timeout_ms:
                command.consumers = self._consumers()
            answer = connection.ask(command)
            assert isinstance(answer, SessionAttached)
            self._connection, connection.kept = connection, True
            return answer, connection.url

        with self.lock:
            self.disconnect()
            what = f"session({self.name!r})"
            found, url = ask(self._listeners, timeout, what, begin, AGAIN, HINT)
            if found.epoch < self.epoch:  # what became of that one is not known there
                self.disconnect()
                text = f"{what} began last on an instance whose log is not here yet"
                raise ZBrokerError("session_elsewhere", text, _ELSEWHERE)
            # a hand-over is an epoch of its own
            direct = found.after in (None, self.epoch, self.epoch + 1)
            self._goes_on = direct or self._attached_at == url or not self.epoch
            self._attached, self._attached_at, self._number = found, url, 0
            self._on_attached(found.epoch)
            self._beat()
            return found

    def _beat(self) -> None:
        """The broker shall notice when this host is gone, or frozen."""
        if self.timeout_ms and self._connection is not None:
            heartbeat_s = self._listeners.publisher.heartbeat_s
            if heartbeat_s is not None:
                self._connection.tell(Heartbeat(heartbeat_s))

    def keep(self, timeout: float) -> bool:
        """Attaches again if the connection was lost. False: there is nothing to keep any more."""
        with self.lock:
            if self._closed or self.error is not None:
                return False
            if self._connection is not None and not self._connection.lost:
                return True
            try:
                self.attach(timeout)
            except ZBrokerError as error:
                if error.code == "session_fenced":
                    self.error = error
                    return False
            return True

    @property
    def epoch(self) -> int:
        """As it was attached last."""
        return 0 if self._attached is None else self._attached.epoch

    @property
    def ended(self) -> SessionEnd | None:
        """Why it was over before it was attached, if it was."""
        found = self._attached
        return SessionEnd(found.ended, found.code, found.text) if found and found.ended else None

    @property
    def last(self) -> TransactionId | None:
        """The transaction that was committed last before it was attached, if there was one."""
        found = self._attached
        if found is None or not found.number:
            return None
        return TransactionId(found.committed, found.number)

    @property
    def takes_rejects(self) -> bool:
        """Whether the broker looks at rejects of a transaction."""
        return self._attached is not None and self._attached.rejects

    def begin(self, timeout: float) -> tuple[TransactionId, str]:
        """The next transaction, and the token for its messages; the session attaches where it has
        to.

        Raises: as `attach`.
        """
        with self.lock:
            if self.error is not None:
                raise self.error
            attached, connection = self._attached, self._connection
            if attached is None or connection is None or connection.lost:
                attached = self.attach(timeout)
            self._number += 1
            self._open = TransactionId(attached.epoch, self._number)
            return self._open, f"{attached.stage}{self._number}"

    def current(self) -> TransactionId:
        """The transaction whose token was given last.

        Raises: ZBrokerError transaction_aborted (the session was attached again since).
        """
        assert self._open is not None, "it was begun"
        if self._open.epoch != self.epoch:
            raise never_arrived()
        return self._open

    def commit(self, messages: int, takes: Takes, timeout: float) -> TransactionCommitted:
        """Commits the transaction whose token was given last.

        Raises: ZBrokerError transaction_aborted, session_fenced, ...: nothing of it holds;
        outcome_unknown (the broker cannot be asked in time).
        """
        with self.lock:
            current, end = self.current(), time.monotonic() + timeout
            command = CommitTransaction(
                self.name, *current, messages, takes.accepts, rejects=takes.rejects
            )
            try:
                answer = self.ask(command, end)
            except LostError:
                return self._look(current, end)
            assert isinstance(answer, TransactionCommitted)
            return answer

    def ask(self, command: Any, end: float) -> Any:  # noqa: ANN401 - as of QuestionLink
        """The answer to a command on the session's own connection, also where it is refused for
        now, until `end`.

        Raises: ZBrokerError, what the broker says; LostError, DetachedError.
        """
        connection = self._connection
        if connection is None:
            raise DetachedError(late=False)
        connection.end = end
        while True:
            try:
                return connection.ask(command)
            except ZBrokerError as error:
                if error.code == "not_logged_on":
                    # it was lost before, and its successor knows of no session here
                    raise DetachedError(late=False) from None
                if error.code not in AGAIN or time.monotonic() + PAUSE_S >= end:
                    raise
                time.sleep(PAUSE_S)

    def _look(self, id_: TransactionId, end: float) -> TransactionCommitted:
        """What became of a commit without an answer. Raises: as `commit`."""
        try:
            now = self.attach(max(PAUSE_S, end - time.monotonic()))
        except ZBrokerError as error:
            text = f"the commit of {self.name!r} was not answered, and its session cannot ask"
            hint = "open the session again when the broker is there, and compare `last`"
            raise ZBrokerError("outcome_unknown", f"{text}: {error}", hint) from None
        if (now.committed, now.number) != id_:
            raise self.not_there(f"the commit of {self.name!r}")
        return TransactionCommitted(self.name, id_.number, now.position, now.messages)

    def not_there(self, what: str) -> ZBrokerError:
        """The error where nothing is known of a last command without an answer."""
        if self._goes_on:
            return never_arrived()
        text = f"{what} was not answered, and its session began elsewhere, too: it may still hold"
        return ZBrokerError("outcome_unknown", text, "look for what it did when all logs have met")

    def detach(self, code: str, text: str, timeout: float) -> None:
        """Ends the session, on every instance. code, text: why, if its program failed.

        Raises: ZBrokerError session_fenced, session_elsewhere, bad_field, "timeout", ...
        """
        with self.lock:
            self._closed = True  # it is not attached again
            if self._attached is None:
                return
            command = DetachSession(self.name, self.epoch, code, text)

            def say(connection: QuestionLink) -> None:
                answer = connection.ask(command)
                assert isinstance(answer, SessionDetached)

            ask(self._listeners, timeout, f"the end of session {self.name!r}", say, AGAIN, HINT)

    def close(self) -> None:
        """The session can be attached again, here and elsewhere; it waits for that, if it was not
        detached and has a time-out."""
        with self.lock:
            self._closed = True
            self.disconnect()

    def disconnect(self) -> None:
        """It is attached again for its next transaction."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def never_arrived() -> ZBrokerError:
    """The error for a transaction whose last command was lost."""
    return ZBrokerError("transaction_aborted", _LOST, "process the messages that come again")
