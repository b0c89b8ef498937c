"""One subscription's link: decides when to connect, from where to resume, what is new. No I/O.

    DOWN --time--> CONNECTING --Connected--> LOGON_SENT --processed--> SUBSCRIBED -processed-> LIVE
      ^            (until="now": RESOLVING between the two, once)                               |
      +------------ Lost, no answer in time, not_ready: from any state -------------------------+
    LOGON_SENT --auth_failed--> NO_TOKEN --use(session)--> DOWN      not_logged_on: LOGON_SENT again
    any --completed behind `until`, an error of the sid--> ENDED

What was seen is a vector; a resumed subscription starts behind it, and what comes again all the
same is dropped by its position, so no message is missing and none comes twice. Messages that are
not recorded have no position: they are handed out as they come.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from zbroker.client.core import CONNECT_MS, RECONNECT_MS, SETTLED_MS
from zbroker.client.effects import Backoff, Connect, Connected, Event, Lost, Send
from zbroker.client.message import Message
from zbroker.clock import is_time
from zbroker.errors import TEMPORARY, ZBrokerError
from zbroker.ids import NOW, Origin, format_vector, is_vector, parse_vector
from zbroker.wire.messages import (
    Ack,
    DoorLogon,
    Error,
    Flow,
    Logoff,
    RangeList,
    Ranges,
    Subscribe,
)

ANSWER_MS: Final = 15_000  # delivery waits ten seconds for its journal, then says so
TOKENS_MAX: Final = 3  # refused one after the other: it is not about their age

Effect = Connect | Send


class State(Enum):
    """See the picture above."""

    NO_TOKEN = "no_token"
    DOWN = "down"
    CONNECTING = "connecting"
    LOGON_SENT = "logon_sent"
    RESOLVING = "resolving"
    SUBSCRIBED = "subscribed"
    LIVE = "live"
    ENDED = "ended"


class Feed:
    """One subscription. `subscribe` says what is wanted; its bookmark is where it starts first."""

    def __init__(self, subscribe: Subscribe, jitter: Callable[[], float]) -> None:
        self.state = State.NO_TOKEN
        self.error: ZBrokerError | None = None
        self.caught_up = False
        self.own = Origin(0, 0)  # of positions that name no origin
        self.dropped = 0  # unrecorded messages that the broker could not send for lack of credit
        bookmark = subscribe.bookmark or NOW
        self.seen: dict[Origin, int] = parse_vector(bookmark) if is_vector(bookmark) else {}
        self._timed = is_time(bookmark)
        self._dropped_before = 0  # of them on earlier connections
        self._subscribe = subscribe
        if subscribe.unrecorded is None:  # said once: to resume takes a bookmark
            subscribe.unrecorded = subscribe.bookmark is None and subscribe.until is None
        self._credit = subscribe.credit
        self._used = 0
        self._token = ""
        self._tokens_refused = 0
        self._cids = 0
        self._deadline_ms: int | None = None
        self._live_since_ms = 0
        self._reconnect = Backoff(RECONNECT_MS, jitter)

    def use(self, token: str, origin: Origin, now_ms: int) -> list[Effect]:
        """In NO_TOKEN: a token for the door, and the origin of positions that name none."""
        self._token, self.own = token, origin
        self.state, self._deadline_ms = State.DOWN, now_ms
        return self.tick(now_ms)

    # -- the three methods --------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """What follows from an answer or an event of the socket. Batches go to `take`."""
        if self.state is State.ENDED:
            return []
        if isinstance(event, Connected):
            return self._log_on(now_ms) if self.state is State.CONNECTING else []
        if isinstance(event, Lost):
            return self._lose(now_ms) if self.state not in (State.DOWN, State.CONNECTING) else []
        if isinstance(event, Ack):
            return self._acked(event, now_ms)
        if isinstance(event, Error):
            return self._failed(event, now_ms)
        if isinstance(event, RangeList) and self.state is State.RESOLVING:
            return self._resolved(event, now_ms)
        return []

    def tick(self, now_ms: int) -> list[Effect]:
        """What follows from the time."""
        if self._deadline_ms is None or now_ms < self._deadline_ms:
            return []
        if self.state in (State.LOGON_SENT, State.RESOLVING, State.SUBSCRIBED):
            return self._lose(now_ms)
        self.state, self._deadline_ms = State.CONNECTING, now_ms + CONNECT_MS
        return [Connect()]

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._deadline_ms

    def take(self, messages: list[Message], body_bytes: int) -> tuple[list[Message], list[Effect]]:
        """Those of a batch that are new, and the credit to give back for it."""
        effects = self._give_back(body_bytes)
        if self.state is not State.LIVE:
            return [], effects
        if not messages[0].recorded:
            return messages, effects
        origin = messages[0].origin
        seen = self.seen.get(origin, 0)
        if messages[0].position <= seen:
            messages = [message for message in messages if message.position > seen]
        if messages:
            last = messages[-1].position
            assert last > seen, "positions of one origin rise"
            self.seen[origin] = last
        return messages, effects

    def close(self) -> list[Effect]:
        """Ends the subscription from this side."""
        told = self.state in (State.LIVE, State.SUBSCRIBED)
        self.state, self._deadline_ms = State.ENDED, None
        return [Send(Logoff())] if told else []

    # -- helpers ------------------------------------------------------------------------------

    def _cid(self) -> str:
        self._cids += 1
        return str(self._cids)

    def _lose(self, now_ms: int) -> list[Effect]:
        delay_ms = 0
        if self.state is State.LIVE and now_ms - self._live_since_ms >= SETTLED_MS:
            self._reconnect.attempt = 0
        else:
            delay_ms = self._reconnect.next_ms()
        self.state, self._deadline_ms = State.DOWN, now_ms + delay_ms
        return self.tick(now_ms)

    def _log_on(self, now_ms: int) -> list[Effect]:
        self.state, self._deadline_ms = State.LOGON_SENT, now_ms + ANSWER_MS
        return [Send(DoorLogon(self._token, cid=self._cid()))]

    def _acked(self, ack: Ack, now_ms: int) -> list[Effect]:
        if ack.type == "processed" and ack.cid == str(self._cids):
            if self.state is State.LOGON_SENT:
                return self._logged_on(ack, now_ms)
            if self.state is State.SUBSCRIBED:
                self._subscribed(ack, now_ms)
        elif self.state is State.LIVE and ack.sid == self._subscribe.sid:
            self._noted(ack)
        return []

    def _logged_on(self, ack: Ack, now_ms: int) -> list[Effect]:
        if ack.origin is not None:
            self.own = Origin(*ack.origin)
        self._used, self._tokens_refused = 0, 0
        if self._subscribe.until == "now":
            self.state, self._deadline_ms = State.RESOLVING, now_ms + ANSWER_MS
            return [Send(Ranges(self._cid(), bookmark=NOW))]
        return self._ask(now_ms)

    def _resolved(self, ranges: RangeList, now_ms: int) -> list[Effect]:
        """Now is a moment: the same one after each reconnect."""
        here = Origin(ranges.instance, ranges.generation)
        self._subscribe.until = format_vector({here: ranges.persisted - 1})
        return self._ask(now_ms)

    def _ask(self, now_ms: int) -> list[Effect]:
        self.state, self._deadline_ms = State.SUBSCRIBED, now_ms + ANSWER_MS
        self._dropped_before = self.dropped
        self._subscribe.cid = self._cid()
        if self.seen:
            self._subscribe.bookmark = format_vector(self.seen)
        return [Send(self._subscribe)]

    def _subscribed(self, ack: Ack, now_ms: int) -> None:
        """The answer's position is the first that may come: a resume point before any message.

        A start at a time stays one until something came: the time may be in the future.
        """
        self.state, self._deadline_ms, self._live_since_ms = State.LIVE, None, now_ms
        self._credit = ack.credit or self._subscribe.credit
        if ack.position and not self.seen and not self._timed:
            self.seen[self.own] = ack.position - 1

    def _noted(self, ack: Ack) -> None:
        """`completed`, `dropped`, and marks that let one advance to which little is sent."""
        self.dropped = max(self.dropped, self._dropped_before + ack.dropped)
        if ack.vector is not None and (self.seen or not self._timed):
            for origin, position in parse_vector(ack.vector).items():
                self.seen[origin] = max(position, self.seen.get(origin, 0))
        if ack.type == "completed":
            self.caught_up = True
            if self._subscribe.until is not None:
                self.state = State.ENDED

    def _failed(self, error: Error, now_ms: int) -> list[Effect]:
        if error.code == "not_logged_on" and self.state is not State.LOGON_SENT:
            return self._log_on(now_ms)
        if error.code == "auth_failed" and self._tokens_refused < TOKENS_MAX:
            self._tokens_refused += 1
            self.state, self._deadline_ms = State.NO_TOKEN, None
            return []
        if error.code in TEMPORARY:
            return self._lose(now_ms)
        self.state, self._deadline_ms = State.ENDED, None
        self.error = ZBrokerError(error.code, error.reason, error.hint)
        return []

    def _give_back(self, body_bytes: int) -> list[Effect]:
        """Credit is returned when half of it is used: few small commands, and it never runs dry."""
        self._used += body_bytes
        if self._used * 2 < self._credit:
            return []
        used, self._used = self._used, 0
        return [Send(Flow(self._subscribe.sid, used))]
