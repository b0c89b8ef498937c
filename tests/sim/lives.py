"""One life of a simulated process: the turn that ships, over ports of the world, until it dies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.sim.ports import Killed, draw, mortal
from zbroker.engine.contract import Limit, TurnPlan
from zbroker.engine.turn import Turn

POLL_MS: Final = 20  # it sleeps no longer


class ProcessLife:
    """host: counts down its `deaths`, and has its disk."""

    turn: type[Turn[Any, Any]] = Turn
    now: Any  # of its host
    core: Any

    def __init__(self, world: Any, host: Any) -> None:
        self.world, self.host, self.alive = world, host, True

    def begin(
        self, judged: Any, sources: Sequence[Any], effects: Sequence[type],
        performers: dict[type, Callable[[Any], Any]],
    ) -> None:  # fmt: skip
        """From now on it has turns. judged: its core, and what has to be true of it."""
        kept = judged.performers(mortal(performers, self._point))
        limited = [(each, Limit(1)) for each in sources]
        self._plan = TurnPlan(limited, tuple(effects), read_slice_ms=1_000)
        self._turn = self.turn(judged, self._plan, kept, lambda: self.now)
        self.world.at.after(0, self._next_turn)

    def kill(self) -> None:
        """It dies now; its host lets go of it."""
        raise NotImplementedError

    def _next_turn(self) -> None:
        world = self.world
        if not self.alive:
            return
        draw(self._plan, world.rng)
        try:
            with self.host.undisturbed_disk():
                wait_ms = self._turn.run({})
        except Killed:
            self.kill()
            return
        self.core.check()
        if wait_ms == 0:
            world.at.after(world.rng.choice((0, 0, 1, 5)), self._next_turn)
        else:
            world.at.after(POLL_MS if wait_ms is None else min(wait_ms, POLL_MS), self._next_turn)

    def _point(self, _boundary: str = "") -> None:
        """It may die here."""
        self.host.deaths -= 1
        if self.host.deaths == 0:
            raise Killed
