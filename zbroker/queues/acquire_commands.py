"""`acquire`: a consumer asks for messages by their positions, and is given those it can get. Pure.

What it cannot get now is missing in the answer: others were faster, or the queue would not offer
it. The answer goes ahead of the messages.
"""

from __future__ import annotations

from pyroaring import BitMap64

from zbroker.errors import ClientError
from zbroker.log.records import ends_of
from zbroker.queues.consumer_credit import unknown_sid
from zbroker.queues.consumer_registry import positions_of
from zbroker.queues.context import QueuesConnection, QueuesContext
from zbroker.queues.dispatch import Dispatcher
from zbroker.queues.work.acquisition import acquire
from zbroker.queues.work.offers import once
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Offer
from zbroker.wire.consumer_credit import ACQUIRED_MAX, Acquired, AcquireMessages


class AcquireCommands:
    """Does so for consumers of work queues."""

    def __init__(self, shared: QueuesContext, dispatcher: Dispatcher) -> None:
        self._shared = shared
        self._dispatcher = dispatcher

    def acquire(self, connection: QueuesConnection, command: AcquireMessages) -> None:
        """Raises: ClientError unknown_sid, unknown_queue, bad_field."""
        consumer = connection.consumers.get(command.sid)
        if consumer is None:
            raise unknown_sid(command.sid)
        one = self._shared.running(consumer.queue)
        queue = one.queue
        if not isinstance(queue, Queue) or once(queue.config):
            text = "nothing is leased in a replayable or an at-most-once queue"
            raise ClientError("bad_field", f"key `sid`: {text}")
        wanted = self._shared.manager.good(positions_of(command.ends), command.generation)
        found = BitMap64()
        if consumer.credit > 0 and queue.has(consumer.key) and self._dispatcher.offers(one):
            found = acquire(queue, consumer.key, wanted, self._shared.now, ACQUIRED_MAX)
        self._shared.send(connection.rid, Acquired(consumer.sid, ends_of(found), command.cid))
        if found:
            self._dispatcher.hand(one, Offer(consumer.key, found, acquired=True))
        self._shared.touch(one)
