"""What all lines do with their connection to a door: of threads and event loops, for every door."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from zbroker.client.effects import Effect
from zbroker.client.endpoints import Doors, origin_of
from zbroker.client.link import Link
from zbroker.client.token_connection import TokenConnection
from zbroker.clock import SystemClock
from zbroker.engine.contract import Now
from zbroker.wire.messages import AnyAnswer
from zbroker.wire.queue_messages import AnyQueuesAnswer

READ_MAX: Final = 16  # answers of one turn, and bytes after which it ends
READ_MAX_BYTES: Final = 16_384
TOKEN_WAIT_MS: Final = 20  # how often it is looked whether there is a new session

now_ms: Final = SystemClock().mono_ms


def now() -> Now:
    """The time, for a core."""
    return Now(now_ms(), 0)


class Carrying(ABC):
    """A connection and its link."""

    _doors: Doors
    _connection: TokenConnection
    _link: Link | None
    _session: int  # of the newest token that it was given

    @abstractmethod
    def _perform(self, effects: list[Effect]) -> None:
        """Connects, and sends."""

    @abstractmethod
    def _take(self, answer: AnyAnswer | AnyQueuesAnswer, body: bytes) -> list[Effect]:
        """What follows from an answer."""

    def _read(self) -> tuple[int, bool]:
        """Takes what is there, not much at a time: who waits for the first of it shall have it.

        Returns: how many answers, and whether there may be more.
        """
        size = 0
        for count in range(READ_MAX):
            received = self._link.receive() if self._link is not None else None
            if received is None:
                return count, False
            effects = self._take(*received)
            if effects:
                self._perform(effects)
            size += len(received[1])
            if size >= READ_MAX_BYTES:
                return count + 1, True
        return READ_MAX, True

    def _read_events(self, link: Link) -> None:
        """Handles what became of a link, until it is replaced."""
        for event in link.events():
            if self._link is link:
                self._perform(self._connection.handle(event, now()))

    def _use_newer_session(self) -> None:
        session = self._doors.session(self._session)
        if session is not None:
            self._session = session.number
            token = session.answer.token or ""
            self._perform(self._connection.use(token, origin_of(session), now_ms()))
