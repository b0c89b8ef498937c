"""How to get from a client's session to the other doors of its broker."""

from __future__ import annotations

import time as clock
from typing import Final, Literal

import zmq

from zbroker import endpoints
from zbroker.client.effects import GetToken, NewToken
from zbroker.client.ports import CLOSE_LINGER_MS, ClientLink, Context
from zbroker.client.publisher.publisher import LogonResult, PublisherPort
from zbroker.engine.contract import Now
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin
from zbroker.wire import codec
from zbroker.wire.messages import Error, ListenerLogon, RangeList, Ranges

_ANSWERS: Final = {"delivery": codec.ANSWERS, "queues": codec.QUEUES_ANSWERS}

TRIES: Final = 5
PAUSE_S: Final = 0.2


class ListenerEndpoints:
    """A door of the instance that a publisher is logged on to: delivery, or queues.

    Sockets that application threads or tasks own live in the interpreter's shared context, which
    need not be closed; the publisher's context ends with it.
    """

    def __init__(
        self, publisher: PublisherPort, door: Literal["delivery", "queues"] = "delivery"
    ) -> None:
        self.door = door
        self.publisher = publisher
        self.now_ms = publisher.clock.mono_ms
        self.context: Context = zmq.Context.instance()
        self._endpoint = ""  # where it was at the last connect

    def now(self) -> Now:
        """The time, for a core."""
        return Now(self.now_ms(), 0)

    def token(self, effect: GetToken) -> NewToken | None:
        """The token of a newer session, if there is one. Raises: what ended the client."""
        session = self.session(effect.newer_than)
        if session is None:
            return None
        return NewToken(session.answer.token or "", origin_of(session), session.number)

    def session(self, than: int = 0) -> LogonResult | None:
        """A session newer than `than` that names the door; None while there is none.

        Raises: ZBrokerError, what ended the client.
        """
        session = self._newer(than)
        if session is None and self.publisher.track.error is not None:
            raise self.publisher.track.error
        return session

    def endpoints(self) -> dict[str, str]:
        """Where each door can be reached from here."""
        session = self.publisher.session
        if session is None:
            return {}
        host, told = endpoints.split(session.url).host, session.answer.endpoints or {}
        return {door: endpoints.reached_from(url, host) for door, url in told.items()}

    def connect(self) -> ClientLink:
        """A link to the door, or to where it was last: a later try knows more.

        Raises: ZBrokerError not_ready.
        """
        self._newer(0)
        self._endpoint = self.endpoints().get(self.door, self._endpoint)
        if not self._endpoint:
            raise ZBrokerError("not_ready", f"the broker named no {self.door} door")
        curve, answers = self.publisher.settings.curve, _ANSWERS[self.door]
        return ClientLink(self.context, self._endpoint, self.publisher.heartbeat_s, curve, answers)

    def _newer(self, than: int) -> LogonResult | None:
        """A broker that starts may not know all its doors yet: then it is asked once more."""
        session = self.publisher.newer_session(than)
        if session is not None and self.door not in (session.answer.endpoints or {}):
            return self.publisher.newer_session(session.number)
        return session


def origin_of(session: LogonResult) -> Origin:
    """The origin of positions that name none."""
    return Origin(*session.answer.origin) if session.answer.origin is not None else Origin(0, 0)


def ask_ranges(doors: ListenerEndpoints, command: Ranges, timeout: float) -> RangeList:
    """Asks the delivery door once more for each lost connection or refused token.

    Raises: ZBrokerError with the broker's code, or "timeout".
    """
    end = clock.monotonic() + timeout
    newer_than = 0
    for _ in range(TRIES):
        session = _session(doors, newer_than, end)
        answer = _ask(doors, session, command, end)
        if isinstance(answer, RangeList):
            return answer
        if isinstance(answer, Error):
            if answer.code == "auth_failed":
                newer_than = session.number
            elif answer.code != "not_ready":
                raise ZBrokerError(answer.code, answer.reason, answer.hint)
        clock.sleep(min(PAUSE_S, max(0.0, end - clock.monotonic())))
    raise ZBrokerError("timeout", f"delivery gave no answer in {timeout} s")


def _session(doors: ListenerEndpoints, newer_than: int, end: float) -> LogonResult:
    while (session := doors.session(newer_than)) is None:
        if clock.monotonic() >= end:
            raise ZBrokerError("timeout", "the broker gave no new session")
        clock.sleep(0.01)
    return session


def _ask(
    doors: ListenerEndpoints, session: LogonResult, command: Ranges, end: float
) -> RangeList | Error | None:
    """The answer, or None if the connection was lost or the time is over."""
    link = doors.connect()
    try:
        link.send(ListenerLogon(session.answer.token or "", cid="logon"))
        command.cid = "ranges"
        link.send(command)
        answers = link.answers(end)
        return next((each for each in answers if isinstance(each, RangeList | Error)), None)
    finally:
        link.close(CLOSE_LINGER_MS)
