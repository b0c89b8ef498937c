"""Acks, releases, rejects, extends: which messages are meant, and what becomes of them. Pure.

    named by positions   at once          by bookmarks   the journal looks them up
    by a filter          what is leased is read and compared

Answered once it is durable, all of one command together; so a client repeats what was not answered,
and nothing is done twice: what is gone is ignored. Source: queues.md, "Delivery".
"""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap64

from zbroker.engine.effects import Send
from zbroker.errors import ClientError
from zbroker.queues.consumer_registry import ConsumerRegistry, positions_of, unknown_sid
from zbroker.queues.context import QueuesConnection, QueuesContext, RemoteConsumer
from zbroker.queues.queue_state import QueueState
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import SettleResult as Taken
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire.internal import Located

BOOKMARKS_MAX: Final = 1_000  # one look-up each

_VERBS: Final = {
    q.Settle: "ack",
    q.Release: "release",
    q.RejectMessages: "reject",
    q.Extend: "extend",
}


class Settlement:
    """Of the room."""

    def __init__(self, shared: QueuesContext, consuming: ConsumerRegistry) -> None:
        self._shared = shared
        self._consuming = consuming

    def settle(self, connection: QueuesConnection, command: q.Settle) -> None:
        """Raises: ClientError."""
        one, consumer = self._whose(connection, command)
        one.check_ready()  # else what enters later would be told as ignored
        self._check_generation(command)
        if sum(map(bool, (command.ends, command.bookmarks, command.filter))) > 1:
            raise ClientError("bad_field", "key `ends`, `bookmarks`, `filter`: one of them")
        if command.bookmarks:
            self._by_bookmarks(connection, command, one, consumer)
        elif command.filter:
            self._by_filter(connection, command, one, consumer)
        else:
            self._do(connection.rid, command, one, consumer, positions_of(command.ends))

    def _whose(
        self, connection: QueuesConnection, command: q.Settle
    ) -> tuple[QueueState, RemoteConsumer | None]:
        """The queue that is meant, and the consumer, if it is one."""
        if command.sid is not None:
            consumer = connection.consumers.get(command.sid)
            if consumer is not None:
                return self._shared.running(consumer.queue), consumer
            if command.queue is None:
                raise unknown_sid(command.sid)
        if command.queue is None:
            raise ClientError("bad_field", "key `sid` or `queue`: one of them is needed")
        self._consuming.check_right(connection, command.queue)
        return self._shared.running(command.queue), None

    def _check_generation(self, command: q.Settle) -> None:
        here = self._shared.manager.here
        now = here.generation if here is not None else 0
        if command.ends and command.generation not in (None, now):
            text = f"these positions are of generation {command.generation}, this is {now}"
            raise ClientError("stale_epoch", text)

    def _by_bookmarks(
        self,
        connection: QueuesConnection,
        command: q.Settle,
        one: QueueState,
        consumer: RemoteConsumer | None,
    ) -> None:
        if len(command.bookmarks) > BOOKMARKS_MAX:
            raise ClientError("too_many", f"a command names at most {BOOKMARKS_MAX} bookmarks")
        positions, left, rid = BitMap64(), [len(command.bookmarks)], connection.rid

        def found(located: Located) -> None:
            left[0] -= 1
            if left[0] < 0:
                return  # it was refused
            if located.code == "not_ready":
                left[0] = 0
                self.refuse(rid, command, ClientError(located.code, located.reason))
                return
            if not located.code and located.position:
                positions.add(located.position)
            if left[0] == 0:
                self._do_later(rid, command, one, consumer, positions)

        for bookmark in command.bookmarks:
            self._shared.locate(bookmark, found, "at")

    def _by_filter(
        self,
        connection: QueuesConnection,
        command: q.Settle,
        one: QueueState,
        consumer: RemoteConsumer | None,
    ) -> None:
        content, rid = self._shared.compile(connection, command.filter), connection.rid
        assert content is not None
        if not isinstance(one.queue, Queue):
            raise ClientError("bad_field", "key `filter`: nothing is leased in a replayable queue")
        leased = one.queue.leased(consumer.key if consumer is not None else None)
        if not leased:
            self._do(rid, command, one, consumer, leased)
            return
        self._shared.examine(
            leased, content, lambda hits: self._do_later(rid, command, one, consumer, hits)
        )

    def _do_later(
        self, rid: bytes, command: q.Settle, one: QueueState, consumer: RemoteConsumer | None,
        positions: BitMap64,
    ) -> None:  # fmt: skip
        if self._shared.manager.running.get(one.name) is not one:
            error = ClientError("unknown_queue", f"queue {one.name!r} was deleted")
            self.refuse(rid, command, error)
            return
        if consumer is not None and consumer.key not in self._shared.consumers:
            consumer = None  # it is over, and what it had came back: only what is done counts
            if isinstance(command, q.Release | q.Extend):
                positions = BitMap64()
        try:
            self._do(rid, command, one, consumer, positions)
        except ClientError as error:
            self.refuse(rid, command, error)

    def _do(
        self, rid: bytes, command: q.Settle, one: QueueState, consumer: RemoteConsumer | None,
        positions: BitMap64,
    ) -> None:  # fmt: skip
        verb = _VERBS[type(command)]
        before = positions & one.queue.going  # asked for before, and not durable yet
        if isinstance(one.queue, Queue):
            taken = one.queue.settle(
                consumer.key if consumer is not None else None, positions, verb, self._shared.now,
                delay_ms=command.delay_ms if isinstance(command, q.Release) else 0,
                reason=command.reason if isinstance(command, q.RejectMessages) else "",
                lease_ms=command.lease_ms if isinstance(command, q.Extend) else 0,
            )  # fmt: skip
        else:
            taken = one.queue.settle(positions, verb)
        if verb == "ack" and consumer is not None:
            consumer.acked += taken.taken
        self._shared.touch(one)
        self._promise(rid, command, one, taken, before)

    def _promise(
        self, rid: bytes, command: q.Settle, one: QueueState, taken: Taken, before: BitMap64
    ) -> None:
        """The answer follows once all of it has landed, also what was asked for before."""
        left, refused = [len(taken.outcomes) + bool(before)], [""]
        ignored = max(taken.ignored, len(command.bookmarks) - taken.taken)
        answer = q.Settled(command.cid, command.sid, taken.taken, ignored)

        def landed(code: str) -> None:
            left[0] -= 1
            refused[0] = refused[0] or code
            if left[0] == 0:
                self._answer(rid, command, answer, refused[0])

        if not left[0]:
            self._answer(rid, command, answer, "")
        if before:
            one.waiters.append((before, landed))
        one.entries += [(outcome, landed) for outcome in taken.outcomes]

    def _answer(self, rid: bytes, command: q.Settle, answer: q.Settled, code: str) -> None:
        if code:
            self.refuse(rid, command, ClientError(code, "it could not be written"))
        elif rid in self._shared.connections:
            self._shared.out.append(Send(rid, codec.encode(answer)))

    def refuse(self, rid: bytes, command: q.Settle, error: ClientError) -> None:
        """An answer that comes late."""
        self._shared.errors += 1
        answer = m.Error(error.code, error.reason, error.hint, command.cid)
        if rid in self._shared.connections:
            self._shared.out.append(Send(rid, codec.encode(answer)))
