"""Time-outs of sessions: which there are after a start, and the records that end them. Pure.

    start   AskSessions: those that this instance keeps --> each has its whole time from then on
    due     a record, after the epoch that it ends, lands --> over
            refused: it began again meanwhile --AskSession--> known

While there is no journal nothing is decided, since no session could be attached then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zbroker.engine.contract import Now
from zbroker.engine.effects import Note
from zbroker.errors import ClientError
from zbroker.log.format import KIND_TRANSACTION
from zbroker.queues.context import QueuesContext
from zbroker.queues.timed_sessions import TIMED_OUT, TimedSession, begin_of, begun, end_after
from zbroker.wire.transactions import SessionFound, SessionKey, SessionList

AGAIN_MS: Final = 1_000  # until something that failed is tried again
ROWS_MAX: Final = 1_000  # of one question


class SessionTimeouts:
    """Decides for the sessions of this instance. is_there: whether a journal listens."""

    def __init__(self, shared: QueuesContext, is_there: Callable[[], object]) -> None:
        self._shared, self._is_there = shared, is_there
        self._sessions = shared.manager.sessions
        self._sessions.now_ms = lambda: shared.now.mono_ms
        self._ask_ms: int | None = 0  # when they are to be asked for; None: they were

    def tick(self, now: Now) -> None:
        """Asks what is not known, and ends what is due."""
        manager, sessions = self._shared.manager, self._sessions
        if not manager.known or manager.here is None:
            return
        sessions.here = manager.here.instance
        if self._ask_ms is not None and now.mono_ms >= self._ask_ms:
            self._ask(SessionKey("", ""))
        if sessions.doubted:
            doubted, sessions.doubted = sessions.doubted, []
            for key in dict.fromkeys(doubted):
                self._look(key)
        for one in sessions.due():
            if self._is_there():
                self._end(one)
            else:
                sessions.wait_on(one.key, one.epoch, one.timeout_ms)

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        if not self._shared.manager.known or self._shared.manager.here is None:
            return None
        wakes = [self._ask_ms, self._sessions.next_wake_ms(), 0 if self._sessions.doubted else None]
        return min((wake for wake in wakes if wake is not None), default=None)

    # -- what is known ------------------------------------------------------------------------

    def _ask(self, after: SessionKey) -> None:
        self._ask_ms = None

        def found(rows: SessionList) -> None:
            if rows.code:
                self._ask_ms = self._shared.now.mono_ms + AGAIN_MS
                return
            for row in rows.rows:
                key = SessionKey(row.principal, row.session)
                self._sessions.learn(begin_of(key, row), begins=True, before=True)
            if rows.left_out and rows.rows:
                self._ask(SessionKey(rows.rows[-1].principal, rows.rows[-1].session))
            else:
                self._sessions.known = True

        try:
            self._shared.list_kept_sessions(self._sessions.here, after, ROWS_MAX, found)
        except ClientError:
            self._ask_ms = self._shared.now.mono_ms + AGAIN_MS

    def _look(self, key: SessionKey) -> None:
        """What the journal says now; without an answer nothing changes."""

        def found(row: SessionFound) -> None:
            if row.code:
                return
            if row.epoch:
                self._sessions.learn(begin_of(key, row))
            else:
                self._sessions.forgotten(key)

        try:
            self._shared.find_session(*key, found)
        except ClientError:
            return  # one that is due is so again

    # -- ends ---------------------------------------------------------------------------------

    def _end(self, one: TimedSession) -> None:
        key, epoch = one.key, one.epoch
        record = end_after(key, epoch, TIMED_OUT)

        def landed(code: str, _reason: str, _position: int) -> None:
            if code:
                self._sessions.wait_on(key, epoch, AGAIN_MS)
                self._look(key)
                return
            self._sessions.learn(begun(record, self._sessions.here))
            text = f"session {key.session!r} has timed out; what its consumers hold comes back"
            values: dict[str, object] = {"principal": key.principal, "session": key.session}
            self._shared.out.append(Note("queues.session_timed_out", text, values=values))

        self._shared.manager.commits.add_record(KIND_TRANSACTION, record, landed)
