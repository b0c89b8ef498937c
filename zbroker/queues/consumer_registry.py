"""Consumers: they begin, end, get lost and come back. Pure.

consume --(replayable: where from?)--> consuming --cancel--> over: what it holds comes back
                                         | connection lost
                                         v
                              lost: its leases wait for the same consumer, one lease at most;
                              of a session with a time-out: as long as that is not over

Where a consumer of a replayable queue begins is found in start_positions.py.
"""

from __future__ import annotations

from typing import Final

from pyroaring import BitMap64

from zbroker.errors import ClientError
from zbroker.ids import format_vector, raise_to
from zbroker.log.records import ends_of, of_ends
from zbroker.queues.consumer_credit import ConsumerCredit, check_flow, unknown_sid
from zbroker.queues.context import QueuesConnection, QueuesContext, RemoteConsumer
from zbroker.queues.exclusive_queues import ExclusiveQueues
from zbroker.queues.queue_state import QueueState
from zbroker.queues.replayable import Replayable
from zbroker.queues.start_positions import StartPosition, StartPositions, check, expired
from zbroker.queues.work import held_back, session_consumers
from zbroker.queues.work.queue import Queue
from zbroker.wire import codec
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q
from zbroker.wire.bodies import CODEC_ZSTD
from zbroker.wire.transactions import SessionKey

CONSUMERS_MAX: Final = 1_000  # per connection


class ConsumerRegistry:
    """All consumers of the process."""

    def __init__(self, shared: QueuesContext, exclusive: ExclusiveQueues) -> None:
        self._shared, self._exclusive = shared, exclusive
        self.starts = StartPositions(shared, self)
        self.credit = ConsumerCredit(shared)
        self._last_key = 0

    # -- begin --------------------------------------------------------------------------------

    def consume(self, connection: QueuesConnection, command: q.Consume) -> None:
        """Raises: ClientError."""
        self.check_right(connection, command.queue)
        one = self._shared.running(command.queue)
        self._exclusive.check(connection, one, command)
        if command.sid in connection.consumers:
            raise ClientError("sid_in_use", f"sid {command.sid!r} is in use on this connection")
        if len(connection.consumers) >= CONSUMERS_MAX:
            raise ClientError("too_many", f"{CONSUMERS_MAX} consumers per connection")
        connection.use.account.check_subscription()
        if self._shared.leaves(one):
            raise drained()
        check_flow(command, replayable=isinstance(one.queue, Replayable))
        if isinstance(one.queue, Replayable):
            self._read(connection, command, one, one.queue)
        else:
            self._join(connection, command, one, one.queue)

    def check_right(self, connection: QueuesConnection, queue: str) -> None:
        """Raises: ClientError not_entitled."""
        principal = connection.token.principal
        if self._shared.connections.access.permit(principal, "consume").verdict(queue) != "all":
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
        holding = self._shared.manager.good(positions_of(command.holding), command.generation)
        if command.session and holding:
            one.check_ready()  # else what will be held back for it is missed
        session = self._session(connection, command)
        consumer = self._made(connection, command)
        consumer.filter = content
        now, config = self._shared.now, one.definition.config
        most = queue.join(consumer.key, consumer.holder, command.backlog, content is not None, now)
        self.credit.begin(queue, consumer, command)
        lease_ms = config.lease
        if session is not None and session_consumers.add(queue, consumer.key, session):
            consumer.session, lease_ms = session, 0
            self._shared.manager.sessions.consumes(session, one.name)
        claimed = BitMap64()
        if consumer.session is not None:
            claimed = held_back.claim(queue, consumer.key, holding)
            self._shared.manager.sessions.restated(consumer.session, one.name, consumer.holder)
        kept = claimed | queue.reclaim(consumer.key, consumer.holder, holding, now)
        self._began(one, consumer, q.Consuming(
            consumer.sid, most, lease_ms, config.semantics, config.kind,
            consumer.credit, command.cid, ends_of(kept), flow_mode=command.flow_mode,
        ))  # fmt: skip

    def _session(self, connection: QueuesConnection, command: q.Consume) -> SessionKey | None:
        """The session that it is to be of. What waits for this consumer does not wait any more.

        Raises: ClientError.
        """
        if not command.session:
            return None
        key = SessionKey(connection.token.principal, command.session)
        self._shared.manager.sessions.check(key, command.epoch)
        name = f"{connection.token.name}/{command.holder or command.sid}"
        before = self._shared.holders.get((command.queue, name))
        if before is not None and before.session == key:  # its loss was not noticed yet
            self.leave(before, lost=True)
            error = ClientError("session_ended", "this consumer began again")
            self._shared.refuse(before.rid, error, sid=before.sid)
        return key

    def _began(self, one: QueueState, consumer: RemoteConsumer, answer: q.Consuming) -> None:
        one.consumed, one.used_ms = True, self._shared.now.mono_ms
        self._shared.send(consumer.rid, answer)
        self._shared.touch(one)

    # -- replayable queues --------------------------------------------------------------------

    def _read(
        self, connection: QueuesConnection, command: q.Consume, one: QueueState, queue: Replayable
    ) -> None:
        check(command)
        one.check_ready()  # else what a selector fits may not be known yet
        queue.check_free(connection.token.name)
        consumer = self._made(connection, command)
        consumer.opened = False
        try:
            self.starts.begin(connection, one, command, consumer)
        except ClientError:
            self._shared.remove(consumer)
            raise

    def opened(self, it: StartPosition) -> None:
        """The place where it begins is known."""
        consumer, queue, config = it.consumer, it.queue, it.one.definition.config
        try:
            queue.check_free(consumer.client)
        except ClientError as error:
            self.refuse(it, error)
            return
        before = self._shared.consumers.get(queue.reader.key) if queue.reader is not None else None
        if before is not None:
            self.end(before, ClientError("session_ended", "this client reads the queue again"))
        queue.open(consumer.key, consumer.client, it.start, it.until)
        consumer.opened = True
        passed = None
        if it.shared is not None:
            queue.skip(it.passed or {}, it.had)
            vector = it.shared.passed_at(it.start)
            raise_to(vector, it.passed or {})
            passed = format_vector(vector)
        self._began(it.one, consumer, q.Consuming(
            consumer.sid, 0, 0, config.semantics, config.kind, consumer.credit, it.command.cid,
            position=it.start, vector=passed,
        ))  # fmt: skip

    def refuse(self, it: StartPosition, error: ClientError) -> None:
        """There is no place where it can begin."""
        self._shared.remove(it.consumer)
        self._shared.touch(it.one)
        self._shared.refuse(it.consumer.rid, error, it.command.cid, it.consumer.sid)

    # -- end ----------------------------------------------------------------------------------

    def cancel(self, connection: QueuesConnection, command: q.Cancel) -> None:
        """It ends; what it holds comes back. One that has ended is answered alike."""
        consumer = connection.consumers.get(command.sid)
        if consumer is not None:
            self.leave(consumer)
        elif command.sid not in connection.ended:
            raise unknown_sid(command.sid)
        self._shared.send(connection.rid, m.Ack("processed", command.cid, sid=command.sid))

    def leave(self, consumer: RemoteConsumer, *, lost: bool = False) -> None:
        """lost: its connection is gone, it may come back."""
        one = self._shared.manager.running.get(consumer.queue)
        # its queue may be another one by now, and its end is on its way
        if one is not None and consumer.opened and one.queue.has(consumer.key):
            if lost:
                one.queue.lose(consumer.key, self._shared.now)
            else:
                one.queue.leave(consumer.key)
            self._shared.touch(one)
        self._shared.remove(consumer)

    def end(self, consumer: RemoteConsumer, error: ClientError) -> None:
        """The broker ends it, and says why."""
        self.leave(consumer)
        self._shared.refuse(consumer.rid, error, sid=consumer.sid)

    def end_with_queues(self) -> None:
        """Ends consumers of queues that were deleted, or purged ahead of where they read."""
        manager, shared = self._shared.manager, self._shared
        for one in manager.overtaken:
            if isinstance(one.queue, Replayable) and one.queue.reader is not None:
                reader = shared.consumers[one.queue.reader.key]
                self.end(reader, expired(one.name, one.queue))
        for one in manager.ended:
            error = ClientError("unknown_queue", f"queue {one.name!r} was deleted")
            if one.met:
                error = ClientError("not_ready", f"queue {one.name!r} is read again; consume again")
            after = manager.running.get(one.name)  # another queue of that name
            for consumer in list(shared.of.get(one.name, {}).values()):
                if after is None or not after.queue.has(consumer.key):
                    shared.remove(consumer)
                    shared.refuse(consumer.rid, error, sid=consumer.sid)
            one.abandon(error.code)
            shared.note_use(one)
        manager.overtaken.clear()
        manager.ended.clear()

    def end_with_sessions(self) -> None:
        """Ends consumers of sessions that are over; what they held comes back."""
        shared, sessions = self._shared, self._shared.manager.sessions
        over, sessions.over = sessions.over, []
        for session in over:
            text = f"session {session.key.session[:64]!r} is over: {session.why}"
            for one in [shared.manager.running.get(name) for name in session.queues]:
                if one is None or not isinstance(one.queue, Queue):
                    continue
                outcomes = session_consumers.end(
                    one.queue, session.key, shared.now, failed=session.failed
                )
                one.entries += [(outcome, None) for outcome in outcomes]
                shared.touch(one)
                for consumer in list(shared.of.get(one.name, {}).values()):
                    if consumer.session == session.key:
                        code = "not_ready" if session.elsewhere else "session_fenced"
                        self.end(consumer, ClientError(code, text))


def positions_of(ends: list[int]) -> BitMap64:
    """Raises: ClientError bad_field."""
    try:
        return of_ends(ends)
    except ValueError as error:
        raise ClientError("bad_field", f"key `ends`: {error}") from None


def drained() -> ClientError:
    """The refusal of consumers of replicated queues while the instance is to stop."""
    reason = "this instance is drained: consumers of replicated queues go on at another one"
    return ClientError("not_ready", reason, "connect with the URLs of all instances")
