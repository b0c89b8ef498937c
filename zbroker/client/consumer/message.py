"""Messages of a queue as their consumer sees them, and the exception that rejects one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat
from typing import Protocol

from msgspec.structs import astuple

from zbroker.client.consumer.settlement import Verb
from zbroker.client.message import Message, MessageHead, bad_batch, head_of, opened
from zbroker.client.subscriber.options import Duration, seconds
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin, Vector
from zbroker.limits import REASON_MAX
from zbroker.wire import bodies
from zbroker.wire.queue_messages import LEASE_MAX_MS, Job


class Settler(Protocol):
    """Where messages are settled: a consumer's line."""

    def ack(self, message: QueueMessage) -> None:
        """`settle` with an ack of one message, which costs a fraction of it."""

    def settle(self, verb: Verb, messages: Sequence[QueueMessage]) -> None:
        """Notes it, to be sent soon. Raises: ZBrokerError, what ended the consumer."""


class QueueHead(MessageHead, gc=False, kw_only=True):
    """What the messages of one batch have in common. epoch: of the origin of their places."""

    settler: Settler
    epoch: int
    deliveries: Sequence[int] | None = None  # of each that counts; None: 1
    acked: bytes | None = None  # likewise
    barrier: bool = False


class QueueMessage(Message, gc=False, eq=False, frozen=True):
    """A message taken from a queue: as a `Message`, and what the queue says of it.

    Settle each one: `ack`, `release`, `reject`, or `with message: ...`, where leaving the block
    acks, an exception releases, and `Reject` rejects and ends there. All of them may be called by
    any thread, return at once, and do nothing for a message that is settled already. Until then
    its lease is extended in the background.
    """

    _head: QueueHead
    _at: int  # its position at the broker that the queue is of

    @property
    def deliveries(self) -> int:
        """How often it was delivered, with this time, as far as the broker counted."""
        counts = self._head.deliveries
        return 1 if counts is None else counts[self._i - self._head.first]

    @property
    def redelivered(self) -> bool:
        """True if somebody may have seen it before."""
        return self.deliveries > 1

    @property
    def barrier(self) -> bool:
        """True if every consumer gets it; nothing after it is delivered before. Needs no ack."""
        return self._head.barrier

    @property
    def acked(self) -> bool:
        """Whether it was acknowledged when a replayable queue sent it."""
        acked = self._head.acked
        return acked is not None and acked[self._i - self._head.first] != 0

    def ack(self) -> None:
        """It is done. Sent soon, and again until the broker says that it is durable.

        Raises: ZBrokerError, what ended the consumer; then it comes back to the queue.
        """
        self._head.settler.ack(self)

    def release(self, delay: Duration = 0) -> None:
        """It goes back to its place, after `delay`: somebody else, or you, gets it again.

        Raises: ZBrokerError bad_field; else as `ack`.
        """
        delay_ms = _ms("delay", delay, zero=True)
        self._head.settler.settle(Verb("release", delay_ms), (self,))

    def reject(self, reason: str = "") -> None:
        """It cannot be processed: a dead letter, with `reason`. Raises: as `ack`."""
        self._head.settler.settle(Verb("reject", reason=str(reason)[:REASON_MAX]), (self,))

    def extend(self, lease: Duration | None = None) -> None:
        """Its lease lasts for `lease` from now; None: as long as the queue's.

        Needed only for a lease that has to outlast this process. Raises: as `release`.
        """
        lease_ms = 0 if lease is None else max(1, _ms("lease", lease))
        self._head.settler.settle(Verb("extend", lease_ms), (self,))

    def __enter__(self) -> QueueMessage:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if error is None:
            self.ack()
        elif isinstance(error, Reject):
            self.reject(error.reason)
            return True
        else:
            with suppress(ZBrokerError):  # the exception says more; it comes back anyway
                self.release()
        return False

    def __repr__(self) -> str:
        times = f", deliveries={self.deliveries}" if self.redelivered else ""
        return f"QueueMessage({self.topic!r}, {self.bookmark!r}, {self.data[:64]!r}{times})"


def decode(
    job: Job, body: bodies.Body, own: Origin, body_max: int, settler: Settler, epoch: int
) -> list[QueueMessage]:
    """The messages of a batch that count.

    Raises: ZBrokerError bad_checksum, bad_frame or too_large; nothing of such a batch is used.
    """
    data = opened(job, body, body_max)
    common, counts, acked = head_of(job, own), job.deliveries, job.acked
    if counts is not None and len(counts) != 2 * len(data):
        raise bad_batch(job, f"`deliveries` has {len(counts)} bytes for {len(data)} messages")
    if acked is not None and len(acked) != len(data):
        raise bad_batch(job, f"`acked` has {len(acked)} bytes for {len(data)} messages")
    head = QueueHead(
        *astuple(common), settler=settler, epoch=epoch, acked=acked, barrier=job.barrier,
        deliveries=None if counts is None else bodies.indexes(counts),
    )  # fmt: skip
    at = range(job.skip, job.skip + len(data))
    sequences, places = head.numbered(job.seq, at), head.numbered(job.position, at)
    return list(map(QueueMessage, repeat(head), data, sequences, places))


def origins_of(messages: Sequence[QueueMessage]) -> Vector:
    """The vector of the last message of each origin; of one origin they are in its order."""
    return {message._head.origin: message.position for message in messages}


def _ms(name: str, value: Duration, *, zero: bool = False) -> int:
    found = round(seconds(name, value, zero=zero) * 1_000)
    if found > LEASE_MAX_MS:
        raise ZBrokerError("bad_field", f"{name}={value!r} is more than {LEASE_MAX_MS} ms")
    return found


class Reject(Exception):
    """Raise it in a worker's handler, or in `with message:`: the message is a dead letter.

    Any other exception releases the message, so that it is tried again.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
