"""How a connection to the broker comes about and is kept: the part that all of them share. No I/O.

    DOWN --time--> CONNECTING --Connected--> LOGON_SENT --processed--> LIVE --close--> ENDED
      ^                                                                  |
      +--- Lost, silence, no answer in time, not_ready: any state -------+
    LOGON_SENT --auth_failed--> NO_TOKEN --NewToken--> DOWN      not_logged_on: LOGON_SENT again

A publisher is never in NO_TOKEN; a refused logon that is final takes it to ENDED. The connections
of subscribers and consumers log on with the token of the publisher's: see token_connection.py.

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
    Lost,
    Rejected,
    SendCommand,
    Unreached,
)
from zbroker.engine.contract import Now
from zbroker.heartbeats import Silence
from zbroker.wire.messages import Ack, ClientCommand

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


IDLE: Final = (
    Phase.NO_TOKEN,
    Phase.DOWN,
    Phase.CONNECTING,
)  # there is no connection to lose


class Connection:
    """One connection to the broker; what goes over it when it is live is up to a subclass."""

    logon_answer_ms: int  # how long an answer to a logon may take

    def __init__(
        self,
        jitter: Callable[[], float],
        heartbeat_s: float | None,
        state: Phase = Phase.DOWN,
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
        """Nobody accepts connections there; the socket tries it again."""

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
