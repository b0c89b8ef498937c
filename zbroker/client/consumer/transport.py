"""What both lines of a consumer do with its connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from zbroker.client import transport
from zbroker.client.connection import State
from zbroker.client.consumer.core import ConsumerCore
from zbroker.client.effects import Effect
from zbroker.client.transport import TOKEN_WAIT_MS, now, now_ms
from zbroker.errors import ZBrokerError
from zbroker.limits import STORED_MAX_BYTES
from zbroker.wire.messages import AnyAnswer
from zbroker.wire.queue_messages import AnyQueuesAnswer, Job

T = TypeVar("T")


class Carrying(transport.Carrying):
    """A connection to the queues door, and its link."""

    core: ConsumerCore
    error: ZBrokerError | None  # what ended the client, or the line

    def _take(self, answer: AnyAnswer | AnyQueuesAnswer, body: bytes) -> list[Effect]:
        if type(answer) is Job:
            return self.core.take(answer, body, STORED_MAX_BYTES, now_ms())
        return self.core.handle(answer, now())

    def _do_what_is_due(self) -> None:
        """When nothing waits to be read."""
        if self.core.state is State.NO_TOKEN:
            self._use_newer_session()
        self._perform(self.core.tick(now(), drained=True))

    def _wait_ms(self, most_ms: int) -> int:
        """For how long nothing is due."""
        waits = [most_ms]
        wake_ms = self.core.next_wake_ms()
        if wake_ms is not None:
            waits.append(wake_ms - now_ms())
        if self.core.state is State.NO_TOKEN:
            waits.append(TOKEN_WAIT_MS)
        return max(0, min(waits))

    def look(self, at: Callable[[ConsumerCore], T]) -> T:
        """What `at` says of the core, while nobody changes it."""
        return at(self.core)

    @property
    def over(self) -> bool:
        """Nothing more comes than what waits."""
        core = self.core
        return core.state is State.ENDED or core.ended or self.error is not None

    def _what_ended_it(self) -> ZBrokerError | None:
        return self.core.error or self.error
