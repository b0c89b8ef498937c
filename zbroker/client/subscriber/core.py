"""One connection to the delivery listener and the subscriptions that share it. No I/O.

How it comes about and is kept: see ../connection.py. When it is live each subscription is asked
for, as it was before: see feed.py. Most connections have one subscription; those that are resumed
together share one, because the broker combines only what goes to the same connection.
"""

from __future__ import annotations

from collections.abc import Callable

from zbroker.client import message as messages
from zbroker.client.connection import ANSWER_MS, Phase, TokenConnection
from zbroker.client.effects import Effect, Event, MessagesArrived, SendCommand, raised
from zbroker.client.subscriber.feed import Feed, FeedState, Item
from zbroker.client.subscriber.requests import Asked, SubscriptionRequest, SubscriptionRequests
from zbroker.errors import TEMPORARY, ZBrokerError
from zbroker.ids import NOW, Origin, format_vector
from zbroker.limits import STORED_MAX_BYTES
from zbroker.wire.bodies import credit_bytes
from zbroker.wire.messages import Ack, Error, Logoff, Msg, RangeList, Unsubscribe


class SubscriberCore(TokenConnection):
    """The subscriptions of one link to the delivery listener."""

    def __init__(
        self,
        jitter: Callable[[], float],
        heartbeat_s: float | None = None,
        on_resubscribed: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(jitter, heartbeat_s)
        self.feeds: dict[str, Feed] = {}
        self.requests = SubscriptionRequests()
        self._sids = self._arrivals = 0
        self._asked: dict[str, Feed] = {}  # by the cid of the question that is open
        self._owing: dict[str, Feed] = {}  # by sid, those that may have credit to give back
        self._on_resubscribed = on_resubscribed  # called when all are live again after a loss

    # -- what it carries ----------------------------------------------------------------------

    def add(self, feed: Feed, now_ms: int, credit_max: int) -> list[Effect]:
        """One more subscription, which has no other connection any more."""
        self._sids += 1
        feed.moved(f"s{self._sids}", credit_max)
        self.feeds[feed.sid] = feed
        live = self.state is Phase.LIVE and feed.state is not FeedState.ENDED
        return self._ask(feed, now_ms) if live else []

    def remove(self, feed: Feed) -> list[Effect]:
        """One less. With the last one the connection ends."""
        if self.feeds.get(feed.sid) is not feed:
            return []  # it is gone, or elsewhere
        del self.feeds[feed.sid]
        self.requests.ended(feed)
        live = self.state is Phase.LIVE
        if self.feeds:
            known = live and feed.state is not FeedState.ENDED
            return [SendCommand(Unsubscribe(feed.sid))] if known else []
        self._stop()
        self.requests.over()
        return [SendCommand(Logoff())] if live else []

    def client_ended(self, error: ZBrokerError, now_ms: int) -> list[Effect]:
        """Its subscriptions end with `error`, after what came in."""
        for feed in self.feeds.values():
            feed.fail(error)
        self.requests.over(error)
        self._stop()
        return []

    def ask(self, command: Asked, feeds: list[Feed]) -> tuple[SubscriptionRequest, list[Effect]]:
        """Has something done to subscriptions of this connection, now or when they are live.

        Raises: ZBrokerError too_many.
        """
        request = self.requests.add(command, feeds)
        request.without()
        return request, self._send_requests()

    # -- answers that carry a body ------------------------------------------------------------

    def _arrived(self, event: MessagesArrived, now_ms: int) -> list[Effect]:
        """Puts what is new in a batch into the inbox of its subscription."""
        msg, body = event.answer, event.body
        assert isinstance(msg, Msg), "the queues process has another connection"
        feed = self.feeds.get(msg.sid)
        if feed is None or feed.state is FeedState.ENDED:
            return []
        try:
            batch = messages.decode(msg, body, self.own, STORED_MAX_BYTES, feed.use)
        except ZBrokerError as error:
            self._fail(feed, error)
            return [SendCommand(Unsubscribe(feed.sid))]
        self._arrivals += 1
        effects: list[Effect] = [
            *feed.receive(batch, credit_bytes(body, msg.columns), self._arrivals)
        ]
        self._look(feed)
        return effects

    # -- credit -------------------------------------------------------------------------------

    def hand_out(self, feed: Feed, now_ms: int) -> tuple[Item, list[Effect]]:
        """The next item of a subscription, whose inbox is not empty."""
        item, effects = feed.hand_out(now_ms)
        self._owing[feed.sid] = feed
        return item, [*effects]

    def asked(self, feed: Feed, now_ms: int) -> list[Effect]:
        """A program asks for more, and nothing is there: it is done with what it had."""
        self._owing[feed.sid] = feed
        return [*feed.asked(now_ms)]

    def _pass_time(self, now_ms: int) -> list[Effect]:
        """Also gives back the credit that was kept for a while."""
        effects = super()._pass_time(now_ms)
        for sid, feed in list(self._owing.items()):
            due_ms = feed.return_ms
            if due_ms is None or self.feeds.get(sid) is not feed:
                del self._owing[sid]
            elif now_ms >= due_ms:
                effects += feed.give_back(now_ms)
        return effects

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        times = [super().next_wake_ms(), *(feed.return_ms for feed in self._owing.values())]
        return min((time for time in times if time is not None), default=None)

    # -- connecting ---------------------------------------------------------------------------

    def _answer_due_ms(self) -> int | None:
        times = (feed.deadline_ms for feed in self.feeds.values())
        return min((time for time in times if time is not None), default=None)

    def _forget(self, now_ms: int) -> list[Effect]:
        self._asked.clear()
        self.requests.lost()
        for feed in self.feeds.values():
            feed.lost()
        return super()._forget(now_ms)

    def _begin(self, now_ms: int) -> list[Effect]:
        self.requests.again(self.feeds.values())
        wanted = [feed for feed in self.feeds.values() if feed.state is not FeedState.ENDED]
        return [effect for feed in wanted for effect in self._ask(feed, now_ms)]

    # -- asking for subscriptions -------------------------------------------------------------

    def _ask(self, feed: Feed, now_ms: int) -> list[Effect]:
        cid = self._cid()
        self._asked[cid] = feed
        feed.deadline_ms = now_ms + ANSWER_MS + int(feed.wait_s * 1_000)
        if end := feed.ends.unfixed:
            return [SendCommand(feed.ask_end(cid, end))]
        paused = feed.paused or bool(self.requests.group_of(feed))
        return [SendCommand(feed.ask(cid, self.requests.point_of(feed), paused=paused))]

    def _resolved(self, ranges: RangeList, now_ms: int) -> list[Effect]:
        """The end is a moment: the same one after each reconnect."""
        feed = self._asked.pop(ranges.cid or "", None)
        if feed is None or feed.state is not FeedState.RESOLVING:
            return []
        here = Origin(ranges.instance, ranges.generation)
        end = ranges.persisted if feed.ends.unfixed == NOW else ranges.first
        feed.ends.resolve(ranges.vector or format_vector({here: end - 1}))
        return self._ask(feed, now_ms)

    def _subscribed(self, feed: Feed, ack: Ack, now_ms: int) -> list[Effect]:
        own = self.own if ack.origin is None else Origin(*ack.origin)
        effects: list[Effect] = [*feed.subscribed(ack, own)]
        there = all(one.deadline_ms is None for one in self.feeds.values())
        if there and self._is_back(now_ms) and self._on_resubscribed is not None:
            self._on_resubscribed()
        return effects + self._send_requests()

    def _send_requests(self) -> list[Effect]:
        if self.state is not Phase.LIVE:
            return []
        return [self.requests.sent(one, self._cid()) for one in self.requests.due()]

    # -- answers ------------------------------------------------------------------------------

    def _replied(self, event: Event, now_ms: int) -> list[Effect]:
        if isinstance(event, Ack):
            return self._acked(event, now_ms)
        if isinstance(event, Error):
            refused = self.requests.refused(event)
            return self._send_requests() if refused else self._on_error(event, now_ms)
        return self._resolved(event, now_ms) if isinstance(event, RangeList) else []

    def _acked(self, ack: Ack, now_ms: int) -> list[Effect]:
        if ack.type == "processed" and ack.cid is not None:
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

    def _on_error(self, error: Error, now_ms: int) -> list[Effect]:
        """A refusal of a subscription, or of the connection as a whole."""
        feed = self._asked.pop(error.cid or "", None) or self.feeds.get(error.sid or "")
        whole = error.cid == self._logon_cid or (error.cid is None and error.sid is None)
        if feed is None and not whole:
            return []  # about something that is over
        about = [feed] if feed is not None else list(self.feeds.values())
        was_there = any(one.accepted for one in about)
        if error.code in TEMPORARY or (was_there and self._passes(error, now_ms)):
            return self._lose(now_ms)
        for one in about:
            self._fail(one, raised(error))
        return self._send_requests()

    def _fail(self, feed: Feed, error: ZBrokerError) -> None:
        feed.fail(error)
        self._look(feed)

    def _look(self, feed: Feed) -> None:
        """Requests about a subscription that has ended are not answered any more."""
        if feed.state is FeedState.ENDED:
            self.requests.ended(feed)
