"""One connection to the delivery process, whatever waits for the messages on it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from zbroker.client.connection import Phase
from zbroker.client.effects import Effect
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.ports import Calls, LinkPort, turn_of
from zbroker.client.subscriber.core import SubscriberCore
from zbroker.client.subscriber.feed import Feed, Item
from zbroker.client.subscriber.requests import Asked, SubscriptionRequest
from zbroker.errors import ZBrokerError
from zbroker.limits import CREDIT_MAX_BYTES
from zbroker.wire.messages import Ack


class SubscriberTransport:
    """The core, its turn, and what both ports do with them."""

    _lock: AbstractContextManager[Any]  # may be taken again by its owner
    _link: LinkPort

    def __init__(self, doors: ListenerEndpoints) -> None:
        self._doors = doors
        self._core = SubscriberCore(random.Random().random, doors.heartbeat_s, doors.resubscribed)
        self._calls = Calls()

    def _begin(self, link: LinkPort) -> None:
        self._link = link
        self._turn = turn_of(self._core, link, self._calls, self._doors)
        self._doors.follow(self)

    # -- what a port adds ---------------------------------------------------------------------

    def _flush(self) -> None:
        """Performs what calls decided, now or soon."""
        raise NotImplementedError

    def _close_if_over(self) -> None:
        """Closes the link if the connection has ended."""
        raise NotImplementedError

    def look(self) -> None:
        """Has all that wait look again: something was handed out, or has ended."""
        raise NotImplementedError

    def _soon(self) -> None:
        """Has a turn soon, if something here has turns now."""
        raise NotImplementedError

    # -- subscriptions ------------------------------------------------------------------------

    def add(self, feed: Feed, credit_max: int = CREDIT_MAX_BYTES) -> None:
        """Takes a subscription; the broker is asked for it in a turn."""
        with self._lock:
            self._do(self._core.add(feed, self._doors.now_ms(), credit_max))
            self._soon()

    def leave(self, feed: Feed) -> None:
        """Lets a subscription go. The last one takes the link with it."""
        with self._lock:
            self._do(self._core.remove(feed))
            self._close_if_over()
            self.look()

    def client_ended(self, error: ZBrokerError) -> None:
        """Its subscriptions end with what ended the client."""
        with self._lock:
            self._core.client_ended(error)
            self._close_if_over()
            self.look()

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats from now on."""
        with self._lock:
            self._do(self._core.beat_each(interval_s))
            self._soon()

    def hand_out(self, feed: Feed) -> Item:
        """The next item of an inbox that is not empty."""
        with self._lock:
            item, effects = self._core.hand_out(feed, self._doors.now_ms())
            self._do(effects)
            return item

    def asked(self, feed: Feed) -> None:
        """A program waits for more: what it had is handled."""
        with self._lock:
            self._do(self._core.asked(feed, self._doors.now_ms()))

    def combined_with(self, feed: Feed) -> list[Feed]:
        """Those that share one replay with it, itself among them; empty if it has its own."""
        with self._lock:
            return list(self._core.requests.group_of(feed))

    def _request(self, command: Asked, feeds: list[Feed]) -> SubscriptionRequest:
        request, effects = self._core.ask(command, feeds)
        self._do(effects)
        return request

    def _do(self, effects: Iterable[Effect]) -> None:
        if effects:
            self._calls.add(effects)
            self._flush()

    def _send_calls(self) -> None:
        for called in self._calls.take():
            self._turn.hear(called)

    @property
    def _ended(self) -> bool:
        return self._core.state is Phase.ENDED


def answer_of(request: SubscriptionRequest, timeout: float) -> Ack:
    """What was answered in time. Raises: ZBrokerError with the broker's code, "timeout"."""
    if request.error is not None:
        raise request.error
    if request.answer is None:
        raise ZBrokerError("timeout", f"delivery gave no answer in {timeout} s")
    return request.answer
