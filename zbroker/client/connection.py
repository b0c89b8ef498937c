"""How a connection to the broker comes about and is kept: the part that all of them share. No I/O.

    DOWN --time--> CONNECTING --Connected--> LOGON_SENT --processed--> LIVE --close--> ENDED
      ^                                                                  |
      +--- Lost, silence, no answer in time, not_ready: any state -------+
    LOGON_SENT --auth_failed--> NO_TOKEN --NewToken--> DOWN      not_logged_on: LOGON_SENT again

A publisher is never in NO_TOKEN; a refused logon that is final takes it to ENDED.

The connections of subscribers and consumers log on with the token of the publisher's. One that was
lost may count at the broker for a while: a request that is refused because of it (`too_many`) is
made again, with pauses, before that is taken for an answer. They ask the broker for heartbeats and
send none: the program that reads may be busy with a message for hours, and the PINGs of libzmq are
proof enough. So `not_logged_on` where heartbeats were asked for means that nothing of ours arrives:
that takes a new connection.

Silence: see heartbeats.py.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from zbroker.client.effects import (
    Backoff,
    Called,
    Connect,
    Connected,
    Effect,
    Event,
    GetToken,
    Lost,
    MessagesArrived,
    NewToken,
    Rejected,
    SendCommand,
    Unreached,
)
from zbroker.engine.contract import Now
from zbroker.errors import ZBrokerError
from zbroker.heartbeats import Silence
from zbroker.ids import Origin
from zbroker.wire.messages import Ack, ClientCommand, Error, Heartbeat, ListenerLogon

CONNECT_MS: Final = 5_000  # then a new socket, which looks the host up again
SETTLED_MS: Final = 1_000  # a connection that was live for this long is made again without delay
RECONNECT_MS: Final = (200, 20_000)


class Phase(Enum):
    """See the picture above."""

    NO_TOKEN = "no_token"
    DOWN = "down"
    CONNECTING = "connecting"
    LOGON_SENT = "logon_sent"
    LIVE = "live"
    ENDED = "ended"


IDLE: Final = (Phase.NO_TOKEN, Phase.DOWN, Phase.CONNECTING)  # there is no connection to lose


class Connection:
    """One connection to the broker; what goes over it when it is live is up to a subclass."""

    logon_answer_ms: int  # how long an answer to a logon may take

    def __init__(
        self, jitter: Callable[[], float], heartbeat_s: float | None, state: Phase = Phase.DOWN
    ) -> None:
        self.state = state
        self._deadline_ms: int | None = 0 if state is Phase.DOWN else None  # of the state
        self._logon_cid = ""
        self._live_since_ms: int | None = None  # with all that it is for
        self._reconnect = Backoff(RECONNECT_MS, jitter)
        self._silence = Silence(heartbeat_s)

    # -- what a subclass adds -----------------------------------------------------------------

    def _make_logon(self) -> ClientCommand:
        """What logs on; its cid is in `_logon_cid`."""
        raise NotImplementedError

    def _logged_on(self, answer: Ack, now_ms: int) -> list[Effect]:
        """The logon was accepted."""
        raise NotImplementedError

    def _answered(self, event: Event, now_ms: int) -> list[Effect]:
        """What follows from any other answer."""
        raise NotImplementedError

    def _answer_due_ms(self) -> int | None:
        """By when the next answer has to come while it is live."""
        return None

    def _forget(self, now_ms: int) -> list[Effect]:
        """The broker knows nothing of this connection any more."""
        self._live_since_ms = None
        return []

    def _unreached(self, now_ms: int) -> None:
        """No process accepts connections there; the socket tries it again."""

    def _rejected(self, event: Rejected, now_ms: int) -> list[Effect]:
        """The broker does not accept the key."""
        return [] if self.state in IDLE else self._lose(now_ms)

    # -- events and time ----------------------------------------------------------------------

    def handle(self, event: Event, now: Now) -> list[Effect]:
        """What follows from an answer, an event of the socket, or a call of the program."""
        now_ms = now.mono_ms
        if type(event) is Called:
            return event.effects
        if self.state is Phase.ENDED:
            return []
        if isinstance(event, Connected):
            return self._log_on(now_ms) if self.state is Phase.CONNECTING else []
        if isinstance(event, Unreached):
            self._unreached(now_ms)
            return []
        if isinstance(event, Rejected):
            return self._rejected(event, now_ms)
        if isinstance(event, Lost):
            return [] if self.state in IDLE else self._lose(now_ms)
        self._silence.fresh = True
        if isinstance(event, Ack) and self._is_logon(event):
            return self._logged_on(event, now_ms)
        return self._answered(event, now_ms)

    def tick(self, now: Now, *, drained: bool) -> list[Effect]:
        """What follows from the time; drained: nothing waits to be read, so silence is silence."""
        return self._pass_time(now.mono_ms) if drained and self.state is not Phase.ENDED else []

    def next_read(self) -> None:
        """A client reads no log."""

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        look_ms = self._silence.wake_ms if self.state is Phase.LIVE else None
        times = (self._due_ms(), look_ms)
        return min((time for time in times if time is not None), default=None)

    # -- helpers ------------------------------------------------------------------------------

    def _is_logon(self, ack: Ack) -> bool:
        """It accepts the logon that was sent last."""
        sent = self.state is Phase.LOGON_SENT and ack.cid == self._logon_cid
        return sent and ack.type == "processed"

    def _pass_time(self, now_ms: int) -> list[Effect]:
        silent = self._silence.look(now_ms) and self.state is Phase.LIVE
        due_ms = self._due_ms()
        if not silent and (due_ms is None or now_ms < due_ms):
            return []
        if self.state in (Phase.LOGON_SENT, Phase.LIVE):
            return self._lose(now_ms)
        return self._connect(now_ms)

    def _due_ms(self) -> int | None:
        """When an answer, or the next step, is due."""
        return self._answer_due_ms() if self.state is Phase.LIVE else self._deadline_ms

    def _connect(self, now_ms: int) -> list[Effect]:
        self.state, self._deadline_ms = Phase.CONNECTING, now_ms + CONNECT_MS
        return [Connect()]

    def _lose(self, now_ms: int) -> list[Effect]:
        """Begins again with another socket: at once when the connection had been good, or later."""
        since_ms, delay_ms = self._live_since_ms, 0
        if since_ms is not None and now_ms - since_ms >= SETTLED_MS:
            self._reconnect.attempt = 0
        else:
            delay_ms = self._reconnect.next_ms()
        effects = self._forget(now_ms)
        self.state, self._deadline_ms = Phase.DOWN, now_ms + delay_ms
        return effects + self._pass_time(now_ms)

    def _log_on(self, now_ms: int) -> list[Effect]:
        effects = self._forget(now_ms)
        logon = self._make_logon()
        self.state, self._deadline_ms = Phase.LOGON_SENT, now_ms + self.logon_answer_ms
        return [*effects, SendCommand(logon)]

    def _stop(self) -> None:
        """Nothing more comes on it, and nothing is sent."""
        self.state, self._deadline_ms = Phase.ENDED, None


ANSWER_MS: Final = 15_000  # a process waits ten seconds for its journal, then says so
REFUSED_MS: Final = 60_000  # how long what was there before a loss may be refused
#: such refusals: a lost connection counts as living, a message seen elsewhere is not here yet
PASSING: Final = frozenset({"too_many", "resource_locked", "bookmark_pending"})
TOKEN_WAIT_MS: Final = 20  # how often it is looked whether there is a new session
TOKENS_MAX: Final = 3  # refused one after the other: it is not about their age


class TokenConnection(Connection):
    """What subscribers and consumers have in common."""

    logon_answer_ms = ANSWER_MS

    def __init__(self, jitter: Callable[[], float], heartbeat_s: float | None = None) -> None:
        super().__init__(jitter, heartbeat_s, Phase.NO_TOKEN)
        self.own = Origin(0, 0)  # of positions that name no origin
        #: of a consumer: its session is attached again, maybe later than it is, or elsewhere
        self.session_lasts: Callable[[], bool] = lambda: False
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

    def client_ended(self, error: ZBrokerError, now_ms: int) -> list[Effect]:
        """There will be no session any more: it ends with `error`, after what came in."""
        raise NotImplementedError

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
        self._renew = False
        return super()._lose(now_ms)

    def _forget(self, now_ms: int) -> list[Effect]:
        if self._live_since_ms is not None:
            # also if the loss was not seen, since the broker's `not_logged_on` came before it
            self._lost_ms, self._broken = now_ms, True
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

    def _passes(self, error: Error, now_ms: int) -> bool:
        """True if a refusal of a command that was accepted before the loss ends by itself."""
        recent = self._lost_ms is not None and now_ms - self._lost_ms < REFUSED_MS
        fenced = error.code == "session_fenced" and self.session_lasts()
        return recent and (fenced or error.code in PASSING)

    def _is_back(self, now_ms: int) -> bool:
        """It is live with all that it is for. Returns: whether it had been lost before."""
        self._live_since_ms, self._lost_ms = now_ms, None
        broken, self._broken = self._broken, False
        return broken
