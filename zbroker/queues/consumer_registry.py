"""Consumers: they begin, end, get lost and come back; what they are offered. Pure.

consume --(replayable: where from?)--> consuming --cancel--> over: what it holds comes back
                                         | connection lost
                                         v
                              lost: its leases wait for the same consumer, one lease at most
"""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap64

from zbroker.engine.effects import Send
from zbroker.errors import ClientError
from zbroker.log.queue_records import ends_of, of_ends
from zbroker.queues import start_position
from zbroker.queues.clients import QueuesConnection, RemoteConsumer
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replayable import Replayable
from zbroker.queues.shared import QueuesContext
from zbroker.queues.work.queue import Queue
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire.bodies import CODEC_ZSTD

CONSUMERS_MAX: Final = 1_000  # per connection


class ConsumerRegistry:
    """All consumers of the room."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared
        self._openings = start_position.StartPositions(shared, self._opened, self._refuse)
        self._last_key = 0

    # -- begin --------------------------------------------------------------------------------

    def consume(self, connection: QueuesConnection, command: q.Consume) -> None:
        """Raises: ClientError."""
        self.check_right(connection, command.queue)
        one = self._shared.running(command.queue)
        if command.sid in connection.consumers:
            raise ClientError("sid_in_use", f"sid {command.sid!r} is in use on this connection")
        if len(connection.consumers) >= CONSUMERS_MAX:
            raise ClientError("too_many", f"{CONSUMERS_MAX} consumers per connection")
        connection.use.account.check_subscription()
        if isinstance(one.queue, Replayable):
            self._read(connection, command, one, one.queue)
        else:
            self._join(connection, command, one, one.queue)

    def check_right(self, connection: QueuesConnection, queue: str) -> None:
        """Raises: ClientError not_entitled."""
        principal = connection.token.principal
        if self._shared.access.permit(principal, "consume").verdict(queue) != "all":
            raise ClientError("not_entitled", f"{principal!r} may not consume {queue!r}")

    def _made(self, connection: QueuesConnection, command: q.Consume) -> RemoteConsumer:
        self._last_key += 1
        credit = connection.grant(command.sid, command.credit)
        consumer = RemoteConsumer(
            self._last_key, connection.rid, command.sid, connection.token.name, command.queue,
            credit, f"{connection.token.name}/{command.holder or command.sid}",
            zstd=CODEC_ZSTD in command.codecs, sid_packed=codec.encode(command.sid),
        )  # fmt: skip
        self._shared.add(connection, consumer)
        return consumer

    def _join(
        self, connection: QueuesConnection, command: q.Consume, one: QueueState, queue: Queue
    ) -> None:
        places = command.since, command.selector, command.until
        if places != (None, None, None) or command.bookmark_not_found != "fail":
            text = "only a replayable queue is read from a place of the consumer's choice"
            keys = "`since`, `selector`, `until`, `bookmark_not_found`"
            raise ClientError("bad_field", f"key {keys}: {text}")
        content = self._shared.compile(connection, command.filter)
        holding = positions_of(command.holding)
        consumer = self._made(connection, command)
        consumer.filter = content
        now, config = self._shared.now, one.definition.config
        consumer.backlog = queue.join(
            consumer.key, consumer.holder, command.backlog, content is not None, now
        )
        here = self._shared.manager.here
        if command.generation not in (None, here.generation if here else None):
            holding = BitMap64()
        kept = queue.reclaim(consumer.key, consumer.holder, holding, now)
        self._began(one, consumer, q.Consuming(
            consumer.sid, consumer.backlog, config.lease, config.semantics, config.kind,
            consumer.credit, command.cid, ends_of(kept),
        ))  # fmt: skip

    def _began(self, one: QueueState, consumer: RemoteConsumer, answer: q.Consuming) -> None:
        self._shared.out.append(Send(consumer.rid, codec.encode(answer)))
        self._shared.touch(one)

    # -- replayable queues --------------------------------------------------------------------

    def _read(
        self, connection: QueuesConnection, command: q.Consume, one: QueueState, queue: Replayable
    ) -> None:
        start_position.check(command)
        one.check_ready()  # else what a selector fits may not be known yet
        queue.check_free(connection.token.name)
        consumer = self._made(connection, command)
        consumer.opened = False
        try:
            self._openings.begin(connection, one, command, consumer)
        except ClientError:
            self.forget(consumer)
            raise

    def _opened(self, it: start_position.StartPosition) -> None:
        consumer, queue, config = it.consumer, it.queue, it.one.definition.config
        try:
            queue.check_free(consumer.client)
        except ClientError as error:
            self._refuse(it, error)
            return
        before = self._shared.consumers.get(queue.reader.key) if queue.reader is not None else None
        if before is not None:
            self.end(before, ClientError("session_ended", "this client reads the queue anew"))
        queue.open(consumer.key, consumer.client, it.start, it.until)
        consumer.opened = True
        self._began(it.one, consumer, q.Consuming(
            consumer.sid, 0, 0, config.semantics, config.kind, consumer.credit, it.command.cid,
            position=it.start,
        ))  # fmt: skip

    def _refuse(self, it: start_position.StartPosition, error: ClientError) -> None:
        self.forget(it.consumer)
        self._tell(it.consumer, error, it.command.cid)

    def _tell(self, consumer: RemoteConsumer, error: ClientError, cid: str | None = None) -> None:
        self._shared.errors += 1
        answer = m.Error(error.code, error.reason, error.hint, cid, consumer.sid)
        self._shared.out.append(Send(consumer.rid, codec.encode(answer)))

    # -- end ----------------------------------------------------------------------------------

    def cancel(self, connection: QueuesConnection, command: q.Cancel) -> None:
        """It ends; what it holds comes back. One that has ended is answered alike."""
        consumer = connection.consumers.get(command.sid)
        if consumer is not None:
            self.leave(consumer)
        elif command.sid not in connection.ended:
            raise unknown_sid(command.sid)
        answer = m.Ack("processed", command.cid, sid=command.sid)
        self._shared.out.append(Send(connection.rid, codec.encode(answer)))

    def leave(self, consumer: RemoteConsumer, *, lost: bool = False) -> None:
        """lost: its connection is gone, it may come back."""
        one = self._shared.manager.running.get(consumer.queue)
        if one is not None and consumer.opened:
            if lost:
                one.queue.lose(consumer.key, self._shared.now)
            else:
                one.queue.leave(consumer.key, self._shared.now)
            self._shared.touch(one)
        self.forget(consumer)

    def end(self, consumer: RemoteConsumer, error: ClientError) -> None:
        """The broker ends it, and says why."""
        self.leave(consumer)
        self._tell(consumer, error)

    def end_with_queues(self) -> None:
        """Ends who consumes a queue that was deleted, or purged ahead of where it was read."""
        manager, shared = self._shared.manager, self._shared
        for one in manager.overtaken:
            if isinstance(one.queue, Replayable) and one.queue.reader is not None:
                reader = shared.consumers[one.queue.reader.key]
                self.end(reader, start_position.expired(one.name, one.queue))
        for one in manager.ended:
            error = ClientError("unknown_queue", f"queue {one.name!r} was deleted")
            for consumer in list(shared.of.get(one.name, {}).values()):
                self.end(consumer, error)
            one.abandon("unknown_queue")
            shared.note_use(one)
        manager.overtaken.clear()
        manager.ended.clear()

    def forget(self, consumer: RemoteConsumer) -> None:
        """It is over."""
        self._shared.remove(consumer)

    def flow(self, connection: QueuesConnection, command: m.Flow) -> None:
        """More credit."""
        consumer = connection.consumers.get(command.sid)
        if consumer is None:
            if command.sid in connection.ended:
                return  # it ended while this was on its way
            raise unknown_sid(command.sid)
        consumer.credit += connection.grant(consumer.sid, command.bytes, consumer.credit)
        one = self._shared.manager.running.get(consumer.queue)
        if one is not None:
            self._shared.touch(one)


def positions_of(ends: list[int]) -> BitMap64:
    """Raises: ClientError bad_field."""
    try:
        return of_ends(ends)
    except ValueError as error:
        raise ClientError("bad_field", f"key `ends`: {error}") from None


def unknown_sid(sid: str) -> ClientError:
    """The refusal of a command for a consumer that never was."""
    return ClientError("unknown_sid", f"no consumer {sid[:64]!r} on this connection")
