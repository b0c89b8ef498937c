"""How far subscriptions came, what becomes of those that cannot go on, and who is told. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zbroker.delivery.commands import refusal
from zbroker.delivery.cursors import Cursors
from zbroker.delivery.effects import DeliveryStats, Effect
from zbroker.delivery.replay import Replay
from zbroker.delivery.subscription import SubscriptionState
from zbroker.engine.effects import Note, Send
from zbroker.errors import ClientError
from zbroker.ids import format_vector
from zbroker.log.reader import Gap
from zbroker.wire import codec
from zbroker.wire import messages as m

TOLD_MS: Final = 1_000  # how often subscriptions are told how far they came, if nothing else does


class SubscriptionProgress:
    """end: forgets a subscription."""

    def __init__(
        self, cursors: Cursors, counts: DeliveryStats, end: Callable[[SubscriptionState], None]
    ) -> None:
        self._cursors = cursors
        self._counts = counts
        self._end = end
        self._next_told_ms = 0

    def look(self, replay: Replay) -> list[Effect]:
        """What becomes of subscriptions that may have come to an end or caught up.

        Those that a gap stands in the way of are the ones that did not end before it.
        """
        effects: list[Effect] = []
        for one in list(replay.members):
            safe = one.safe(replay.position)
            if one.over(replay.position):
                effects.append(self.told(replay, one, "completed", ended=True))
                self._end(one)
            elif not one.bounded and not one.caught_up and safe >= one.target:
                one.caught_up = True
                effects.append(self.told(replay, one, "completed"))
        if replay.gap is not None:
            effects += self._report_gap(replay, replay.gap)
        return effects

    def told(
        self, replay: Replay, one: SubscriptionState, kind: str, *, ended: bool = False
    ) -> Send:
        """How far a subscription came: a resume point. What is not durable yet is none."""
        safe = min(one.safe(replay.position), max(self._cursors.persisted, one.told))
        one.told = safe
        at_mark = safe == replay.position
        known = one.wish.permit is None  # else it may be the name of what may not be seen
        answer = m.Ack(
            kind, sid=one.names.sid, bookmark=replay.bookmark if at_mark and known else None,
            vector=self._vector(safe), ended=ended,
        )  # fmt: skip
        return Send(one.names.rid, codec.encode(answer))

    def due(self, now_ms: int) -> list[Effect]:
        """Resume points for those that passed something and may have been sent nothing of it."""
        if now_ms < self._next_told_ms:
            return []
        self._next_told_ms = now_ms + TOLD_MS + len(self._cursors.of)  # many: less often
        persisted = self._cursors.persisted
        return [
            self.told(replay, one, "persisted")
            for replay in self._cursors.running.values() for one in replay.members
            if min(one.safe(replay.position), persisted) > one.told
        ]  # fmt: skip

    def _vector(self, position: int) -> str:
        """The resume point that goes on at `position`."""
        assert self._cursors.here is not None
        return format_vector({self._cursors.here: position - 1})

    def _report_gap(self, replay: Replay, gap: Gap) -> list[Effect]:
        where = f"positions {gap.first} to {gap.end - 1} cannot be served: {gap.why}"
        hint = f"resume behind them with the vector {self._vector(gap.end)}"
        note = f"{where}; a subscriber was told and has to go on behind them"
        return self.fail(replay, ClientError("gap", where, hint), Note("delivery.gap", note))

    def fail(self, replay: Replay, error: ClientError, note: Note) -> list[Effect]:
        """Ends all that follow a replay which cannot go on."""
        effects: list[Effect] = []
        for one in list(replay.members):
            self._end(one)
            effects.append(refusal(self._counts, one.names.rid, error, None, one.names.sid))
        return [*effects, note]
