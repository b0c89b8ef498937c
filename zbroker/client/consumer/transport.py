"""One consumer's connection to the queues process, whatever waits for its messages."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from zbroker.client.connection import Phase
from zbroker.client.consumer.core import ConsumerCore
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.settlement import Verb
from zbroker.client.effects import Effect
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.ports import Calls, LinkPort, turn_of
from zbroker.errors import ZBrokerError
from zbroker.wire.queue_messages import Consume

T = TypeVar("T")


class ConsumerTransport:
    """The core, its turn, and what both ports do with them."""

    _link: LinkPort

    def __init__(self, doors: ListenerEndpoints, command: Consume) -> None:
        self._doors = doors
        self.core = ConsumerCore(
            command, self, random.Random().random, doors.heartbeat_s, doors.resubscribed
        )
        self.error: ZBrokerError | None = None  # what ended the client, or a defect of this
        self.halted = False  # nothing more is handed out
        self._calls = Calls()

    def _begin(self, link: LinkPort) -> None:
        self._link = link
        self._turn = turn_of(self.core, link, self._calls, self._doors)
        self._doors.follow(self)

    def settle(self, verb: Verb, messages: Sequence[QueueMessage]) -> None:
        """Notes it, to be sent soon. Raises: ZBrokerError, what ended the consumer."""
        raise NotImplementedError

    def look(self, at: Callable[[ConsumerCore], T]) -> T:
        """What `at` says of the core, while nothing changes it."""
        return at(self.core)

    def client_ended(self, error: ZBrokerError) -> None:
        """The consumer ends with what ended the client."""
        raise NotImplementedError

    def beat_each(self, interval_s: float | None) -> None:
        """Another interval of heartbeats from now on."""
        raise NotImplementedError

    def _leave(self, error: ZBrokerError | None = None) -> list[Effect]:
        return self.core.leave(self._doors.now_ms(), error)

    @property
    def over(self) -> bool:
        """Nothing more comes than what waits."""
        core = self.core
        return core.state is Phase.ENDED or core.ended or self.error is not None

    @property
    def what_ended_it(self) -> ZBrokerError | None:
        """None while it goes on, and after `close`."""
        return self.core.error or self.error
