"""What both lines do with their connection: the one of threads, and the one of an event loop."""

from __future__ import annotations

from zbroker.client import transport
from zbroker.client.effects import Effect
from zbroker.client.subscriber.core import SubscriberCore
from zbroker.client.subscriber.requests import Request
from zbroker.client.transport import TOKEN_WAIT_MS, now, now_ms
from zbroker.errors import ZBrokerError
from zbroker.limits import STORED_MAX_BYTES
from zbroker.wire.messages import Ack, AnyAnswer, Msg
from zbroker.wire.queue_messages import AnyQueuesAnswer

__all__ = ["TOKEN_WAIT_MS", "Carrying", "answer_of", "now", "now_ms"]


class Carrying(transport.Carrying):
    """A connection to the delivery door, and its link."""

    _connection: SubscriberCore

    def _take(self, answer: AnyAnswer | AnyQueuesAnswer, body: bytes) -> list[Effect]:
        if type(answer) is Msg:
            return self._connection.take(answer, body, STORED_MAX_BYTES)
        return self._connection.handle(answer, now())


def answer_of(request: Request, timeout: float) -> Ack:
    """What was answered in time. Raises: ZBrokerError with the broker's code, "timeout"."""
    if request.error is not None:
        raise request.error
    if request.answer is None:
        raise ZBrokerError("timeout", f"delivery gave no answer in {timeout} s")
    return request.answer
