"""In which order the ingest core's effects are performed, with the turn that ships."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, get_args

from tests.ingest.rig import WALL_NS, WELCOME, item, made
from tests.sim.ingest_process import Nested
from zbroker.engine.contract import Limit, Now, Ready, TurnPlan
from zbroker.engine.effects import Answer, Say
from zbroker.engine.events import Commands, Gone
from zbroker.engine.turn import Turn
from zbroker.ingest.contract import Effect, PublishLimits
from zbroker.ingest.core import IngestCore
from zbroker.wire import internal as i
from zbroker.wire import messages as m

A = b"\0aaaa"


class Script:
    """A source of these events, one a turn."""

    drained, next_wake_ms = True, None

    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()

    def events(self, ready: Ready, limit: Limit) -> Iterator[Any]:
        if self.waiting:
            yield self.waiting.popleft()


class Process:
    """The core on a turn. said: all that went to the journal; gone: clients that were cut off."""

    def __init__(self, kind: type[Turn[Any, Any]]) -> None:
        self.core: IngestCore = made(PublishLimits(1_000, 1_000, 10_000, 10))
        self.said: list[Any] = []
        self.gone: set[bytes] = set()
        self._script = Script()
        performers: dict[type, Any] = dict.fromkeys(get_args(Effect), lambda effect: None)
        performers |= {Answer: self._answer, Say: self._say}
        plan = TurnPlan([(self._script, Limit(1))], get_args(Effect))
        self._turn = kind(self.core, plan, performers, lambda: Now(0, WALL_NS))

    def _answer(self, effect: Answer) -> Gone | None:
        return Gone(effect.rid) if effect.rid in self.gone else None

    def _say(self, effect: Say) -> None:
        self.said.append(effect.message)

    def run(self, *events: Any) -> None:
        self._script.waiting += events
        for _ in events:
            self._turn.run({})


def closed_by_an_answer_that_fails(kind: type[Turn[Any, Any]]) -> list[type]:
    """A new publisher is cut off while its first batch is on its way to the journal."""
    process = Process(kind)
    process.run(Commands([item(A, m.Logon("p", "x", "1"), None)]))
    [opening] = [message for message in process.said if isinstance(message, i.Open)]
    process.run(i.Opened(opening.cid, "p", 42, 100))
    process.said.clear()
    process.gone = {A}
    publish = m.Publish(1, "t", ack=["processed"])
    process.run(Commands([item(A, publish, b"data")]))
    assert not process.core.clients.by_rid
    return [type(message) for message in process.said]


def test_a_session_is_closed_after_the_batch_that_came_before() -> None:
    """The journal would forget a new publisher, and refuse its first batch as `session_ended`."""
    assert closed_by_an_answer_that_fails(Turn) == [i.Append, i.Close]


def test_with_nested_completions_the_close_overtakes_the_batch() -> None:
    assert closed_by_an_answer_that_fails(Nested) == [i.Close, i.Append]


def test_ended_sessions_are_only_those_of_a_welcome_to_this_process() -> None:
    process = Process(Turn)
    process.run(Commands([item(A, m.Logon("p", "x", "1"), None)]))
    [opening] = [message for message in process.said if isinstance(message, i.Open)]
    process.run(i.Opened(opening.cid, "p", 42, 100))
    stale = i.Welcome(WELCOME.incarnation, WELCOME.echo - 1, 9, 1, 1, "disk", 1, 1, 1, ["p"])
    process.run(stale)
    assert list(process.core.clients.by_name) == ["p"]
