"""What a transaction takes from queues: messages that consumers of its client hold now. Pure.

held --decided--> outcomes of each queue --commit--> one unit: the record of the transaction,
                                                     then the facts of the queues
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from zbroker.errors import ClientError
from zbroker.log.records import encode
from zbroker.queues.commits import Numbered
from zbroker.queues.consumer_registry import positions_of
from zbroker.queues.context import QueuesConnection, QueuesContext, RemoteConsumer
from zbroker.queues.queue_state import Entry, QueueState, facts_of
from zbroker.queues.replicated.fact_records import UnitStamp
from zbroker.queues.scope_changes import ScopeChanges
from zbroker.queues.unit_records import unit_records
from zbroker.queues.work.queue import Queue
from zbroker.wire.branches import PrepareTransaction
from zbroker.wire.transactions import ACCEPTS_MAX, Accepted, CommitTransaction


class Taking(NamedTuple):
    """What a transaction takes from the messages of one consumer."""

    one: QueueState
    queue: Queue
    consumer: RemoteConsumer
    positions: BitMap64


#: a queue, and what is decided of its messages
Taken = tuple[QueueState, list[Entry]]


class TransactionTakes:
    """Finds them, and commits what is decided of them."""

    def __init__(self, shared: QueuesContext, scopes: ScopeChanges) -> None:
        self._shared, self._scopes = shared, scopes

    def held(
        self, connection: QueuesConnection, command: CommitTransaction | PrepareTransaction
    ) -> list[Taking]:
        """What it takes, all of which its consumers hold. Raises: ClientError, session_fenced if
        its session is not attached here in its epoch."""
        _check_attached(connection, command)
        accepts = command.accepts
        if len({(one.queue, one.holder) for one in accepts}) < len(accepts):
            raise ClientError("bad_field", "key `accepts`: a consumer is there twice")
        if len(accepts) > ACCEPTS_MAX:
            raise ClientError("too_many", f"a transaction takes from {ACCEPTS_MAX} consumers")
        takes: list[Taking] = []
        for each in accepts:
            one, positions = self._shared.running(each.queue), positions_of(each.ends)
            if not isinstance(one.queue, Queue):
                raise ClientError("bad_field", "key `accepts`: a replayable queue is left out")
            one.check_ready()
            if self._scopes.holds(one):
                raise ClientError("not_ready", f"queue {one.name!r} is being changed")
            consumer = self._consumer(connection, each)
            if consumer is None:
                raise _aborted(f"a consumer of {one.name!r} is over")
            if not one.queue.holds(consumer.key, positions):
                raise _aborted(f"a consumer of {one.name!r} does not hold all of its messages now")
            if self._shared.manager.good(positions, each.generation) != positions:
                raise _aborted(f"these positions are not of generation {each.generation}")
            if positions:
                takes.append(Taking(one, one.queue, consumer, positions))
        return takes

    def _consumer(self, connection: QueuesConnection, said: Accepted) -> RemoteConsumer | None:
        """The one that is meant, on whatever connection."""
        found = self._shared.holders.get((said.queue, f"{connection.token.name}/{said.holder}"))
        other = None if found is None else self._shared.connections.get(found.rid)
        mine = other is not None and other.token.principal == connection.token.principal
        return found if mine else None

    def settled(self, take: Taking) -> list[Entry]:
        """They are acknowledged."""
        result = take.queue.settle(take.consumer.key, take.positions, "ack", self._shared.now)
        assert result.taken == len(take.positions), "it holds all of them"
        take.consumer.acked += result.taken
        self._shared.touch(take.one)
        return [(outcome, None) for outcome in result.outcomes]

    def commit(
        self, kind: int, record: Numbered, taken: Sequence[Taken],
        done: Callable[[ClientError | None, int, int], None],
    ) -> None:  # fmt: skip
        """A unit. done: called with its refusal, and the positions of the record and of the last
        part."""
        commits = self._shared.manager.commits
        number = commits.number()
        stamp = UnitStamp(commits.incarnation, number)
        record.by, record.unit = stamp
        made = [(kind, encode(record))]
        for one, entries in taken:
            if entries:
                made += unit_records(one, facts_of([outcome for outcome, _ in entries]), stamp)

        def landed(code: str, reason: str, position: int) -> None:
            for one, entries in taken:
                one.over(entries, code)
                self._shared.touch(one)
            error = ClientError(code, reason) if code else None
            done(error, position - len(made) + 1, position)

        commits.add_made(made, landed, number)


def _check_attached(
    connection: QueuesConnection, command: CommitTransaction | PrepareTransaction
) -> None:
    if connection.epochs.get(command.session) != command.epoch:
        text = f"session {command.session[:64]!r} is not attached here in epoch {command.epoch}"
        raise ClientError("session_fenced", text)


def _aborted(why: str) -> ClientError:
    return ClientError("transaction_aborted", f"{why}: nothing of the transaction holds")
