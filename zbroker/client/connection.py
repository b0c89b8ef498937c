"""How a connection to a door comes about and is kept: the part that all doors have. No I/O.

    DOWN --time--> CONNECTING --Connected--> LOGON_SENT --processed--> LIVE --close--> ENDED
      ^                                                                  |
      +--- Lost, silence, no answer in time, not_ready: any state -------+
    LOGON_SENT --auth_failed--> NO_TOKEN --use(session)--> DOWN      not_logged_on: LOGON_SENT again

A connection that was lost may count at the broker for a while: what is refused because of it
(`too_many`) is asked for again, with pauses, before that is taken for an answer.

Silence: see heartbeats.py. The door is asked for heartbeats and gets none from here: whoever reads
may be busy with a message for hours, and the PINGs of libzmq are proof enough. So `not_logged_on`
where heartbeats were asked for means that nothing of ours arrives: that takes a new connection.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from zbroker.client.effects import Backoff, Connect, Connected, Event, Lost, Send, Unreached
from zbroker.client.publisher.core import CONNECT_MS, RECONNECT_MS, SETTLED_MS
from zbroker.heartbeats import Silence
from zbroker.ids import Origin
from zbroker.wire.messages import Ack, DoorLogon, Error, Heartbeat

ANSWER_MS: Final = 15_000  # a room waits ten seconds for its journal, then says so
COUNTED_MS: Final = 60_000  # how long the broker may take a lost connection of ours for living
TOKENS_MAX: Final = 3  # refused one after the other: it is not about their age

Effect = Connect | Send


class State(Enum):
    """See the picture above."""

    NO_TOKEN = "no_token"
    DOWN = "down"
    CONNECTING = "connecting"
    LOGON_SENT = "logon_sent"
    LIVE = "live"
    ENDED = "ended"


class Dialling:
    """One link to a door; what goes over it when it is live is the part of a subclass."""

    def __init__(self, jitter: Callable[[], float], heartbeat_s: float | None = None) -> None:
        self.state = State.NO_TOKEN
        self.own = Origin(0, 0)  # of positions that name no origin
        self._token = ""
        self._tokens_refused = 0
        self._cids = 0
        self._logon_cid = ""
        self._deadline_ms: int | None = None
        self._live_since_ms: int | None = None  # all that it is for
        self._lost_ms: int | None = None  # when that ended; None: it did not, or is there again
        self._reconnect = Backoff(RECONNECT_MS, jitter)
        self._heartbeat_s = heartbeat_s
        self._silence = Silence(heartbeat_s)
        self._broken = False  # it was live, and is not now
        self._renew = False  # another connection is needed
        self._asked_s = heartbeat_s  # by the logon

    def use(self, token: str, origin: Origin, now_ms: int) -> list[Effect]:
        """In NO_TOKEN: a token for the door, and the origin of positions that name none."""
        self._token, self.own = token, origin
        self.state, self._deadline_ms = State.DOWN, now_ms
        return self.tick(now_ms)

    def beat_each(self, interval_s: float | None) -> list[Effect]:
        """Another interval of heartbeats from now on; None: none.

        A shorter one takes a new connection: the PINGs of a socket keep the pace that it was made
        with, and are all that the door hears of a reader that is busy.
        """
        before, self._heartbeat_s = self._heartbeat_s, interval_s
        self._silence = Silence(interval_s)
        shorter = interval_s is not None and (before is None or interval_s < before)
        self._renew |= shorter
        live = self.state is State.LIVE and not shorter
        return [Send(Heartbeat(interval_s or 0))] if live else []

    # -- what a subclass adds -----------------------------------------------------------------

    def _begin(self, now_ms: int) -> list[Effect]:
        """The door knows who this is."""
        raise NotImplementedError

    def _forget(self) -> None:
        """The broker knows nothing of this connection any more."""
        self._live_since_ms = None

    def _answered(self, event: Event, now_ms: int) -> list[Effect]:
        """An answer that is not about the logon."""
        raise NotImplementedError

    def _answer_due_ms(self) -> int | None:
        """When it is live: by when the next answer has to come."""
        raise NotImplementedError

    # -- the three methods --------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """What follows from an answer without a batch, or an event of the socket."""
        if self.state is State.ENDED:
            return []
        if isinstance(event, Connected):
            return self._log_on(now_ms) if self.state is State.CONNECTING else []
        if isinstance(event, Unreached):
            return []  # there is one such door, and the socket tries it again
        if isinstance(event, Lost):
            idle = self.state in (State.NO_TOKEN, State.DOWN, State.CONNECTING)
            return [] if idle else self._lose(now_ms)
        self._silence.fresh = True
        if isinstance(event, Ack) and self.state is State.LOGON_SENT:
            known = event.type == "processed" and event.cid == self._logon_cid
            return self._logged_on(event, now_ms) if known else []
        if isinstance(event, Error) and event.code == "not_logged_on":
            return self._unknown(event, now_ms)
        if isinstance(event, Error) and event.code == "auth_failed" and self._may_ask_again():
            return []
        return self._answered(event, now_ms)

    def tick(self, now_ms: int) -> list[Effect]:
        """What follows from the time, when nothing waits to be read."""
        silent = (self._silence.look(now_ms) or self._renew) and self.state is State.LIVE
        due_ms = self._due_ms()
        if not silent and (due_ms is None or now_ms < due_ms):
            return []
        if self.state in (State.LOGON_SENT, State.LIVE):
            return self._lose(now_ms)
        self.state, self._deadline_ms = State.CONNECTING, now_ms + CONNECT_MS
        return [Connect()]

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        look_ms = self._silence.wake_ms if self.state is State.LIVE else None
        times = (self._due_ms(), look_ms)
        return min((time for time in times if time is not None), default=None)

    def _due_ms(self) -> int | None:
        """When an answer, or the next step, is due."""
        return self._answer_due_ms() if self.state is State.LIVE else self._deadline_ms

    # -- helpers ------------------------------------------------------------------------------

    def _cid(self) -> str:
        self._cids += 1
        return str(self._cids)

    def _end(self) -> None:
        """Nothing more comes on it, and nothing is sent."""
        self.state, self._deadline_ms = State.ENDED, None

    def _lose(self, now_ms: int) -> list[Effect]:
        """Begins anew with another socket: at once when the link had been good, else later."""
        since_ms, delay_ms, self._renew = self._live_since_ms, 0, False
        if since_ms is not None and now_ms - since_ms >= SETTLED_MS:
            self._reconnect.attempt = 0
        else:
            delay_ms = self._reconnect.next_ms()
        self._broken |= since_ms is not None
        self._note_loss(now_ms)
        self._forget()
        self.state, self._deadline_ms = State.DOWN, now_ms + delay_ms
        return self.tick(now_ms)

    def _note_loss(self, now_ms: int) -> None:
        if self._live_since_ms is not None:
            self._lost_ms = now_ms

    def _counted(self, error: Error, now_ms: int) -> bool:
        """True if that may be for a connection of ours that the broker takes for living."""
        recent = self._lost_ms is not None and now_ms - self._lost_ms < COUNTED_MS
        return recent and error.code in ("too_many", "resource_locked")

    def _log_on(self, now_ms: int) -> list[Effect]:
        self._note_loss(now_ms)
        self._forget()
        self._logon_cid, self._asked_s = self._cid(), self._heartbeat_s
        self.state, self._deadline_ms = State.LOGON_SENT, now_ms + ANSWER_MS
        return [Send(DoorLogon(self._token, self._logon_cid, self._heartbeat_s))]

    def _logged_on(self, ack: Ack, now_ms: int) -> list[Effect]:
        if ack.origin is not None:
            self.own = Origin(*ack.origin)
        self.state, self._deadline_ms, self._tokens_refused = State.LIVE, None, 0
        changed = self._asked_s != self._heartbeat_s
        told: list[Effect] = [Send(Heartbeat(self._heartbeat_s or 0))] if changed else []
        return told + self._begin(now_ms)

    def _unknown(self, error: Error, now_ms: int) -> list[Effect]:
        """The door forgot who this is."""
        if self.state is State.LIVE and self._heartbeat_s is not None:
            return self._lose(now_ms)
        again = self.state is State.LIVE or error.cid == self._logon_cid
        return self._log_on(now_ms) if again else []

    def _may_ask_again(self) -> bool:
        """A token was refused: True if it is worth while to get another one; it is sought then."""
        if self._tokens_refused >= TOKENS_MAX:
            return False
        self._tokens_refused += 1
        self._forget()
        self.state, self._deadline_ms = State.NO_TOKEN, None
        return True
