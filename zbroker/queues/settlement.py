"""Acks, releases, rejects, extends: which messages are meant, and what becomes of them. Pure.

    named by positions   at once          by bookmarks   the journal looks them up
    by a filter          what is leased is read and compared

A command is answered once all of it is durable; so a client repeats a command without an answer,
and nothing is done twice: messages that are gone are ignored. Source: queues.md, "Delivery".
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyroaring import BitMap64

from zbroker.errors import ClientError
from zbroker.queues.consumer_credit import unknown_sid
from zbroker.queues.consumer_registry import ConsumerRegistry, positions_of
from zbroker.queues.context import QueuesConnection, QueuesContext, RemoteConsumer
from zbroker.queues.queue_state import QueueState, after_all
from zbroker.queues.scope_changes import ScopeChanges
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.sets import without
from zbroker.queues.work.values import SettleResult
from zbroker.wire import queue_messages as q

BOOKMARKS_MAX: Final = 1_000  # one look-up each

_VERBS: Final = {
    q.Settle: "ack",
    q.Release: "release",
    q.RejectMessages: "reject",
    q.Extend: "extend",
}


class SettleRequest(NamedTuple):
    """A command of a connection. consumer: None if it is about a queue, by a client.

    stale: how many positions name no message of this log.
    """

    rid: bytes
    command: q.Settle
    one: QueueState
    consumer: RemoteConsumer | None
    stale: int = 0

    @property
    def key(self) -> int | None:
        return None if self.consumer is None else self.consumer.key


class Settlement:
    """Settles messages for clients."""

    def __init__(
        self, shared: QueuesContext, consumers: ConsumerRegistry, scopes: ScopeChanges
    ) -> None:
        self._shared = shared
        self._consumers = consumers
        self._scopes = scopes

    def settle(self, connection: QueuesConnection, command: q.Settle) -> None:
        """Raises: ClientError."""
        one, consumer = self._whose(connection, command)
        if not self._scopes.holds(one):
            one.check_ready()  # else messages that enter later would be reported as ignored
        if sum(map(bool, (command.ends, command.bookmarks, command.filter))) > 1:
            raise ClientError("bad_field", "key `ends`, `bookmarks`, `filter`: one of them")
        named = positions_of(command.ends)
        good = self._shared.manager.good(named, command.generation)
        if named and not good:
            text = f"these positions of generation {command.generation} are none of this log's"
            raise ClientError("stale_epoch", text)
        stale = len(named) - len(good)
        request = SettleRequest(connection.rid, command, one, consumer, stale)
        if command.bookmarks:
            self._by_bookmarks(request)
        elif command.filter:
            self._by_filter(connection, request)
        else:
            self._do(request, good)

    def _whose(
        self, connection: QueuesConnection, command: q.Settle
    ) -> tuple[QueueState, RemoteConsumer | None]:
        """The queue that is meant, and the consumer, if it is one."""
        if command.sid is not None:
            consumer = connection.consumers.get(command.sid)
            if consumer is not None:
                one = self._shared.running(consumer.queue)
                return one, consumer if one.queue.has(consumer.key) else None
            if command.queue is None:
                raise unknown_sid(command.sid)
        if command.queue is None:
            raise ClientError("bad_field", "key `sid` or `queue`: one of them is needed")
        self._consumers.check_right(connection, command.queue)
        return self._shared.running(command.queue), None

    def _by_bookmarks(self, request: SettleRequest) -> None:
        bookmarks = request.command.bookmarks
        if len(bookmarks) > BOOKMARKS_MAX:
            raise ClientError("too_many", f"a command names at most {BOOKMARKS_MAX} bookmarks")

        def found(positions: BitMap64, error: ClientError | None) -> None:
            if error is None:
                self._do_later(request, positions)
            else:
                self._refuse(request, error)

        self._shared.locate_all(bookmarks, found)

    def _by_filter(self, connection: QueuesConnection, request: SettleRequest) -> None:
        content = self._shared.compile(connection, request.command.filter)
        assert content is not None
        if not isinstance(request.one.queue, Queue):
            raise ClientError("bad_field", "key `filter`: nothing is leased in a replayable queue")
        leased = request.one.queue.leased(request.key)
        if leased:
            self._shared.examine(leased, content, lambda hits: self._do_later(request, hits))
        else:
            self._do(request, leased)

    def _do_later(self, request: SettleRequest, positions: BitMap64) -> None:
        """Queue and consumer may be over by now."""
        key, known = request.key, self._shared.consumers
        if key is not None and not (key in known and request.one.queue.has(key)):
            request = request._replace(consumer=None)
            if isinstance(request.command, q.Release | q.Extend):
                positions = BitMap64()  # all that it had came back already
        try:
            self._shared.check_runs(request.one)
            self._do(request, positions)
        except ClientError as error:
            self._refuse(request, error)

    def _do(self, request: SettleRequest, positions: BitMap64) -> None:
        if self._scopes.hold(request.one, lambda one: self._held(request, positions, one)):
            return
        command, queue, verb = request.command, request.one.queue, _VERBS[type(request.command)]
        # asked for before, and not durable yet
        before = without(positions & queue.going, request.one.locked)
        if isinstance(queue, Queue):
            result = queue.settle(
                request.key, positions, verb, self._shared.now,
                delay_ms=command.delay_ms if isinstance(command, q.Release) else 0,
                reason=command.reason if isinstance(command, q.RejectMessages) else "",
                lease_ms=command.lease_ms if isinstance(command, q.Extend) else 0,
            )  # fmt: skip
        else:
            result = queue.settle(positions, verb)
        if verb == "ack" and request.consumer is not None:
            request.consumer.acked += result.taken
        self._shared.touch(request.one)
        self._promise(request, result, before)

    def _held(self, request: SettleRequest, positions: BitMap64, one: QueueState | None) -> None:
        """It is known what the queue is now."""
        if one is not None:
            request = request._replace(one=one)
        self._do_later(request, positions)

    def _promise(self, request: SettleRequest, result: SettleResult, before: BitMap64) -> None:
        """Answers once all of it has landed, also what was asked for before, and is safe."""
        command, one = request.command, request.one
        ignored = max(result.ignored + request.stale, len(command.bookmarks) - result.taken)
        answer = q.Settled(command.cid, command.sid, result.taken, ignored)

        def answer_now() -> None:
            if request.rid in self._shared.connections:
                self._shared.send(request.rid, answer)

        def answered(code: str) -> None:
            if code:
                self._refuse(request, ClientError(code, "it could not be written"))
            elif isinstance(command, q.Extend):
                answer_now()  # nothing of it is written
            else:
                self._shared.promise(one, answer_now, known=ignored > 0)

        landed = after_all(len(result.outcomes) + bool(before), answered)
        if before:
            one.waiters.append((before, landed))
        one.entries += [(outcome, landed) for outcome in result.outcomes]

    def _refuse(self, request: SettleRequest, error: ClientError) -> None:
        """An answer that comes late."""
        answer = self._shared.connections.refusal(request.rid, error, request.command.cid)
        if request.rid in self._shared.connections:
            self._shared.out.append(answer)
