"""What moves the bytes of one consumer, in an event loop.

It reads what comes, whoever waits, and extends leases while tasks work. What they settle piles up
until its next turn and goes out together. Known weakness: while the loop computes nothing is
extended; a handler that computes for longer than half a lease belongs in a thread.
"""

from __future__ import annotations

import logging
import random
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from typing import Final

from zbroker.client.aio.readiness import Watch
from zbroker.client.aio.turns import Turns
from zbroker.client.aio.waiters import Waiters
from zbroker.client.connection import State
from zbroker.client.consumer.core import ConsumerCore
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.settlement import Verb
from zbroker.client.consumer.transport import Carrying
from zbroker.client.effects import Connect, Effect, Send
from zbroker.client.endpoints import Doors
from zbroker.client.link import CLOSE_LINGER_MS, Link
from zbroker.client.transport import now_ms
from zbroker.errors import ZBrokerError
from zbroker.wire.queue_messages import Consume

WAIT_MAX_MS: Final = 3_600_000

_log: Final = logging.getLogger("zbroker.client")


class QueueLine(Carrying):
    """A consumer's connection, its link, and who waits for what comes on it."""

    def __init__(self, doors: Doors, command: Consume, loop: AbstractEventLoop) -> None:
        self._doors = doors
        self._loop = loop
        self.core = self._connection = ConsumerCore(
            command, self, random.Random().random, doors.heartbeat_s, doors.resubscribed
        )
        self.error: ZBrokerError | None = None
        self.halted = False  # nothing more is handed out
        self._link: Link | None = None
        self._watch: Watch | None = None
        self._session = 0
        self._events = False  # the monitor has something
        self._turns = Turns(loop, self._turn)
        self._waiters = Waiters(loop)
        doors.follow(self)

    def start(self) -> None:
        """Has the broker asked."""
        self._turns.soon()

    # -- what its tasks do --------------------------------------------------------------------

    def settle(self, verb: Verb, messages: Sequence[QueueMessage]) -> None:
        """Notes it, to be sent soon. Raises: ZBrokerError, what ended the consumer."""
        if self.error is not None:
            raise self.error
        self.core.settle(verb, messages, now_ms())
        self._turns.soon()

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
        error = self._what_ended_it()
        if not messages and error is not None:
            raise error
        return messages or None

    def take_now(self, most: int | None) -> list[QueueMessage]:
        """What is there."""
        if self.halted:
            return []
        messages, effects = self.core.hand_out(most, now_ms())
        self._perform(effects)
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
        self.halt()
        self._perform(self.core.leave(now_ms()))
        self._shut()
        self._waiters.look()

    def client_ended(self, error: ZBrokerError) -> None:
        """The consumer ends with what ended the client, and whoever waits here is told."""
        self._perform(self.core.leave(now_ms(), error))
        self._shut()
        self._waiters.look()

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats from now on."""
        self._perform(self.core.beat_each(interval_s))
        self._turns.soon()

    # -- the turn -----------------------------------------------------------------------------

    def _turn(self) -> None:
        """Reads some answers, does what time demands, sends what piled up."""
        if self.core.state is State.ENDED or self.error is not None:
            return
        try:
            _, more = self._read()
            if not more:
                self._do_what_is_due()
                self._look_at_events()
            self._perform(self.core.due(now_ms()))
        except ZBrokerError as error:  # what ended the client
            self._fail(error)
        except Exception as error:  # a bug of ours: nobody may wait for what does not come
            _log.exception("client.turn_failed: what is held comes back to the queue")
            self._fail(ZBrokerError("internal", f"a turn of a consumer failed: {error!r}"))
        else:
            self._rest(more=more)
        self._waiters.look()

    def _look_at_events(self) -> None:
        if self._link is not None and self._events:
            self._events = False
            self._read_events(self._link)

    def _rest(self, *, more: bool) -> None:
        """Sets when the next turn is."""
        if self.core.state is State.ENDED:
            self._shut()
        elif more:
            self._turns.soon()
        else:
            self._turns.within(self._wait_ms(WAIT_MAX_MS))

    # -- effects ------------------------------------------------------------------------------

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Connect):
                self._unlink(0)
                self._link = self._doors.connect()
                self._watch = Watch(self._loop, self._link, self._turn, self._monitored)
                self._monitored()
            elif isinstance(effect, Send) and self._link is not None:
                self._link.send(effect.command, effect.body)
                self._turns.soon()  # to read again: see readiness.py

    def _monitored(self) -> None:
        self._events = True
        self._turns.soon()

    def _fail(self, error: ZBrokerError) -> None:
        self.error = error
        self.core.leave(now_ms())
        self._shut()

    def _shut(self) -> None:
        self._unlink(CLOSE_LINGER_MS)
        self._turns.close()

    def _unlink(self, linger_ms: int) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._link is not None:
            self._link.close(linger_ms)
            self._link = None
