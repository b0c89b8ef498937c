"""What a consumer knows of itself, whoever waits for its messages: threads or tasks.

How the next messages are waited for is the part of the two shells: `consumer.py` here, and
`zbroker.client.aio.consumer`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

from zbroker.client.connection import Phase
from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.settlement import ACK
from zbroker.client.consumer.transport import ConsumerTransport
from zbroker.client.endpoints import ListenerEndpoints
from zbroker.errors import ZBrokerError
from zbroker.ids import format_vector
from zbroker.wire.queue_messages import Consume


class BaseConsumer:
    """One consumer: of what it is, and how far."""

    _port: ConsumerTransport
    _doors: ListenerEndpoints

    def __init__(self, doors: ListenerEndpoints, command: Consume, accept_s: float) -> None:
        """accept_s: how long the broker may take to accept it."""
        self._doors, self._accept_s = doors, accept_s
        command.holder = secrets.token_hex(8)  # the same over reconnects
        self._command = command
        self._owner: object = None  # the client: it lives as long as its consumers
        self._closed = False

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self._command.queue

    @property
    def backlog(self) -> int:
        """How many messages it holds at most, as the broker granted; 0 before it was accepted."""
        return self._port.core.backlog

    @property
    def lease(self) -> float | None:
        """How many seconds a lease lasts that is not extended; None: for ever, or there is none."""
        lease_ms = self._port.core.lease_ms
        return lease_ms / 1_000 if lease_ms else None

    @property
    def held(self) -> int:
        """How many messages it has that are not settled: with the program, or waiting for it."""
        return self._port.look(lambda core: len(core.held))

    @property
    def unsettled(self) -> int:
        """How many messages were acked, released or rejected, and that is not known durable."""
        return self._port.look(lambda core: len(core.settling))

    @property
    def vector(self) -> str | None:
        """Of a replayable queue: a value for `since` that goes on behind what was handed out."""
        passed = self._port.look(lambda core: dict(core.passed))
        return format_vector(passed) if passed else None

    @property
    def error(self) -> ZBrokerError | None:
        """What ended it, if it was not `close`."""
        return self._port.what_ended_it

    def _ask_at_once(self) -> None:
        """Its client has made it."""
        raise NotImplementedError

    def ack(self, messages: Iterable[QueueMessage]) -> None:
        """Many are done, at once. Else as `QueueMessage.ack`.

        Raises: ZBrokerError bad_field (they are another consumer's), what ended the consumer.
        """
        many: Sequence[QueueMessage] = messages if isinstance(messages, list) else list(messages)
        port = self._port
        if any(message._head.desk is not port for message in many):
            raise ZBrokerError("bad_field", "messages of another consumer: ack them there")
        if many:
            port.settle(ACK, many)

    # -- for the shells -----------------------------------------------------------------------

    def _not_accepted(self) -> ZBrokerError:
        """There was no answer in time."""
        timeout = self._accept_s
        if self._doors.door not in self._doors.endpoints():
            return ZBrokerError(
                "not_ready",
                f"the broker named no queues door in {timeout} s",
                "it has no queues, or still starts",
            )
        return ZBrokerError("timeout", f"the broker did not accept the consumer in {timeout} s")

    def _is_through(self, number: int) -> bool:
        """All that was settled up to `number` is durable, or nobody will say so any more."""
        core = self._port.core
        return core.settling.through(number) or core.state is Phase.ENDED or self.error is not None

    def _check_through(self, number: int) -> None:
        """Raises: ZBrokerError, what ended it before, or the first refusal since the last time."""
        settling = self._port.core.settling
        refusal, settling.refusal = settling.refusal, None
        if not settling.through(number):
            raise self.error or ZBrokerError("closed", "the consumer was closed")
        if refusal is not None:
            raise refusal

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"{kind}({self.queue!r}, held={self.held}, unsettled={self.unsettled})"


def not_settled(timeout: float | None, count: int) -> ZBrokerError:
    """The error for who waited in vain."""
    return ZBrokerError("timeout", f"{count} messages are not settled after {timeout} s")
