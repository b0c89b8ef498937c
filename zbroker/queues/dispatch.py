"""Dispatch: consumers are given messages, once what has to be durable before that is. Pure.

    offered --> given                     below the horizon
        \\--> parked --horizon--> given    beyond it: after a crash it could not be flagged
        \\--> committed as gone --> given  at-most-once

A parked message is given only if its consumer still has it then. Where one consumer gets all in
order, the next ones are given when those before them were sent: these may have to be read again.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace
from pyroaring import BitMap64

from zbroker.limits import MIB, U63_MAX
from zbroker.log.records import BarrierDelivered, Horizon
from zbroker.queues.consumer_registry import ConsumerRegistry
from zbroker.queues.context import QueuesContext, RemoteConsumer
from zbroker.queues.effects import Give, Given
from zbroker.queues.queue_state import AHEAD, QueueState
from zbroker.queues.replayable import Replayable
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Offer, Outcome
from zbroker.wire import messages as m

EXAMINE_MAX: Final = 1_000  # messages that are read at a time to see what a filter is true for
NOTHING: Final = BitMap64()
GIVE_BYTES: Final = 1 * MIB  # of a replayable queue in one turn: the other queues are due then


class Dispatcher:
    """Gives messages of all queues to their consumers."""

    def __init__(self, shared: QueuesContext, consumers: ConsumerRegistry) -> None:
        self._shared = shared
        self._consumers = consumers
        self._credit = consumers.credit

    def offers(self, one: QueueState) -> bool:
        """Messages of a queue can go to consumers now."""
        return self._is_on(one) and not self._shared.manager.commits.full

    def _is_on(self, one: QueueState) -> bool:
        paused = one.paused_until_ms > self._shared.now.mono_ms
        return one.offers and not paused and not self._shared.leaves(one) and not self._unsure(one)

    def _unsure(self, one: QueueState) -> bool:
        """Whether something is held back for sessions of which there may be none."""
        unknown = not self._shared.manager.sessions.known
        return unknown and isinstance(one.queue, Queue) and one.queue.consumers.held_back > 0

    def dispatch(self, one: QueueState) -> None:
        """Gives what can be given now."""
        self._dispatch(one)
        if self._credit.flushing:
            self._credit.look(one)

    def _dispatch(self, one: QueueState) -> None:
        shared, queue = self._shared, one.queue
        mine = shared.of.get(one.name)
        if one.parked:
            self._unpark(one)
        if not mine or not self._is_on(one):
            return
        if shared.manager.commits.full:
            shared.held_back[one.name] = one
            return
        for consumer in mine.values():
            self._examine(one, consumer)
        offers = queue.offer(shared.now, {key: each.credit > 0 for key, each in mine.items()})
        for offer in offers:
            self.hand(one, offer)
        if one.parked and not one.wanted_horizon:
            self._beyond(one, one.highest)  # it was refused
        if isinstance(queue, Replayable):
            if not offers:
                self._look_for_end(one, queue)
        elif queue.more:
            shared.touch(one)

    def _look_for_end(self, one: QueueState, queue: Replayable) -> None:
        """Ends its consumer, if that was given everything before the end that it wanted."""
        if queue.ended(one.folded):
            self._completed(queue)
        elif queue.reader is not None and one.folded < queue.reader.until < U63_MAX:
            self._shared.manager.folding.awaited[one.name] = queue.reader.until

    def _examine(self, one: QueueState, consumer: RemoteConsumer) -> None:
        """Has the next messages looked at that a consumer with a filter may get."""
        queue = one.queue
        if consumer.filter is None or consumer.examining or not isinstance(queue, Queue):
            return
        part = queue.unlooked(consumer.key, EXAMINE_MAX, self._shared.now)
        if not part:
            return
        consumer.examining = True

        def examined(matching: BitMap64) -> None:
            consumer.examining = False
            if consumer.key in self._shared.consumers:
                queue.looked(consumer.key, part, matching)
                self._shared.touch(one)

        self._shared.examine(part, consumer.filter, examined)

    def hand(self, one: QueueState, offer: Offer) -> None:
        """Gives what was offered, as soon as that may be; `dispatch` has to follow."""
        consumer, queue = self._shared.consumers[offer.consumer], one.queue
        consumer.giving += 1
        one.taken_ms = self._shared.now.mono_ms
        number = one.definition.declaration
        if isinstance(queue, Replayable):
            acked = queue.noted_ones & offer.positions
            give = Give(
                consumer, offer.positions, acked=acked, bytes_max=GIVE_BYTES, declaration=number
            )
            self._shared.out.append(give)
            return
        deliveries = queue.deliveries_of(offer.positions)
        give = Give(
            consumer, offer.positions, deliveries, offer.barrier, declaration=number,
            acquired=offer.acquired,
        )  # fmt: skip
        if offer.first_commit:
            sent = Outcome(offer.positions, "gone", "sent")
            one.entries.append((sent, lambda code: self._landed(one, give, code)))
        elif self._beyond(one, offer.positions.max()):
            one.parked.append(give)
        else:
            self._send(one, give)

    def _landed(self, one: QueueState, give: Give, code: str) -> None:
        """Messages of an at-most-once queue have left it, or not."""
        if code:
            self._drop(give)
        else:
            self._shared.promise(one, lambda: self._send(one, give))

    def _send(self, one: QueueState, give: Give) -> None:
        """Sends messages, if there are any and their consumer is still there."""
        if not give.positions or give.to.key not in self._shared.consumers:
            self._drop(give)
            return
        if one.definition.config.single_active_consumer:  # reading may fail, and is tried again
            one.line.append(give)
            if len(one.line) > 1:
                return
        self._shared.out.append(give)
        if give.barrier:
            _delivered(one, give.positions)

    def _advance(self, one: QueueState) -> None:
        """The first of the line was sent, or will not be: the next one comes."""
        del one.line[:1]
        while one.line:
            give = one.line[0]
            if give.to.key in self._shared.consumers:
                if one.definition.config.semantics != "at-most-once":
                    later = [other.positions for other in one.line[1:] if other.to is give.to]
                    give = self._still(one, give, BitMap64.union(BitMap64(), *later))
                if give.positions:
                    self._shared.out.append(give)
                    return
            self._drop(give)
            del one.line[0]

    def _drop(self, give: Give) -> None:
        """Nothing of it is sent."""
        self._credit.undelivered(give, len(give.positions))
        self._credit.done(give)

    def _beyond(self, one: QueueState, highest: int) -> bool:
        """True if the horizon is not durable that far; asks for it well before it is needed."""
        one.highest = max(one.highest, highest)
        if one.highest + AHEAD // 2 >= one.wanted_horizon:
            horizon = one.wanted_horizon = one.highest + AHEAD

            def landed(code: str) -> None:
                if code:
                    one.wanted_horizon = 0
                else:
                    one.horizon = max(one.horizon, horizon)

            one.facts.append(Horizon(horizon))
            one.endings.append(landed)
        return highest >= one.horizon

    def _unpark(self, one: QueueState) -> None:
        """Sends what does not wait for the horizon any more; at the end of a turn, so that nothing
        becomes of it in between."""
        parked, one.parked = one.parked, []
        barriers, sent = BitMap64(), BitMap64()
        for give in parked:
            there = give.to.key in self._shared.consumers
            if give.positions.max() >= one.horizon:
                one.parked.append(give)
            elif give.barrier:
                barriers |= give.positions
                if there:
                    sent |= give.positions
                    self._send(one, give)
            elif there:
                self._send(one, self._still(one, give))
        if barriers != sent:  # without consumers it waits
            one.queue.undo(Outcome(barriers - sent, "gone", "barrier"))

    def _completed(self, queue: Replayable) -> None:
        """Everything before the end that the consumer wanted was given."""
        assert queue.reader is not None
        consumer = self._shared.consumers[queue.reader.key]
        # goes after the messages that it was given
        self._shared.send(consumer.rid, m.Ack("completed", sid=consumer.sid, ended=True))
        self._consumers.leave(consumer)

    def given(self, done: Given) -> None:
        """A Give was done."""
        give, unread, end = done.give, done.unread, done.end
        consumer, one = give.to, self._shared.manager.running.get(give.to.queue)
        consumer.credit -= done.size
        consumer.delivered += len(give.positions) - len(unread)
        if unread:
            self._credit.undelivered(give, len(unread))
        self._credit.done(give)
        if one is None:
            return
        self._advance(one)
        self._shared.manager.changes.note(one.name)
        one.counts.delivered += len(give.positions) - len(unread)
        if give.deliveries is not None:
            sent = give.deliveries[: give.positions.rank(end - 1)]
            one.counts.redelivered += sum(count > 1 for count in sent)
        if unread:
            known = unread.rank(end - 1)
            unreadable, later = unread[:known], unread[known:]
            if unreadable:
                one.entries += [(outcome, None) for outcome in one.queue.unreadable(unreadable)]
            if later and isinstance(one.queue, Replayable):
                one.queue.go_back(give.to.key, later.min())
        if unread or isinstance(one.queue, Replayable):
            self._shared.touch(one)

    def put_off(self, give: Give, until_ms: int) -> bool:
        """It could not be read. False: give it `again` later; True: the queue does it, since
        nothing may come before these messages."""
        one = self._shared.manager.running.get(give.to.queue)
        if one is None:
            self._drop(give)
            return True
        if isinstance(one.queue, Replayable):
            self._drop(give)
            one.queue.go_back(give.to.key, give.positions.min())
            one.paused_until_ms = until_ms
            self._shared.paused[one.name] = one
            return True
        return False

    def again(self, give: Give) -> None:
        """A Give that was put off, as far as the consumer still has what it is about."""
        one = self._shared.manager.running.get(give.to.queue)
        if one is None or give.to.key not in self._shared.consumers:
            self._drop(give)
            if one is not None:
                self._advance(one)
            return
        once = one.definition.config.semantics == "at-most-once"
        if give.barrier:
            give = replace(give, deliveries=[2])  # it may have come back and been sent meanwhile
        elif isinstance(one.queue, Queue) and not once:
            give = self._still(one, give)
        if give.positions:
            self._shared.out.append(give)
        else:
            self._drop(give)
            self._advance(one)

    def _still(self, one: QueueState, give: Give, again: BitMap64 = NOTHING) -> Give:
        """What a consumer still has of what was to be sent: a lease may have ended meanwhile.
        again: what it was offered again since, and is sent then."""
        assert isinstance(one.queue, Queue)
        positions = give.positions & one.queue.leased(give.to.key) - again
        self._credit.undelivered(give, len(give.positions) - len(positions))
        deliveries = one.queue.deliveries_of(positions)
        return replace(give, positions=positions, deliveries=deliveries)

    def unsent(self, give: Give, positions: BitMap64) -> None:
        """The consumer is gone: these messages were not sent to it."""
        one = self._shared.manager.running.get(give.to.queue)
        if one is not None and isinstance(one.queue, Queue):
            one.queue.unsent(give.to.key, positions)
            for other in one.line[1:]:
                if other.to is give.to:
                    one.queue.unsent(give.to.key, other.positions)
            self._advance(one)
            self._shared.touch(one)


def _delivered(one: QueueState, barrier: BitMap64) -> None:
    """One record, however many consumers get it; after a refusal it goes to all of them again."""
    fact = BarrierDelivered(barrier.min())
    if fact in one.facts:
        return

    def landed(code: str) -> None:
        if code:
            one.queue.undo(Outcome(barrier, "gone", "barrier"))

    one.facts.append(fact)
    one.endings.append(landed)
