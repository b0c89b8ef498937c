"""What a transaction takes from queues: messages that consumers of its client hold now. Pure.

held --decided--> outcomes of each queue --read--> dead letters --commit--> one unit

The unit has the record of the transaction, then dead letters of what it rejects, then the facts of
the queues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyroaring import BitMap64

from zbroker.errors import ClientError
from zbroker.log.records import encode
from zbroker.queues.commits import Body, Numbered, PendingUnit, control
from zbroker.queues.consumer_registry import positions_of
from zbroker.queues.context import QueuesConnection, QueuesContext, RemoteConsumer
from zbroker.queues.queue_state import Entry, QueueState, facts_of
from zbroker.queues.replicated.fact_records import UnitStamp
from zbroker.queues.scope_changes import ScopeChanges
from zbroker.queues.transaction_letters import Taken, TransactionLetters
from zbroker.queues.unit_records import unit_records
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Branch, Outcome
from zbroker.wire.branches import PrepareTransaction
from zbroker.wire.transactions import (
    ACCEPTS_MAX,
    REJECTS_MAX,
    Accepted,
    CommitTransaction,
    RejectedMessages,
)
from zbroker.wire.units import UnitPart


class Taking(NamedTuple):
    """What a transaction takes from the messages of one consumer. reject: the text that they are
    dead letters with; "": they are acknowledged."""

    one: QueueState
    queue: Queue
    consumer: RemoteConsumer
    positions: BitMap64
    reject: str = ""


class TransactionTakes:
    """Finds them, and commits what is decided of them."""

    def __init__(self, shared: QueuesContext, scopes: ScopeChanges) -> None:
        self._shared, self._scopes = shared, scopes
        self._letters = TransactionLetters(shared)

    def held(
        self, connection: QueuesConnection, command: CommitTransaction | PrepareTransaction
    ) -> list[Taking]:
        """What it takes, all of which its consumers hold. Raises: ClientError, session_fenced if
        its session is not attached here in its epoch."""
        _check_attached(connection, command)
        _check_counts(command.accepts, command.rejects)
        prepares = isinstance(command, PrepareTransaction)
        takes: list[Taking] = []
        taken: dict[int, BitMap64] = {}  # by consumer
        for each in (*command.accepts, *command.rejects):
            take = self._taking(connection, each)
            if prepares and take.one.name in self._shared.manager.changing:
                raise ClientError("not_ready", f"queue {take.one.name!r} is being changed")
            before = taken.setdefault(take.consumer.key, BitMap64())
            if not before.isdisjoint(take.positions):
                raise ClientError("bad_field", "key `rejects`: a message is there twice")
            before |= take.positions
            if take.positions:
                takes.append(take)
        if sum(len(take.positions) for take in takes if take.reject) > REJECTS_MAX:
            raise ClientError("too_many", f"a transaction rejects {REJECTS_MAX} messages")
        return takes

    def _taking(self, connection: QueuesConnection, said: Accepted) -> Taking:
        one, positions = self._shared.running(said.queue), positions_of(said.ends)
        if not isinstance(one.queue, Queue):
            raise ClientError("bad_field", "key `accepts`: a replayable queue is left out")
        one.check_ready()
        if self._scopes.holds(one):
            raise ClientError("not_ready", f"queue {one.name!r} is being changed")
        consumer = self._consumer(connection, said)
        if consumer is None:
            raise _aborted(f"a consumer of {one.name!r} is over")
        if not one.queue.holds(consumer.key, positions):
            raise _aborted(f"a consumer of {one.name!r} does not hold all of its messages now")
        if self._shared.manager.good(positions, said.generation) != positions:
            raise _aborted(f"these positions are not of generation {said.generation}")
        reject = (said.reason or "rejected") if isinstance(said, RejectedMessages) else ""
        return Taking(one, one.queue, consumer, positions, reject)

    def _consumer(self, connection: QueuesConnection, said: Accepted) -> RemoteConsumer | None:
        """The one that is meant, on whatever connection."""
        found = self._shared.holders.get((said.queue, f"{connection.token.name}/{said.holder}"))
        other = None if found is None else self._shared.connections.get(found.rid)
        mine = other is not None and other.token.principal == connection.token.principal
        return found if mine else None

    def settled(self, take: Taking) -> list[Entry]:
        """They are acknowledged, or rejected."""
        result = take.queue.settle(
            take.consumer.key, take.positions, "reject" if take.reject else "ack",
            self._shared.now, reason=take.reject,
        )  # fmt: skip
        assert result.taken == len(take.positions), "it holds all of them"
        if not take.reject:
            take.consumer.acked += result.taken
        self._shared.touch(take.one)
        return [(outcome, None) for outcome in result.outcomes]

    def commit(
        self, kind: int, record: Numbered, taken: Sequence[Taken],
        done: Callable[[ClientError | None, int, int], None], *, branch: Branch | None = None,
    ) -> None:  # fmt: skip
        """A unit, once what it rejects was read. done: called with its refusal, and the positions
        of the record and of the last part. branch: has locked all of it until now."""

        def over(taken: Sequence[Taken], error: ClientError | None) -> None:
            for one, entries in taken:
                if error is None or branch is None:
                    one.over(entries, "" if error is None else error.code)
                else:
                    one.over(_still_locked(one, entries, branch), error.code)
                self._shared.touch(one)

        def read(
            error: ClientError | None, taken: Sequence[Taken],
            letters: Sequence[tuple[UnitPart, Body]],
        ) -> None:  # fmt: skip
            if error is None and branch is not None and letters:
                error = _check_locked(taken, branch)
            if error is not None:
                over(taken, error)
                done(error, 0, 0)
                return

            def landed(error: ClientError | None, first: int, position: int) -> None:
                over(taken, error)
                done(error, first, position)

            self._add(kind, record, taken, letters, landed)

        self._letters.read(taken, read, limited=branch is None)

    def _add(
        self, kind: int, record: Numbered, taken: Sequence[Taken],
        letters: Sequence[tuple[UnitPart, Body]],
        done: Callable[[ClientError | None, int, int], None],
    ) -> None:  # fmt: skip
        commits = self._shared.manager.commits
        number = commits.number()
        stamp = UnitStamp(commits.incarnation, number)
        record.by, record.unit = stamp
        made = [(kind, encode(record))]
        decided: dict[str, tuple[QueueState, list[Outcome]]] = {}
        for one, entries in taken:
            outcomes = [outcome for outcome, _ in entries]
            decided.setdefault(one.name, (one, []))[1].extend(outcomes)
        for one, outcomes in decided.values():
            if outcomes:
                made += unit_records(one, facts_of(outcomes), stamp)
        first, *facts = [(control(kind, body), body) for kind, body in made]
        parts = [first, *letters, *facts]
        count = sum(part.count for part, _ in parts)

        def landed(code: str, reason: str, position: int) -> None:
            error = ClientError(code, reason) if code else None
            done(error, position - count + 1, position)

        unit = PendingUnit([part for part, _ in parts], [body for _, body in parts], landed, number)
        commits.add(unit)


def _check_counts(accepts: Sequence[Accepted], rejects: Sequence[RejectedMessages]) -> None:
    """Raises: ClientError bad_field, too_many."""
    consumers = [(one.queue, one.holder) for one in accepts]
    if len(set(consumers)) < len(consumers):
        raise ClientError("bad_field", "key `accepts`: a consumer is there twice")
    consumers += [(one.queue, one.holder) for one in rejects]
    if len(set(consumers)) > ACCEPTS_MAX:
        raise ClientError("too_many", f"a transaction takes from {ACCEPTS_MAX} consumers")
    if len(rejects) > REJECTS_MAX:
        raise ClientError("too_many", f"a transaction rejects {REJECTS_MAX} messages")


def _check_attached(
    connection: QueuesConnection, command: CommitTransaction | PrepareTransaction
) -> None:
    if connection.epochs.get(command.session) != command.epoch:
        text = f"session {command.session[:64]!r} is not attached here in epoch {command.epoch}"
        raise ClientError("session_fenced", text)


def _still_locked(one: QueueState, entries: Sequence[Entry], branch: Branch) -> list[Entry]:
    """What another decision has not unlocked: since then it may have gone to a consumer."""
    assert isinstance(one.queue, Queue)
    locked = one.queue.places.locks.all_of(branch)
    return [
        (outcome._replace(positions=outcome.positions & locked), ending)
        for outcome, ending in entries
    ]


def _check_locked(taken: Sequence[Taken], branch: Branch) -> ClientError | None:
    """Another decision may have come while letters were read."""
    if all(_still_locked(one, entries, branch) == entries for one, entries in taken):
        return None
    return ClientError("not_ready", "the branch is being decided; ask again")


def _aborted(why: str) -> ClientError:
    return ClientError("transaction_aborted", f"{why}: nothing of the transaction holds")
