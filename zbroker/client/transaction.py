"""What belongs to a transaction of a session while it is open, and what it did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from zbroker.client.consumer.message import QueueMessage
from zbroker.client.session_link import TransactionId

if TYPE_CHECKING:
    from zbroker.client.consumer.transport import ConsumerTransport

COMMIT_S: Final = 60.0


class TransactionResult(NamedTuple):
    """What a transaction did: so many `messages` from `position` on; what `acknowledged` counts
    left queues.

    position: in the log of the broker; 0 without messages. mixed: some of what it acknowledged did
    not leave its queue by it: the queue was deleted, or another instance had given it out.
    """

    messages: int
    position: int
    acknowledged: int
    mixed: bool = False


class Transaction:
    """What belongs to a transaction while it is open. id: which one of its session it is.
    committed: what it did, once it is over."""

    def __init__(self, id_: TransactionId) -> None:
        self.id = id_
        self.committed: TransactionResult | None = None
        self.messages = 0
        self._taken: dict[ConsumerTransport, list[QueueMessage]] = {}

    def take(self, port: ConsumerTransport, messages: Iterable[QueueMessage]) -> None:
        """They are acknowledged in it."""
        self.check_open()
        self._taken.setdefault(port, []).extend(messages)

    @property
    def taken(self) -> list[tuple[ConsumerTransport, list[QueueMessage]]]:
        """By consumer."""
        return list(self._taken.items())

    @property
    def is_open(self) -> bool:
        """False for one that is prepared: only a decision is left."""
        return True

    def check_open(self) -> None:
        """Raises: ZBrokerError bad_command, if it takes nothing more."""
