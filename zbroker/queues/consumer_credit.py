"""The credit of consumers: more of it, flow modes, stop and flush. Pure.

running --flush--> is given what there is --nothing left for it, or no credit--+
   |                                                                           v
   +--stop----------------------------------------> without credit, and offers are on their way
   ^                                                                           |
   +--flow-- stopped <--answered, once those were sent, or came back-----------+

While that is so, further commands about the credit of the consumer wait for the answer, so that
they count in their order. Its backlog and what it holds are of no concern here. A consumer in
window mode is only looked at when it gets credit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, field

from zbroker.errors import ClientError
from zbroker.limits import U63_MAX
from zbroker.queues.context import QueuesConnection, QueuesContext, RemoteConsumer
from zbroker.queues.effects import Give
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replayable import Replayable
from zbroker.queues.work.acquisition import available
from zbroker.queues.work.consumers import QueueConsumer
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import first_of, without
from zbroker.wire import consumer_credit as w
from zbroker.wire import messages as m
from zbroker.wire.queue_messages import Consume

LATER_MAX: Final = 100  # commands about one consumer that wait for the answer to another one

CreditCommand = w.ConsumerFlow | w.SetFlowMode | w.StopConsumer | w.FlushConsumer


class CreditEnd(Struct):
    """A stop or a flush that is not answered.

    revoked: the consumer has no credit any more. delivered: what it was sent before. until: the
    messages before this position were there when it was flushed. later: commands to do after it.
    """

    command: w.StopConsumer | w.FlushConsumer
    delivered: int
    until: int = 0
    revoked: bool = False
    later: list[CreditCommand] = field(default_factory=list)

    def put_off(self, command: CreditCommand) -> None:
        """It is done after the answer. Raises: ClientError too_many."""
        last = self.later[-1] if self.later else None
        if isinstance(command, w.ConsumerFlow) and isinstance(last, w.ConsumerFlow):
            last.bytes += command.bytes
            last.messages += command.messages
        elif len(self.later) < LATER_MAX:
            self.later.append(command)
        else:
            raise ClientError("too_many", f"{LATER_MAX} commands of this consumer wait already")


class ConsumerCredit:
    """`flushing`: consumers that are given what there is for them."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared
        self.flushing: dict[int, RemoteConsumer] = {}
        self._handlers: dict[type, Callable[[RemoteConsumer, Any], None]] = {
            w.ConsumerFlow: self._flow,
            w.SetFlowMode: self._set_mode,
            w.StopConsumer: self._stop,
            w.FlushConsumer: self._flush,
        }

    def begin(self, queue: Queue, consumer: RemoteConsumer, command: Consume) -> None:
        """A consumer of a work queue has joined."""
        counted = command.flow_mode == "credit"
        if counted or command.messages is not None:
            worker = queue.consumers.by_key[consumer.key]
            worker.counted = counted
            queue.consumers.limit(worker, command.messages or 0)

    def command(self, connection: QueuesConnection, command: CreditCommand) -> None:
        """Raises: ClientError."""
        consumer = connection.consumers.get(command.sid)
        if consumer is not None and consumer.ending is not None:
            consumer.ending.put_off(command)
        elif consumer is not None:
            self._handlers[type(command)](consumer, command)
        elif not (isinstance(command, w.ConsumerFlow) and command.sid in connection.ended):
            raise unknown_sid(command.sid)  # credit may be on its way while its consumer ends

    # -- what was offered ---------------------------------------------------------------------

    def look(self, one: QueueState) -> None:
        """A queue gave what it could: flushes may be over."""
        for consumer in [each for each in self.flushing.values() if each.queue == one.name]:
            if consumer.key not in self._shared.consumers:
                del self.flushing[consumer.key]
            elif self._has_all(one, consumer):
                self._revoke(consumer)

    def undelivered(self, give: Give, count: int) -> None:
        """So many messages of an offer are not sent: they took no credit."""
        ending, found = give.to.ending, self._worker(give.to)
        if count and found is not None and not give.acquired:
            queue, worker = found
            if worker.counted and not (ending is not None and ending.revoked):
                queue.consumers.limit(worker, (worker.left or 0) + count)
                self._shared.touch(self._shared.manager.running[give.to.queue])

    def done(self, give: Give) -> None:
        """Nothing more comes of an offer."""
        give.to.giving -= 1
        if give.to.ending is not None:
            self._answer(give.to)

    # -- commands -----------------------------------------------------------------------------

    def _flow(self, consumer: RemoteConsumer, command: w.ConsumerFlow) -> None:
        connection = self._shared.connections[consumer.rid]
        consumer.credit += connection.grant(consumer.sid, command.bytes, consumer.credit)
        one = self._shared.manager.running.get(consumer.queue)
        if one is None:
            return
        found = self._worker(consumer)
        if found is not None and found[1].left is not None:
            queue, worker = found
            more = min(U63_MAX, found[1].left + command.messages)
            queue.consumers.limit(worker, more if worker.counted else None)
        self._shared.touch(one)

    def _set_mode(self, consumer: RemoteConsumer, command: w.SetFlowMode) -> None:
        found = self._worker(consumer)
        if found is None:
            raise ClientError("bad_field", "key `mode`: a replayable queue has none")
        worker = found[1]
        if worker.left != 0 or consumer.giving:
            text = f"consumer {consumer.sid!r} has credit, or what took it is still on its way"
            raise ClientError("credit_left", text)
        worker.counted = command.mode == "credit"
        self._shared.send(consumer.rid, m.Ack("processed", command.cid, sid=consumer.sid))

    def _stop(self, consumer: RemoteConsumer, command: w.StopConsumer) -> None:
        consumer.ending = CreditEnd(command, consumer.delivered)
        self._revoke(consumer)

    def _flush(self, consumer: RemoteConsumer, command: w.FlushConsumer) -> None:
        ending = consumer.ending = CreditEnd(command, consumer.delivered)
        one = self._shared.manager.running.get(consumer.queue)
        if one is None:
            self._revoke(consumer)
            return
        ending.until = one.folded
        self.flushing[consumer.key] = consumer
        found = self._worker(consumer)
        if found is not None:  # it waits for no new message, however many come
            queue, worker = found
            there = available(queue)
            left = there if worker.left is None else min(worker.left, there)
            queue.consumers.limit(worker, left)
        self._shared.touch(one)

    # -- the end of credit --------------------------------------------------------------------

    def _has_all(self, one: QueueState, consumer: RemoteConsumer) -> bool:
        """True if it gets nothing more of what was there when it was flushed."""
        queue, shared = one.queue, self._shared
        if consumer.credit <= 0:
            return True
        if isinstance(queue, Replayable):
            return not consumer.giving  # each batch that was given leads to the next offer
        worker = queue.consumers.by_key.get(consumer.key)
        if worker is None or worker.spare <= 0:
            return True
        assert consumer.ending is not None
        looks, rest = worker.looks, queue.places.ready.standing
        again = one.name in shared.held_back or one.name in shared.dirty
        if looks is not None and consumer.examining:
            again, rest = True, without(rest, looks.looked)
        first = first_of(rest)
        return not again or first is None or first >= consumer.ending.until

    def _revoke(self, consumer: RemoteConsumer) -> None:
        assert consumer.ending is not None
        consumer.ending.revoked = True
        self.flushing.pop(consumer.key, None)
        found = self._worker(consumer)
        if found is not None:
            queue, worker = found
            queue.consumers.limit(worker, 0)
        consumer.credit = min(0, consumer.credit)
        self._answer(consumer)

    def _answer(self, consumer: RemoteConsumer) -> None:
        """Answers what ended its credit, if nothing is on its way to it any more."""
        ending = consumer.ending
        gone = consumer.key not in self._shared.consumers
        if ending is None or not ending.revoked or consumer.giving or gone:
            return
        consumer.credit, consumer.ending = 0, None
        command, sid = ending.command, consumer.sid
        if isinstance(command, w.FlushConsumer):
            sent = consumer.delivered - ending.delivered
            self._shared.send(consumer.rid, w.Flushed(sid, sent, command.cid))
        else:
            self._shared.send(consumer.rid, m.Ack("processed", command.cid, sid=sid))
        for after in ending.later:
            self._do_later(consumer, after)

    def _do_later(self, consumer: RemoteConsumer, command: CreditCommand) -> None:
        if consumer.ending is not None:
            consumer.ending.later.append(command)
            return
        try:
            self._handlers[type(command)](consumer, command)
        except ClientError as error:
            self._shared.refuse(consumer.rid, error, getattr(command, "cid", None))

    def _worker(self, consumer: RemoteConsumer) -> tuple[Queue, QueueConsumer] | None:
        """What its queue knows of it; None: its queue is a replayable one, or over."""
        one = self._shared.manager.running.get(consumer.queue)
        if one is None or not isinstance(one.queue, Queue) or not one.queue.has(consumer.key):
            return None
        return one.queue, one.queue.consumers.by_key[consumer.key]


def check_flow(command: Consume, *, replayable: bool) -> None:
    """Raises: ClientError bad_field, for what a consumer of such a queue cannot begin with."""
    if replayable and (command.flow_mode != "window" or command.messages is not None):
        text = "a replayable queue is read as far as the bytes go"
        raise ClientError("bad_field", f"key `flow_mode`, `messages`: {text}")
    if command.flow_mode == "window" and command.messages:
        text = "in window mode its backlog is the limit, or 0: it begins as if it was stopped"
        raise ClientError("bad_field", f"key `messages`: {text}")


def unknown_sid(sid: str) -> ClientError:
    """The refusal of a command for a consumer that never was."""
    return ClientError("unknown_sid", f"no consumer {sid[:64]!r} on this connection")
