"""How to reach the other listeners of a broker from a session of a client; connections there."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Generic, Literal, TypeVar

import zmq

from zbroker import endpoints
from zbroker.client.connection import Phase, TokenConnection
from zbroker.client.effects import Effect, GetToken, NewToken
from zbroker.client.link import ClientLink, Context
from zbroker.client.ports import Calls, LinkPort, turn_of
from zbroker.client.publisher.publisher import LogonResult, PublisherPort
from zbroker.engine.contract import Limit, Performers, Source
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin
from zbroker.wire import codec

_ANSWERS: Final = {"delivery": codec.ANSWERS, "queues": codec.QUEUES_ANSWERS}

K = TypeVar("K", bound=TokenConnection)


class ListenerEndpoints:
    """A listener of the instance that a publisher is logged on to: delivery, or queues.

    Sockets that application threads or tasks own live in the interpreter's shared context, which
    need not be closed; the publisher's context ends with it.
    """

    def __init__(
        self, publisher: PublisherPort, listener: Literal["delivery", "queues"] = "delivery"
    ) -> None:
        self.listener = listener
        self.publisher = publisher
        self.now, self.now_ms = publisher.now, publisher.clock.mono_ms
        self.context: Context = zmq.Context.instance()
        self._endpoint = ""  # where it was at the last connect

    def token(self, effect: GetToken) -> NewToken | None:
        """The token of a newer session, if there is one. Raises: what ended the client."""
        session = self.session(effect.newer_than)
        if session is None:
            return None
        return NewToken(session.answer.token or "", origin_of(session), session.number)

    def session(self, than: int = 0) -> LogonResult | None:
        """A session newer than `than` that names the listener; None while there is none.

        Raises: ZBrokerError, what ended the client.
        """
        session = self._newer(than)
        if session is None and self.publisher.track.error is not None:
            raise self.publisher.track.error
        return session

    def endpoints(self) -> dict[str, str]:
        """Where each listener can be reached from here."""
        session = self.publisher.session
        if session is None:
            return {}
        host, named = endpoints.split(session.url).host, session.answer.endpoints or {}
        return {listener: endpoints.reached_from(url, host) for listener, url in named.items()}

    def connect(self) -> ClientLink:
        """A link to the listener, or to where it was last: a later try knows more.

        Raises: ZBrokerError not_ready.
        """
        self._newer(0)
        self._endpoint = self.endpoints().get(self.listener, self._endpoint)
        if not self._endpoint:
            raise ZBrokerError("not_ready", f"the broker named no {self.listener} listener")
        curve, answers = self.publisher.settings.curve, _ANSWERS[self.listener]
        return ClientLink(self.context, self._endpoint, self.publisher.heartbeat_s, curve, answers)

    def _newer(self, than: int) -> LogonResult | None:
        """A broker that starts may not know all its listeners yet: then it is asked once more."""
        session = self.publisher.newer_session(than)
        if session is not None and self.listener not in (session.answer.endpoints or {}):
            return self.publisher.newer_session(session.number)
        return session


def origin_of(session: LogonResult) -> Origin:
    """The origin of positions that name none."""
    return Origin(*session.answer.origin) if session.answer.origin is not None else Origin(0, 0)


def wait_for_session(listeners: ListenerEndpoints, newer_than: int, end: float) -> LogonResult:
    """A session newer than that which names the listener; `end`: of the monotonic clock.

    Raises: ZBrokerError "timeout", or what ended the client.
    """
    while (session := listeners.session(newer_than)) is None:
        if clock.monotonic() >= end:
            raise ZBrokerError("timeout", "the broker gave no new session")
        clock.sleep(0.01)
    return session


class Transport(Generic[K]):
    """A connection to a listener: its core, its turn, and the calls of the program.

    What threads and event loops do alike.
    """

    _lock: AbstractContextManager[Any]  # its owner may take it again
    _link: LinkPort
    _sources: Sequence[tuple[Source, Limit]] = ()  # besides the connection

    def __init__(self, listeners: ListenerEndpoints, core: K) -> None:
        self._listeners = listeners
        self.core = core
        self._calls = Calls()

    def _begin(self, link: LinkPort) -> None:
        self._link = link
        self._renew_turn()
        self._listeners.publisher.follow(self)

    def _renew_turn(self) -> None:
        token: Performers = {GetToken: self._listeners.token}
        now, more = self._listeners.now, self._sources
        self._turn = turn_of(self.core, self._link, self._calls, now, token, more)

    # -- what a port adds ---------------------------------------------------------------------

    async def until(self, done: Callable[[], object], end: float | None) -> bool:
        """Waits until `done()`; False if that is not so at the time `end`.

        Raises: ZBrokerError, what ended the client.
        """
        raise NotImplementedError

    def look(self) -> None:
        """Has all that wait look again: something was handed out, or has ended."""
        raise NotImplementedError

    def _flush(self) -> None:
        """Performs what calls decided, now or soon."""
        raise NotImplementedError

    def _soon(self) -> None:
        """Has a turn soon, if something here has turns now."""
        raise NotImplementedError

    def _close_if_over(self) -> None:
        """Closes the link if the connection has ended, unless another thread does so."""
        raise NotImplementedError

    # -- calls of the program -----------------------------------------------------------------

    def client_ended(self, error: ZBrokerError) -> None:
        """The connection ends with what ended the client, and so does every wait here."""
        with self._lock:
            self._do(self.core.client_ended(error, self._listeners.now_ms()))
            self._close_if_over()
            self.look()

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats from now on."""
        with self._lock:
            self._do(self.core.beat_each(interval_s))
            self._soon()

    def _do(self, effects: Iterable[Effect]) -> None:
        if effects:
            self._calls.add(effects)
            self._flush()

    def _send_calls(self) -> None:
        for called in self._calls.take():
            self._turn.hear(called)

    @property
    def _ended(self) -> bool:
        return self.core.state is Phase.ENDED
