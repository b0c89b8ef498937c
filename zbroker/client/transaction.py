"""What belongs to a transaction of a session while it is open, and what it did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from zbroker.client.consumer.message import QueueMessage
from zbroker.client.consumer.settlement import Verb
from zbroker.client.session_link import TransactionId

if TYPE_CHECKING:
    from zbroker.client.consumer.transport import ConsumerTransport

COMMIT_S: Final = 60.0


class TransactionResult(NamedTuple):
    """What a transaction did: so many `messages` from `position` on; what `acknowledged` counts
    left queues.

    position: in the log of the broker; 0 without messages. mixed: some of what it acknowledged did
    not leave its queue by it: the queue was deleted, or another instance had given it out.
    rejected: so many of those that left their queues were rejected.
    """

    messages: int
    position: int
    acknowledged: int
    mixed: bool = False
    rejected: int = 0


class TakenMessages(NamedTuple):
    """Messages of one consumer that a transaction acknowledges, or rejects for one reason."""

    port: ConsumerTransport
    verb: Verb
    messages: list[QueueMessage]


class Transaction:
    """What belongs to a transaction while it is open. id: which one of its session it is.
    committed: what it did, once it is over."""

    def __init__(self, id_: TransactionId) -> None:
        self.id = id_
        self.committed: TransactionResult | None = None
        self.messages = 0
        self._taken: dict[tuple[ConsumerTransport, Verb], list[QueueMessage]] = {}
        self._settled: dict[ConsumerTransport, set[int]] = {}  # where these are

    def take(self, port: ConsumerTransport, verb: Verb, messages: Iterable[QueueMessage]) -> None:
        """They are acknowledged or rejected in it, but for those that were so before."""
        self.check_open()
        settled = self._settled.setdefault(port, set())
        fresh = {message._at: message for message in messages if message._at not in settled}
        if fresh:
            settled.update(fresh)
            self._taken.setdefault((port, verb), []).extend(fresh.values())

    @property
    def taken(self) -> list[TakenMessages]:
        """By consumer and verb."""
        return [TakenMessages(*key, messages) for key, messages in self._taken.items()]

    @property
    def is_open(self) -> bool:
        """False for one that is prepared: only a decision is left."""
        return True

    def check_open(self) -> None:
        """Raises: ZBrokerError bad_command, if it takes nothing more."""
