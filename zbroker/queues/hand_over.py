"""A planned stop: what this instance owns of replicated queues goes to another one. Pure.

    off --quiet--> quiet --give, to whom--> giving      off: it offers again, or is another process
         quiet --QUIET_MAX_MS without a step--> off

quiet   nothing more is offered. A consumer that has settled all that it holds is ended: its program
        goes on at another instance. Other instances that ask for messages get them.
giving  Consumers that are left are ended, and what they held is flagged. All that belongs to this
        instance goes to one other, one record of each queue a turn; so does what comes later.

Each message is given once, so that instances which all are to stop do not pass it on for ever.
Queues with a `group_key` or a single active consumer keep theirs: messages that are published here
after the stop would overtake them.
Source: the design of replication, "Clients"; the design of ownership.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from pyroaring import BitMap64

from zbroker.engine.contract import Now
from zbroker.errors import ClientError
from zbroker.queues.consumer_registry import ConsumerRegistry, drained
from zbroker.queues.context import QueuesContext, RemoteConsumer
from zbroker.queues.owner_moves import GRANT_MAX, OwnerMoves
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replicated.replicated_queue import ReplicatedQueue
from zbroker.queues.work.consumers import HELD_BACK
from zbroker.queues.work.grants import owned
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import insert, remove, without
from zbroker.queues.work.values import Outcome
from zbroker.wire.queue_surveys import DrainQueues, LeavingQueue, QueuesDrained

QUIET_MAX_MS: Final = 60_000  # then it offers again: the admin that asked for it is gone
GROUP_KEY, SINGLE_ACTIVE = "group_key", "single_active_consumer"  # see above
READING: Final = "reading"  # it is not known yet what belongs to whom


class HandOver:
    """The stop, as one process knows it. state: see above."""

    def __init__(
        self, shared: QueuesContext, moves: OwnerMoves, consumers: ConsumerRegistry
    ) -> None:
        self._shared, self._moves, self._consumers = shared, moves, consumers
        self.state = "off"
        self._until_ms: int | None = None
        self._to = 0
        self._gave: dict[str, BitMap64] = {}  # of each queue, as long as they are in it
        self._landed: Counter[str] = Counter()
        self._ended = 0

    # -- steps --------------------------------------------------------------------------------

    def ask(self, _rid: bytes, ask: DrainQueues) -> QueuesDrained:
        """The admin wants the next step, or only to know. Raises: ClientError bad_field."""
        if ask.what not in ("quiet", "give", "off", "look"):
            raise ClientError("bad_field", f"key `what`: {ask.what[:64]!r} is nothing to be done")
        if ask.what == "quiet" and self.state != "giving":
            self._be("quiet")
        elif ask.what == "give" and self.state != "off":
            self._to = ask.to
            self._be("giving")
            self._end_consumers()
        elif ask.what == "off":
            self._be("off")
        return QueuesDrained(
            ask.cid, self.state, [self._row(one) for one in self._those()],
            len(self._those_consumers()), self._ended,
        )  # fmt: skip

    def _be(self, state: str) -> None:
        shared = self._shared
        if state == "off" or self.state == "off":
            self._gave.clear()
            self._landed.clear()
            self._ended = 0
        self._until_ms = shared.now.mono_ms + QUIET_MAX_MS if state == "quiet" else None
        if state != self.state:
            self.state, shared.leaving = state, state != "off"
            for one in self._those():
                shared.touch(one)

    def tick(self, now: Now) -> None:
        """Ends consumers that hold nothing any more; gives up what lasts too long."""
        if self._until_ms is None:
            return
        if now.mono_ms >= self._until_ms:
            self._be("off")
        else:
            self._end_consumers()

    def next_wake_ms(self) -> int | None:
        """When `tick` has something to do."""
        return self._until_ms

    # -- consumers ----------------------------------------------------------------------------

    def _end_consumers(self) -> None:
        """Those that are done, or all of them."""
        for one, consumer in self._those_consumers():
            if self.state == "giving" or self._is_done(one, consumer):
                self._ended += 1
                self._consumers.end(consumer, drained())
        for one in self._those() if self.state == "giving" else ():
            assert isinstance(one.queue, Queue)
            for lost in [*one.queue.consumers.lost()]:  # it comes back to another instance
                if lost.key != HELD_BACK:
                    one.queue.leave(lost.key)

    def _is_done(self, one: QueueState, consumer: RemoteConsumer) -> bool:
        """All that it had is settled, and it has the answers."""
        assert isinstance(one.queue, Queue)
        _, held, _ = one.queue.held_by(consumer.key)
        going = without(one.queue.going, one.locked)
        on_the_way = going or one.entries or one.waiters or len(self._shared.promises)
        return not held and not on_the_way

    def _those(self) -> list[QueueState]:
        many = self._shared.manager.folding.replicated.values()
        return [one for one in many if isinstance(one.queue, Queue)]

    def _those_consumers(self) -> list[tuple[QueueState, RemoteConsumer]]:
        of = self._shared.of
        return [
            (one, each) for one in self._those() for each in [*of.get(one.name, {}).values()]
        ]  # fmt: skip

    # -- messages -----------------------------------------------------------------------------

    def look(self, one: QueueState) -> None:
        """Something of a queue has changed: what may be given, is."""
        queue = one.queue
        if self.state != "giving" or not self._shared.leaves(one) or self._keeps(one):
            return
        assert isinstance(queue, Queue)
        gave = self._gave[one.name] = self._gave.get(one.name, BitMap64()) & queue.here
        fresh = without(owned(queue), gave)
        if not fresh:
            return
        if self._shared.manager.commits.full:
            self._shared.held_back[one.name] = one
            return
        for outcome in queue.grant(GRANT_MAX, fresh, leaving=True):
            self._give(one, outcome)
        if len(fresh) > GRANT_MAX:
            self._shared.touch(one)

    def _give(self, one: QueueState, outcome: Outcome) -> None:
        part = outcome.positions
        insert(self._gave[one.name], part)

        def landed(code: str) -> None:
            gave = self._gave.get(one.name, BitMap64())
            if code:
                remove(gave, part & gave)
            else:
                self._landed[one.name] += len(part)

        self._moves.give(one, outcome, self._to, back=True, then=landed)

    @staticmethod
    def _keeps(one: QueueState) -> str:
        config = one.definition.config
        if config.one_instance:
            return GROUP_KEY if config.group_key else SINGLE_ACTIVE
        return "" if one.offers else READING

    def _row(self, one: QueueState) -> LeavingQueue:
        queue, replicated = one.queue, one.replicated
        assert isinstance(queue, Queue)
        assert isinstance(replicated, ReplicatedQueue)
        mine = without(queue.here, queue.places.foreign)
        initial = replicated.ownership.owns_new(0) and one.definition.config.scope == "group-local"
        return LeavingQueue(
            one.name, len(mine), len(queue.leased(None) & mine), self._landed[one.name],
            self._keeps(one), initial, one.stand_ins.names(),
        )  # fmt: skip
