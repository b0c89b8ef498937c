"""A turn whose core, sources and performers do what the test says, and remember what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from zbroker.engine.contract import Limit, Now, Ready, TurnPlan
from zbroker.engine.effects import Exit, Gate, Reconnect, Say, Send, Sync, Write
from zbroker.engine.turn import Turn

Decide = Callable[[Any], Sequence[Any]]
Do = Callable[[Any], Any]


class Script:
    """A core. decide: what follows from an event; reads: what `next_read` gives, one by one."""

    def __init__(self, log: list[Any], decide: Decide) -> None:
        self.log, self.decide = log, decide
        self.reads: list[Any] = []
        self.at_tick: Sequence[Any] = ()
        self.wake_ms: int | None = None

    def handle(self, event: Any, now: Now) -> Sequence[Any]:
        self.log.append(("heard", event))
        return self.decide(event)

    def tick(self, now: Now, *, drained: bool) -> Sequence[Any]:
        self.log.append(("tick", drained))
        return self.at_tick

    def next_read(self) -> Any:
        return self.reads[0] if self.reads else None

    def next_wake_ms(self) -> int | None:
        return self.wake_ms


class Given:
    """A source that has what the test put into it. open: see Gate."""

    def __init__(self, *waiting: Any) -> None:
        self.waiting = list(waiting)
        self.drained = self.open = True
        self.wake_ms: int | None = None

    def events(self, ready: Ready, limit: Limit) -> Iterator[Any]:
        for _ in range(limit.count if self.open else 0):
            if not self.waiting:
                break
            yield self.waiting.pop(0)
        self.drained = not self.waiting

    def next_wake_ms(self) -> int | None:
        return self.wake_ms


class Rig:
    """`log`: all that the core heard and the performers did, in order."""

    def __init__(
        self, turn: type[Turn[Any, Any]], decide: Decide, *sources: Iterable[Any], **do: Do
    ) -> None:
        """do: by name of the effect's type; others are noted and complete at once with nothing."""
        self.log: list[Any] = []
        self.now_ms = 0
        self.core = Script(self.log, decide)
        self.sources = [each if isinstance(each, Given) else Given(*each) for each in sources]
        kinds = (int, str, Send, Say, Reconnect, Gate, Write, Sync, Exit, tuple)
        performers = {kind: self._noted(do.get(kind.__name__, lambda _: None)) for kind in kinds}
        plan = TurnPlan([(each, Limit(100)) for each in self.sources], kinds, 1_000, 100)
        self.plan = plan
        self.turn = turn(self.core, plan, performers, lambda: Now(self.now_ms, 0))

    def _noted(self, do: Do) -> Do:
        def noted(effect: Any) -> Any:
            self.log.append(effect)
            return do(effect)

        return noted

    def run(self) -> int | None:
        return self.turn.run({})

    @property
    def heard(self) -> list[Any]:
        return [what[1] for what in self.log if type(what) is tuple and what[0] == "heard"]

    @property
    def done(self) -> list[Any]:
        """Effects in the order in which they were performed."""
        return [what for what in self.log if type(what) is not tuple]
