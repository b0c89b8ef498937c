"""Exclusive queues: of one session with a time-out, or of one connection. Pure.

    declared in a session ----> its own, as long as that is kept, also over a restart
    declared without one -----> of the connection, and gone with it, or with this process

Another client is refused: `resource_locked`. That it is over is known here; queue_ends deletes it.
Source: AMQP 0-9-1, queue.declare.
"""

from __future__ import annotations

from typing import Protocol

from zbroker.errors import ClientError
from zbroker.log.records import DefinitionRecord
from zbroker.queues.context import QueuesConnection, QueuesContext
from zbroker.queues.queue_state import QueueState
from zbroker.wire.transactions import SessionKey


class OfSession(Protocol):
    """A command that may say of which session it is."""

    session: str
    epoch: int


class ExclusiveQueues:
    """Whose each of them is."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared
        self._owners: dict[str, QueuesConnection] = {}  # of those without a session
        self._over: set[str] = set()  # their sessions are, also if these begin again
        self._known = False  # which sessions are kept

    # -- whose it is --------------------------------------------------------------------------

    def owner(self, connection: QueuesConnection, command: OfSession) -> tuple[str, str, str]:
        """The owner of a queue that a command declares, for its record: the principal, the name and
        the program of its session; "" and "" if a connection owns it. Raises: ClientError
        session_fenced, not_ready."""
        principal, sessions = connection.token.principal, self._shared.manager.sessions
        if not command.session:
            return principal, "", ""
        key = SessionKey(principal, command.session)
        sessions.check(key, command.epoch)
        kept = sessions.get(key)
        assert kept is not None, "it was checked"
        return principal, command.session, kept.holder

    def declared(self, record: DefinitionRecord, connection: QueuesConnection) -> None:
        """One that a command declares is on its way to the log."""
        self._over.discard(record.name)
        if record.owner is not None and not record.owner[1]:
            self._owners[record.name] = connection

    def check(self, connection: QueuesConnection, one: QueueState, command: OfSession) -> None:
        """Whether this client may use a queue. Raises: ClientError resource_locked, session_fenced,
        not_ready."""
        if not one.definition.config.exclusive:
            return
        principal, session, _ = self._owner(one)
        if session:
            mine = (connection.token.principal, command.session) == (principal, session)
            if mine and not self.is_over(one):
                self._shared.manager.sessions.check(SessionKey(principal, session), command.epoch)
        else:
            mine = self._owners.get(one.name) is connection
        if not mine:
            whose = "session" if session else "connection"
            text = f"queue {one.name!r} is exclusive to another {whose}"
            raise ClientError("resource_locked", text)

    def _owner(self, one: QueueState) -> tuple[str, str, str]:
        row = self._shared.manager.rows.get(one.name)
        return (row.owner if row is not None else None) or ("", "", "")

    # -- when it is over ----------------------------------------------------------------------

    def is_over(self, one: QueueState) -> bool:
        """An exclusive queue has lost its owner."""
        principal, session, holder = self._owner(one)
        if not session:
            owner = self._owners.get(one.name)
            return owner is None or not self._shared.is_here(owner)
        sessions = self._shared.manager.sessions
        if one.name in self._over or not sessions.known:
            return one.name in self._over
        kept = sessions.get(SessionKey(principal, session))
        return kept is None or kept.holder != holder

    def tick(self) -> None:
        """Has those looked at whose sessions are over, or not known before."""
        sessions = self._shared.manager.sessions
        if not (sessions.over or sessions.known is not self._known):
            return
        self._known, over = sessions.known, {each.key for each in sessions.over}
        for one in self._of_sessions():
            if SessionKey(*self._owner(one)[:2]) in over:
                self._over.add(one.name)
            self._shared.touch(one)

    def gone(self, connection: QueuesConnection) -> None:
        """A connection is over."""
        for name in [name for name, one in self._owners.items() if one is connection]:
            del self._owners[name]
            one = self._shared.manager.running.get(name)
            if one is not None:
                self._shared.touch(one)

    def _of_sessions(self) -> list[QueueState]:
        running = self._shared.manager.running.values()
        return [one for one in running if one.definition.config.exclusive and self._owner(one)[1]]
