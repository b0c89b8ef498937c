"""One connection to the delivery door and the subscriptions that share it. No I/O.

    DOWN --time--> CONNECTING --Connected--> LOGON_SENT --processed--> LIVE --close--> ENDED
      ^                                                                  |
      +--- Lost, silence, no answer in time, not_ready: any state -------+
    LOGON_SENT --auth_failed--> NO_TOKEN --use(session)--> DOWN      not_logged_on: LOGON_SENT again

Silence: see heartbeats.py. The door is asked for heartbeats and gets none from here: whoever reads
may be busy with a message for hours, and the PINGs of libzmq are proof enough. So `not_logged_on`
where heartbeats were asked for means that nothing of ours arrives: that takes a new connection.

When it is live each subscription is asked for, as it was before: see feed.py. Most connections have
one subscription; those that are resumed together share one, because the broker combines only what
goes to the same connection.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from zbroker.client import message as messages
from zbroker.client.effects import (
    Backoff,
    Connect,
    Connected,
    Event,
    Lost,
    Send,
    Unreached,
    raised,
)
from zbroker.client.publishing.core import CONNECT_MS, RECONNECT_MS, SETTLED_MS
from zbroker.client.subscribing.feed import Feed
from zbroker.client.subscribing.feed import State as FeedState
from zbroker.client.subscribing.requests import Asked, Request, Requests
from zbroker.errors import TEMPORARY, ZBrokerError
from zbroker.heartbeats import Silence
from zbroker.ids import NOW, Origin, format_vector
from zbroker.wire.bodies import credit_bytes
from zbroker.wire.messages import (
    Ack,
    DoorLogon,
    Error,
    Logoff,
    Msg,
    RangeList,
    Ranges,
    Unsubscribe,
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
    LIVE = "live"
    ENDED = "ended"


class Connection:
    """The subscriptions of one link to the delivery door."""

    def __init__(
        self,
        jitter: Callable[[], float],
        heartbeat_s: float | None = None,
        on_resubscribed: Callable[[], None] | None = None,
    ) -> None:
        self.state = State.NO_TOKEN
        self.own = Origin(0, 0)  # of positions that name no origin
        self.feeds: dict[str, Feed] = {}
        self.requests = Requests()
        self._token = ""
        self._tokens_refused = 0
        self._cids = self._sids = self._arrivals = 0
        self._logon_cid = ""
        self._asked: dict[str, Feed] = {}  # by the cid of the question that is open
        self._deadline_ms: int | None = None
        self._live_since_ms: int | None = None  # all of its subscriptions
        self._reconnect = Backoff(RECONNECT_MS, jitter)
        self._heartbeat_s = heartbeat_s
        self._silence = Silence(heartbeat_s)
        self._on_resubscribed = on_resubscribed  # told when all are live again after a loss
        self._broken = False

    def use(self, token: str, origin: Origin, now_ms: int) -> list[Effect]:
        """In NO_TOKEN: a token for the door, and the origin of positions that name none."""
        self._token, self.own = token, origin
        self.state, self._deadline_ms = State.DOWN, now_ms
        return self.tick(now_ms)

    # -- what it carries ----------------------------------------------------------------------

    def add(self, feed: Feed, now_ms: int, credit_max: int) -> list[Effect]:
        """One more subscription, which has no other connection any more."""
        self._sids += 1
        feed.moved(f"s{self._sids}", credit_max)
        self.feeds[feed.sid] = feed
        live = self.state is State.LIVE and feed.state is not FeedState.ENDED
        return self._ask(feed, now_ms) if live else []

    def remove(self, feed: Feed) -> list[Effect]:
        """One less. With the last one the connection ends."""
        if self.feeds.get(feed.sid) is not feed:
            return []  # it is gone, or elsewhere
        del self.feeds[feed.sid]
        self.requests.ended(feed)
        live = self.state is State.LIVE
        if self.feeds:
            known = live and feed.state is not FeedState.ENDED
            return [Send(Unsubscribe(feed.sid))] if known else []
        self.state, self._deadline_ms = State.ENDED, None
        self.requests.over()
        return [Send(Logoff())] if live else []

    def ask(self, command: Asked, feeds: list[Feed]) -> tuple[Request, list[Effect]]:
        """Has something done to subscriptions of this connection, now or when they are live.

        Raises: ZBrokerError too_many.
        """
        request = self.requests.add(command, feeds)
        request.without()
        return request, self._send_requests()

    # -- the three methods, and what carries a body -------------------------------------------

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """What follows from an answer or an event of the socket. Batches go to `take`."""
        if self.state is State.ENDED:
            return []
        if isinstance(event, Connected):
            return self._log_on(now_ms) if self.state is State.CONNECTING else []
        if isinstance(event, Unreached):
            return []  # there is one delivery door, and the socket tries it again
        if isinstance(event, Lost):
            idle = self.state in (State.NO_TOKEN, State.DOWN, State.CONNECTING)
            return [] if idle else self._lose(now_ms)
        self._silence.fresh = True
        if isinstance(event, Ack):
            return self._acked(event, now_ms)
        if isinstance(event, Error):
            return self._failed(event, now_ms)
        return self._resolved(event, now_ms) if isinstance(event, RangeList) else []

    def tick(self, now_ms: int) -> list[Effect]:
        """What follows from the time, when nothing waits to be read."""
        silent = self._silence.look(now_ms) and self.state is State.LIVE
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
        if self.state is not State.LIVE:
            return self._deadline_ms
        times = (feed.deadline_ms for feed in self.feeds.values())
        return min((time for time in times if time is not None), default=None)

    def take(self, msg: Msg, body: bytes, body_max: int) -> list[Effect]:
        """Puts what is new in a batch into the inbox of its subscription."""
        self._silence.fresh = True
        feed = self.feeds.get(msg.sid)
        if feed is None or feed.state is FeedState.ENDED:
            return []
        try:
            batch = messages.decode(msg, body, self.own, body_max)
        except ZBrokerError as error:
            self._end(feed, error)
            return [Send(Unsubscribe(feed.sid))]
        self._arrivals += 1
        effects: list[Effect] = [
            *feed.receive(batch, credit_bytes(body, msg.columns), self._arrivals)
        ]
        self._look(feed)
        return effects

    # -- connecting ---------------------------------------------------------------------------

    def _cid(self) -> str:
        self._cids += 1
        return str(self._cids)

    def _lose(self, now_ms: int) -> list[Effect]:
        """Begins anew with another socket: at once when the link had been good, else later."""
        since_ms, delay_ms = self._live_since_ms, 0
        if since_ms is not None and now_ms - since_ms >= SETTLED_MS:
            self._reconnect.attempt = 0
        else:
            delay_ms = self._reconnect.next_ms()
        self._broken |= since_ms is not None
        self._forget()
        self.state, self._deadline_ms = State.DOWN, now_ms + delay_ms
        return self.tick(now_ms)

    def _forget(self) -> None:
        """The broker knows nothing of this connection any more."""
        self._asked.clear()
        self.requests.lost()
        self._live_since_ms = None
        for feed in self.feeds.values():
            feed.lost()

    def _log_on(self, now_ms: int) -> list[Effect]:
        self._forget()
        self._logon_cid = self._cid()
        self.state, self._deadline_ms = State.LOGON_SENT, now_ms + ANSWER_MS
        return [Send(DoorLogon(self._token, self._logon_cid, self._heartbeat_s))]

    def _logged_on(self, ack: Ack, now_ms: int) -> list[Effect]:
        if ack.origin is not None:
            self.own = Origin(*ack.origin)
        self.state, self._deadline_ms, self._tokens_refused = State.LIVE, None, 0
        self.requests.again(self.feeds.values())
        effects: list[Effect] = []
        for feed in self.feeds.values():
            if feed.state is not FeedState.ENDED:
                effects += self._ask(feed, now_ms)
        return effects

    # -- asking for subscriptions -------------------------------------------------------------

    def _ask(self, feed: Feed, now_ms: int) -> list[Effect]:
        cid = self._cid()
        self._asked[cid] = feed
        feed.deadline_ms = now_ms + ANSWER_MS + int(feed.wait_s * 1_000)
        if feed.ends.at_now:
            feed.state = FeedState.RESOLVING
            return [Send(Ranges(cid, bookmark=NOW))]
        paused = feed.paused or bool(self.requests.group_of(feed))
        return [Send(feed.ask(cid, self.requests.behind(feed), paused=paused))]

    def _resolved(self, ranges: RangeList, now_ms: int) -> list[Effect]:
        """Now is a moment: the same one after each reconnect."""
        feed = self._asked.pop(ranges.cid or "", None)
        if feed is None or feed.state is not FeedState.RESOLVING:
            return []
        here = Origin(ranges.instance, ranges.generation)
        feed.ends.resolve(format_vector({here: ranges.persisted - 1}))
        return self._ask(feed, now_ms)

    def _subscribed(self, feed: Feed, ack: Ack, now_ms: int) -> list[Effect]:
        effects: list[Effect] = [*feed.subscribed(ack, self.own)]
        if all(one.deadline_ms is None for one in self.feeds.values()):
            self._live_since_ms = now_ms
            if self._broken and self._on_resubscribed is not None:
                self._on_resubscribed()
            self._broken = False
        return effects + self._send_requests()

    def _send_requests(self) -> list[Effect]:
        if self.state is not State.LIVE:
            return []
        return [self.requests.sent(one, self._cid()) for one in self.requests.due()]

    # -- answers ------------------------------------------------------------------------------

    def _acked(self, ack: Ack, now_ms: int) -> list[Effect]:
        if ack.type == "processed" and ack.cid is not None:
            if self.state is State.LOGON_SENT:
                return self._logged_on(ack, now_ms) if ack.cid == self._logon_cid else []
            feed = self._asked.pop(ack.cid, None)
            if feed is not None and feed.state is FeedState.SUBSCRIBED:
                return self._subscribed(feed, ack, now_ms)
            self.requests.answered(ack, self.own)
            return []
        feed = self.feeds.get(ack.sid or "")
        if feed is not None and feed.state is FeedState.LIVE:
            feed.noted(ack)
            self._look(feed)
        return []

    def _failed(self, error: Error, now_ms: int) -> list[Effect]:
        if error.code == "not_logged_on":
            if self.state is State.LIVE and self._heartbeat_s is not None:
                return self._lose(now_ms)
            again = self.state is State.LIVE or error.cid == self._logon_cid
            return self._log_on(now_ms) if again else []
        if error.code == "auth_failed" and self._tokens_refused < TOKENS_MAX:
            self._tokens_refused += 1
            self._forget()
            self.state, self._deadline_ms = State.NO_TOKEN, None
            return []
        if self.requests.refused(error):
            return self._send_requests()
        return self._told_of(error, now_ms)

    def _told_of(self, error: Error, now_ms: int) -> list[Effect]:
        """A refusal of a subscription, or of the connection as a whole."""
        feed = self._asked.pop(error.cid or "", None) or self.feeds.get(error.sid or "")
        whole = error.cid == self._logon_cid or (error.cid is None and error.sid is None)
        if feed is None and not whole:
            return []  # about something that is over
        if error.code in TEMPORARY:
            return self._lose(now_ms)
        for one in [feed] if feed is not None else list(self.feeds.values()):
            self._end(one, raised(error))
        return self._send_requests()

    def _end(self, feed: Feed, error: ZBrokerError) -> None:
        feed.fail(error)
        self._look(feed)

    def _look(self, feed: Feed) -> None:
        """What is open about a subscription that has ended is not answered any more."""
        if feed.state is FeedState.ENDED:
            self.requests.ended(feed)
