"""Purges: messages leave a queue because somebody says so, not because they are done. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from zbroker.errors import ClientError
from zbroker.ids import format_vector, parse_vector
from zbroker.log.format import KIND_PURGE
from zbroker.log.records import PurgeRecord
from zbroker.queues.commits import Done, PendingUnit, control
from zbroker.queues.context import QueuesContext
from zbroker.queues.queue_state import FACTS_MAX, QueueState, after_all
from zbroker.queues.replayable import Replayable
from zbroker.queues.replicated.fact_records import UnitStamp, purge_of
from zbroker.queues.replicated.replicated_replayable import ReplicatedReplayable
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.values import Outcome
from zbroker.wire.queue_surveys import PointRow

FORCED: Final = "purged by an operator"  # the text of the dead letters of a purge


class ReplayPurge(NamedTuple):
    """What a replayable queue does not need any more. taken: how many messages that is here.
    changes: false: nothing of it is in the queue, or will be."""

    vector: str
    taken: int
    changes: bool


class Purges:
    """Purges queues of both kinds."""

    def __init__(self, shared: QueuesContext) -> None:
        self._shared = shared

    def work(
        self, one: QueueState, queue: Queue, before: int, done: Callable[[str, int], None],
        *, leased: bool = False, letters: bool = False,
    ) -> None:  # fmt: skip
        """Messages before a position leave a work queue. leased: also what consumers have. letters:
        they become dead letters. done: called with "" or a code, and how many they are."""
        # only the owner makes a dead letter of a message
        purged = queue.purge(before, leased, owned=letters)
        outcomes = [part for each in purged for part in _parts(each)]
        if letters:
            outcomes = [part._replace(why="forced", letter=FORCED) for part in outcomes]
        count = sum(len(each.positions) for each in outcomes)
        landed = after_all(len(outcomes), lambda code: done(code, count))
        one.entries += [(outcome, landed) for outcome in outcomes]
        self._shared.touch(one)

    def replayable(self, one: QueueState, purge: ReplayPurge, done: Done) -> None:
        """A replayable queue needs nothing any more that a vector covers."""
        commits, replicated = self._shared.manager.commits, one.replicated
        if not isinstance(replicated, ReplicatedReplayable):
            commits.add_record(KIND_PURGE, PurgeRecord(one.name, purge.vector), done)
            return
        stamp = UnitStamp(commits.incarnation, commits.number())
        kind, body = purge_of(replicated, parse_vector(purge.vector), stamp)
        commits.add(PendingUnit([control(kind, body)], [body], done, stamp.unit))

    def of(self, one: QueueState, before: int, point: PointRow | None = None) -> ReplayPurge:
        """What a purge of a replayable queue takes that ends at a position here, or at a point.
        Raises: ClientError not_ready."""
        queue, replicated = one.queue, one.replicated
        assert isinstance(queue, Replayable)
        if not isinstance(replicated, ReplicatedReplayable):
            count = len(queue.before(before))
            return ReplayPurge(self.vector(before), count, changes=count > 0)
        if point is not None and point.covers:
            vector = parse_vector(point.covers)
        else:
            vector = replicated.vector_before(before, one.folded)
        changes = bool(vector) and not replicated.is_purged(vector)
        return ReplayPurge(format_vector(vector), len(replicated.had(vector)), changes=changes)

    def vector(self, position: int) -> str:
        """The vector that covers all positions before `position`. Raises: ClientError not_ready."""
        here = self._shared.manager.here
        if here is None:
            raise ClientError("not_ready", "the journal was not heard of yet")
        return format_vector({here: position - 1})


def _parts(outcome: Outcome) -> Iterator[Outcome]:
    """The outcome in parts of a size that one unit can take."""
    left = outcome.positions
    while left:
        yield outcome._replace(positions=left[:FACTS_MAX])
        left = left[FACTS_MAX:]
