"""Which part of the log delivery needs: what it tells the journal before segments may go. Pure.

A cursor only moves forward, and none is opened below a floor that was heard of (`Core.located` asks
again), so what is told stays true: once no cursor stands below a floor, none ever will.
Needed are running subscriptions, also those that wait for credit; points that the journal told
while others of the same question are still looked up; and stretches that are being split.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from heapq import nsmallest
from operator import attrgetter
from typing import NamedTuple

from zbroker.delivery.connections import Connections
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.effects import PlanRanges
from zbroker.delivery.pending_lookups import Asking
from zbroker.limits import HOLDINGS_MAX, U63_MAX
from zbroker.wire.internal import Holding, Holds


class Need(NamedTuple):
    """The log from `position` on, for a connection. `key` stays the same while it is needed."""

    position: int
    key: Hashable
    rid: bytes
    what: str


class LogNeeds:
    """Everything that a delivery room needs."""

    def __init__(self, connections: Connections, cursors: Cursors, asking: Asking) -> None:
        self._connections = connections
        self._cursors = cursors
        self._asking = asking
        self._since: dict[Hashable, int] = {}  # wall clock, ms, when a need was first told

    def holds(self, incarnation: int, plans: Iterable[PlanRanges], wall_ms: int) -> Holds:
        """For the journal with this incarnation."""
        needs = [*self._running(), *self._asked(), *_planned(plans)]
        since = self._since
        self._since = {need.key: since.get(need.key, wall_ms) for need in needs}
        lowest = nsmallest(HOLDINGS_MAX, needs, key=attrgetter("position"))
        holdings = [self._holding(need) for need in lowest]
        first = lowest[0].position if lowest else U63_MAX
        return Holds(incarnation, self._cursors.floor, first, holdings, self._cursors.eager)

    def _running(self) -> Iterator[Need]:
        for replay in self._cursors.running.values():
            for one in replay.members:
                position = one.safe(replay.position)
                yield Need(position, one.names.key, one.names.rid, one.topic)

    def _asked(self) -> Iterator[Need]:
        """What was told and stands below the floor by now is not begun there, but asked again."""
        for question in self._asking.questions():
            told = [one.position for one in question.answers.values() if not one.code]
            if told and min(told) >= self._cursors.floor:
                key = question.key or ("ranges", question.rid, question.command.cid)
                yield Need(min(told), key, question.rid, question.what)

    def _holding(self, need: Need) -> Holding:
        connection = self._connections.get(need.rid)
        who = connection.token.name if connection is not None else ""
        return Holding(who, need.what, need.position, self._since[need.key])


def _planned(plans: Iterable[PlanRanges]) -> Iterator[Need]:
    for plan in plans:
        yield Need(plan.start.position, ("ranges", plan.rid, plan.cid), plan.rid, "ranges")
