"""Plans that are worked on, for `ranges`: they begin again with another journal. Pure."""

from __future__ import annotations

from zbroker.delivery.commands import refusal
from zbroker.delivery.connections import Connections, DeliveryConnection
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.effects import DeliveryStats, Effect, PlanRanges
from zbroker.delivery.events import Planned
from zbroker.engine.effects import Note, Send
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire import messages as m


class Plans:
    """open: those that were not answered; the log from their start on is held."""

    def __init__(self, connections: Connections, cursors: Cursors, counts: DeliveryStats) -> None:
        self.open: list[PlanRanges] = []
        self._connections = connections
        self._cursors = cursors
        self._counts = counts

    def begin(self, plan: PlanRanges) -> list[Effect]:
        """Its points are known."""
        self.open.append(plan)
        return [plan]

    def planned(self, planned: Planned) -> list[Effect]:
        """The log between two points is split."""
        plan = planned.plan
        connection, here = self._ended(plan), self._cursors.here
        if connection is None or here is None:
            return []
        floor = self._cursors.floor
        answer = m.RangeList(
            here.generation,
            here.instance,
            floor,
            plan.persisted,
            planned.ranges,
            plan.cid,
            plan.start.position,
        )
        return [Send(plan.rid, codec.encode(answer))]

    def failed(self, plan: PlanRanges, reason: str) -> list[Effect]:
        """The log between two points cannot be split."""
        if self._ended(plan) is None:
            return []
        error = ClientError("internal", "the log could not be read")
        return [
            refusal(self._counts, plan.rid, error, plan.cid),
            Note("delivery.plan_failed", f"{reason}; its client was told; nothing is lost"),
        ]

    def _ended(self, plan: PlanRanges) -> DeliveryConnection | None:
        self.open.remove(plan)
        connection = self._connections.get(plan.rid)
        if connection is not None:
            connection.plans -= 1
        return connection
