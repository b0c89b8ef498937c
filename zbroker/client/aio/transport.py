"""What moves the bytes of subscriptions and consumers, in an event loop.

A connection is read whether a task waits for its messages or not: credit bounds a subscription, the
backlog bounds a consumer. The leases of a consumer are extended while tasks work, and what they
settle piles up until its next turn and goes out together. Known weakness: while the loop computes
nothing is extended; a handler that computes for longer than half a lease belongs in a thread.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Final

from zbroker.client.aio.event_loop import LoopLink, Waiters
from zbroker.client.connection import Phase
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.settlement import Verb
from zbroker.client.consumer.transport import ConsumerTransport
from zbroker.client.effects import Effect
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.subscriber.feed import RETURN_MS, Feed
from zbroker.client.subscriber.requests import Asked
from zbroker.client.subscriber.transport import SubscriberTransport, answer_of
from zbroker.errors import ZBrokerError
from zbroker.wire.messages import Ack
from zbroker.wire.queue_messages import Consume

_log: Final = logging.getLogger("zbroker.client")


class AsyncSubscriberPort(SubscriberTransport):
    """A connection, and the tasks that wait for what comes on it."""

    _link: LoopLink

    def __init__(self, doors: ListenerEndpoints, loop: AbstractEventLoop) -> None:
        super().__init__(doors)
        self._loop = loop
        self._lock = nullcontext()  # all of it is called in the loop
        self._error: ZBrokerError | None = None
        self._waiters = Waiters(loop)
        self._begin(LoopLink(doors.connect, self._calls, loop, self._have_turn))

    def asked(self, feed: Feed) -> None:
        """A program waits for more: what it had is handled."""
        super().asked(feed)
        self._link.turns.within(RETURN_MS)

    # -- waiting ------------------------------------------------------------------------------

    async def until(self, done: Callable[[], object], end: float | None) -> bool:
        """Waits until `done()`; False if the time `end` of the loop comes before.

        Raises: ZBrokerError, what ended the client.
        """
        there = await self._waiters.until(lambda: done() or self._error is not None, end)
        if self._error is not None and not done():
            raise self._error
        return there

    async def ask(self, command: Asked, feeds: list[Feed], timeout: float) -> Ack:
        """Has something done to subscriptions of this connection.

        Raises: ZBrokerError with the broker's code, "closed", or "timeout": then it may still come.
        """
        request = self._request(command, feeds)
        await self.until(lambda: request.done, self._loop.time() + timeout)
        return answer_of(request, timeout)

    def look(self) -> None:
        """Has all that wait look again: something was handed out, or has ended."""
        self._waiters.look()

    def _soon(self) -> None:
        self._link.turns.soon()

    # -- the turn -----------------------------------------------------------------------------

    def _have_turn(self) -> None:
        """Reads some answers; if none is left, does what time demands."""
        if not self._ended and self._error is None:
            self._guard(self._run)
            self._waiters.look()

    def _run(self) -> None:
        self._link.rest(self._turn.run(self._link.ready()))

    def _flush(self) -> None:
        self._guard(self._send_calls)

    def _guard(self, work: Callable[[], None]) -> None:
        """Whatever fails in there ends the connection: nothing may wait for what does not come."""
        try:
            work()
        except ZBrokerError as error:  # what ended the client
            self._fail(error)
        except Exception as error:  # a defect of ours
            _log.exception("client.turn_failed: the subscriptions to one connection end")
            self._fail(ZBrokerError("internal", f"a turn of a subscription failed: {error!r}"))

    def _fail(self, error: ZBrokerError) -> None:
        self._error = error
        self._link.shut()

    def _close_if_over(self) -> None:
        if self._ended:
            self._link.shut()


class AsyncConsumerPort(ConsumerTransport):
    """A consumer's connection, and the tasks that wait for what comes on it."""

    _link: LoopLink

    def __init__(self, doors: ListenerEndpoints, command: Consume, loop: AbstractEventLoop) -> None:
        super().__init__(doors, command)
        self._waiters = Waiters(loop)
        self._begin(LoopLink(doors.connect, self._calls, loop, self._have_turn))

    def start(self) -> None:
        """Has the broker asked."""
        self._link.turns.soon()

    # -- what its tasks do --------------------------------------------------------------------

    def settle(self, verb: Verb, messages: Sequence[QueueMessage]) -> None:
        """Notes it, to be sent soon. Raises: ZBrokerError, what ended the consumer."""
        if self.error is not None:
            raise self.error
        self.core.settle(verb, messages, self._doors.now_ms())
        self._link.turns.soon()

    async def take(self, most: int | None, end: float | None) -> list[QueueMessage] | None:
        """The next messages, up to `most` of those that came together.

        Empty if none came before the time `end` of the loop; None if nothing more is handed out.
        Raises: ZBrokerError, what ended the consumer.
        """
        while not self.halted:
            if (messages := self.take_now(most)) or self.over:
                break
            if not await self.until(lambda: self.halted or self.core.ready or self.over, end):
                return []
        if self.halted:
            return None
        error = self.what_ended_it
        if not messages and error is not None:
            raise error
        return messages or None

    def take_now(self, most: int | None) -> list[QueueMessage]:
        """What is there."""
        if self.halted:
            return []
        messages, effects = self.core.hand_out(most, self._doors.now_ms())
        self._do(effects)
        return messages

    async def until(self, done: Callable[[], object], end: float | None) -> bool:
        """Waits until `done()`; False if the time `end` of the loop comes before."""
        return await self._waiters.until(done, end)

    def halt(self) -> None:
        """Nothing more is handed out; what was, can still be settled."""
        self.halted = True
        self._waiters.look()

    def close(self) -> None:
        """Sends what is left, and gives back what is held."""
        self.halted = True
        self._finish()

    def client_ended(self, error: ZBrokerError) -> None:
        """The consumer ends with what ended the client, and so does every wait here."""
        self._finish(error)

    def _finish(self, error: ZBrokerError | None = None) -> None:
        self._do(self._leave(error))
        self._link.shut()
        self._waiters.look()

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats from now on."""
        self._do(self.core.beat_each(interval_s))
        self._link.turns.soon()

    def _do(self, effects: list[Effect]) -> None:
        self._calls.add(effects)
        if effects:
            self._guard(self._send_calls)

    def _send_calls(self) -> None:
        for called in self._calls.take():
            self._turn.hear(called)

    # -- the turn -----------------------------------------------------------------------------

    def _have_turn(self) -> None:
        """Reads some answers, does what time demands, sends what piled up."""
        if self.core.state is not Phase.ENDED and self.error is None:
            self._guard(self._run)
            self._waiters.look()

    def _run(self) -> None:
        wait_ms = self._turn.run(self._link.ready())
        if self.core.state is Phase.ENDED:
            self._link.shut()
        else:
            self._link.rest(wait_ms)

    def _guard(self, work: Callable[[], None]) -> None:
        """Whatever fails in there ends the consumer: nothing may wait for what does not come."""
        try:
            work()
        except ZBrokerError as error:  # what ended the client
            self._fail(error)
        except Exception as error:  # a defect of ours
            _log.exception("client.turn_failed: what is held comes back to the queue")
            self._fail(ZBrokerError("internal", f"a turn of a consumer failed: {error!r}"))

    def _fail(self, error: ZBrokerError) -> None:
        self.error = error
        self._leave()
        self._link.shut()
