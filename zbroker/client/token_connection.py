"""A connection that logs on with the token of the client's publisher: delivery and queues. No I/O.

A connection that was lost may count at the broker for a while: what is refused because of it
(`too_many`) is asked for again, with pauses, before that is taken for an answer.

The broker is asked for heartbeats and gets none from here: the program that reads may be busy with
a message for hours, and the PINGs of libzmq are proof enough. So `not_logged_on` where heartbeats
were asked for means that nothing of ours arrives: that takes a new connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zbroker.client.connection import Connection, Phase
from zbroker.client.effects import (
    Effect,
    Event,
    GetToken,
    MessagesArrived,
    NewToken,
    SendCommand,
)
from zbroker.engine.contract import Now
from zbroker.heartbeats import Silence
from zbroker.ids import Origin
from zbroker.wire.messages import Ack, Error, Heartbeat, ListenerLogon

ANSWER_MS: Final = 15_000  # a process waits ten seconds for its journal, then says so
COUNTED_MS: Final = 60_000  # how long the broker may take a lost connection of ours for living
TOKEN_WAIT_MS: Final = 20  # how often it is looked whether there is a new session
TOKENS_MAX: Final = 3  # refused one after the other: it is not about their age


class TokenConnection(Connection):
    """What subscribers and consumers have in common."""

    logon_answer_ms = ANSWER_MS

    def __init__(self, jitter: Callable[[], float], heartbeat_s: float | None = None) -> None:
        super().__init__(jitter, heartbeat_s, Phase.NO_TOKEN)
        self.own = Origin(0, 0)  # of positions that name no origin
        self._deadline_ms = 0
        self._token = ""
        self._session = 0  # whose token that is
        self._tokens_refused = 0
        self._cids = 0
        self._lost_ms: int | None = None  # when it ceased to be live; None: it did not, or is again
        self._heartbeat_s = heartbeat_s
        self._broken = False  # it was live, and is not now
        self._renew = False  # another connection is needed
        self._asked_s = heartbeat_s  # by the logon

    def beat_each(self, interval_s: float | None) -> list[Effect]:
        """Another interval of heartbeats from now on; None: none.

        A shorter one takes a new connection: the PINGs of a socket keep the pace that it was made
        with, and are all that the broker hears of a reader that is busy.
        """
        before, self._heartbeat_s = self._heartbeat_s, interval_s
        self._silence = Silence(interval_s)
        shorter = interval_s is not None and (before is None or interval_s < before)
        self._renew |= shorter
        live = self.state is Phase.LIVE and not shorter
        return [SendCommand(Heartbeat(interval_s or 0))] if live else []

    # -- what a subclass adds -----------------------------------------------------------------

    def _begin(self, now_ms: int) -> list[Effect]:
        """The broker knows which client this is."""
        raise NotImplementedError

    def _replied(self, event: Event, now_ms: int) -> list[Effect]:
        """An answer that is not about the logon."""
        raise NotImplementedError

    def _arrived(self, event: MessagesArrived, now_ms: int) -> list[Effect]:
        """Messages came in."""
        raise NotImplementedError

    # -- the connection -----------------------------------------------------------------------

    def handle(self, event: Event, now: Now) -> list[Effect]:
        """Also what follows from messages, and from a token."""
        if type(event) is MessagesArrived:
            self._silence.fresh = True
            return self._arrived(event, now.mono_ms)
        if type(event) is NewToken:
            return self._use(event, now.mono_ms) if self.state is Phase.NO_TOKEN else []
        return super().handle(event, now)

    def _use(self, given: NewToken, now_ms: int) -> list[Effect]:
        self._token, self.own, self._session = given.token, given.own, given.session
        self.state, self._deadline_ms = Phase.DOWN, now_ms
        return self._pass_time(now_ms)

    def _get_token(self, now_ms: int) -> list[Effect]:
        if self._deadline_ms is None or now_ms < self._deadline_ms:
            return []
        self._deadline_ms = now_ms + TOKEN_WAIT_MS
        return [GetToken(self._session)]

    def _pass_time(self, now_ms: int) -> list[Effect]:
        if self.state is Phase.NO_TOKEN:
            return self._get_token(now_ms)
        if self._renew and self.state is Phase.LIVE:
            return self._lose(now_ms)
        return super()._pass_time(now_ms)

    def _lose(self, now_ms: int) -> list[Effect]:
        self._broken |= self._live_since_ms is not None
        self._renew = False
        return super()._lose(now_ms)

    def _forget(self, now_ms: int) -> list[Effect]:
        if self._live_since_ms is not None:
            self._lost_ms = now_ms
        return super()._forget(now_ms)

    def _make_logon(self) -> ListenerLogon:
        self._logon_cid, self._asked_s = self._cid(), self._heartbeat_s
        return ListenerLogon(self._token, self._logon_cid, self._heartbeat_s)

    def _logged_on(self, answer: Ack, now_ms: int) -> list[Effect]:
        if answer.origin is not None:
            self.own = Origin(*answer.origin)
        self.state, self._deadline_ms, self._tokens_refused = Phase.LIVE, None, 0
        changed = self._asked_s != self._heartbeat_s
        beats: list[Effect] = [SendCommand(Heartbeat(self._heartbeat_s or 0))] if changed else []
        return beats + self._begin(now_ms)

    def _answered(self, event: Event, now_ms: int) -> list[Effect]:
        if isinstance(event, Ack) and self.state is Phase.LOGON_SENT:
            return []  # of the session before
        if isinstance(event, Error) and event.code == "not_logged_on":
            return self._unknown(event, now_ms)
        if isinstance(event, Error) and event.code == "auth_failed" and self._may_ask_again(now_ms):
            return []
        return self._replied(event, now_ms)

    def _unknown(self, error: Error, now_ms: int) -> list[Effect]:
        """The broker forgot which client this is."""
        if self.state is Phase.LIVE and self._heartbeat_s is not None:
            return self._lose(now_ms)
        again = self.state is Phase.LIVE or error.cid == self._logon_cid
        return self._log_on(now_ms) if again else []

    def _may_ask_again(self, now_ms: int) -> bool:
        """A token was refused. Returns: whether another one is asked for now."""
        if self._tokens_refused >= TOKENS_MAX:
            return False
        self._tokens_refused += 1
        self._forget(now_ms)
        self.state, self._deadline_ms = Phase.NO_TOKEN, now_ms
        return True

    # -- for subclasses -----------------------------------------------------------------------

    def _cid(self) -> str:
        self._cids += 1
        return str(self._cids)

    def _counted(self, error: Error, now_ms: int) -> bool:
        """True if the broker may have refused it for a lost connection of ours that counts."""
        recent = self._lost_ms is not None and now_ms - self._lost_ms < COUNTED_MS
        return recent and error.code in ("too_many", "resource_locked")

    def _is_back(self, now_ms: int) -> bool:
        """It is live with all that it is for. Returns: whether it had been lost before."""
        self._live_since_ms, self._lost_ms = now_ms, None
        broken, self._broken = self._broken, False
        return broken
