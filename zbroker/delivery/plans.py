"""Answers to `ranges`: what became of a plan that the loop worked on. Pure."""

from __future__ import annotations

from zbroker.delivery.commands import refusal
from zbroker.delivery.connections import Connection, Connections
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.effects import Counts, Effect, Plan
from zbroker.engine.effects import Note, Send
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire import messages as m


class Plans:
    """Plans end here; each one frees a place of its connection."""

    def __init__(self, connections: Connections, cursors: Cursors, counts: Counts) -> None:
        self._connections = connections
        self._cursors = cursors
        self._counts = counts

    def planned(self, plan: Plan, ranges: list[tuple[int, int, int]]) -> list[Effect]:
        """The log between two points is split."""
        connection, here = self._ended(plan), self._cursors.here
        if connection is None or here is None:
            return []
        floor = self._cursors.floor
        answer = m.RangeList(
            here.generation,
            here.instance,
            floor,
            plan.persisted,
            ranges,
            plan.cid,
            plan.start.position,
        )
        return [Send(plan.rid, codec.encode(answer))]

    def failed(self, plan: Plan, reason: str) -> list[Effect]:
        """The log between two points cannot be split."""
        if self._ended(plan) is None:
            return []
        error = ClientError("internal", "the log could not be read")
        return [
            refusal(self._counts, plan.rid, error, plan.cid),
            Note("delivery.plan_failed", f"{reason}; its client was told; nothing is lost"),
        ]

    def _ended(self, plan: Plan) -> Connection | None:
        connection = self._connections.get(plan.rid)
        if connection is not None:
            connection.plans -= 1
        return connection
