"""zbroker/server/process_loop.py: how a process waits, turns and ends."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from zbroker.config import Config
from zbroker.cpus import ANY_CPU
from zbroker.engine.contract import Now, TurnPlan
from zbroker.engine.effects import Exit, Note, Pace, Ready, RunOn
from zbroker.paths import Paths
from zbroker.server import process_loop
from zbroker.server.process import EX_OK, Process
from zbroker.server.process_loop import ONE, ProcessLoop


class Sockets:
    """A poller. found: what it finds at each look; waited: how long it was to wait."""

    def __init__(self, *found: list[tuple[str, int]]) -> None:
        self.found, self.waited = list(found), list[int | None]()

    def register(self, *_: object) -> None:
        """All sockets are in `found`."""

    def poll(self, wait_ms: int | None) -> list[tuple[str, int]]:
        self.waited.append(wait_ms)
        return self.found.pop(0) if self.found else []


class Core:
    """Wants these effects, one for each turn, and then to be woken after `wake_ms`."""

    def __init__(self, *effects: object) -> None:
        self.effects, self.turns = list(effects), 0
        self.wake_ms: int | None = None

    def handle(self, event: object, now: Now) -> Sequence[Any]:
        return []

    def tick(self, now: Now, *, drained: bool) -> Sequence[Any]:
        self.turns += 1
        return [self.effects.pop(0)] if self.effects else []

    def next_read(self) -> None:
        return None

    def next_wake_ms(self) -> int | None:
        return self.wake_ms

    def stats(self) -> dict[str, int]:
        return {"turns": self.turns}


class Source:
    """Notes what the poller found."""

    drained, next_wake_ms = True, None

    def __init__(self) -> None:
        self.ready: list[Any] = []

    def events(self, ready: Any, limit: object) -> Sequence[Any]:
        self.ready.append(ready)
        return ()


class Loop(ProcessLoop):
    """One with a core and nothing else."""

    def __init__(self, process: Process, poller: Sockets, *effects: object) -> None:
        super().__init__(process)
        self.poller = poller  # type: ignore[assignment]
        self.looks = Sockets()
        self.hot = self.looks  # type: ignore[assignment]
        self.source, self.other, self.closed = Source(), Source(), 0
        self.made = Core(*effects)
        sources: list[Any] = [(self.source, ONE), (self.other, ONE)]
        plan = TurnPlan(sources, (Note, Pace, RunOn, Ready, Exit), hot=[self.source])
        self.begin(self.made, plan, {})

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    paths = Paths(tmp_path, tmp_path / "journal", tmp_path / "archive", 1)
    made = Process("journal", Config(), paths)
    yield made
    made.close()


def test_without_a_pace_it_sleeps_at_once(process: Process) -> None:
    poller = Sockets([], [("link", 1)])
    loop = Loop(process, poller)
    loop.turn()
    loop.turn()
    assert (poller.waited, loop.source.ready) == ([0, None], [{}, {"link": 1}])


def test_with_a_pace_it_looks_before_it_sleeps(process: Process) -> None:
    poller = Sockets([("link", 1)])
    loop = Loop(process, poller, Pace(20_000_000))
    loop.looks.found = [[], [("client", 1)]]
    loop.turn()
    loop.turn()
    assert (poller.waited, loop.looks.waited) == ([0], [0, 0])
    assert loop.source.ready == [{"link": 1}, {"client": 1}]


def test_a_turn_for_what_it_looked_for_leaves_other_sources_alone(process: Process) -> None:
    loop = Loop(process, Sockets([("link", 1)]), Pace(20_000_000))
    loop.looks.found = [[("client", 1)], [("client", 1)]]
    for _ in range(3):
        loop.turn()
    assert (len(loop.source.ready), len(loop.other.ready), loop.made.turns) == (3, 1, 3)


def test_after_a_while_it_looks_at_all_sources(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_loop, "LOOK_S", -1.0)
    poller = Sockets([("link", 1)], [("client", 1), ("link", 1)])
    loop = Loop(process, poller, Pace(20_000_000))
    loop.looks.found = [[("client", 1)]]
    loop.turn()
    loop.turn()
    assert (poller.waited, loop.other.ready[-1]) == ([0, 0], {"client": 1, "link": 1})


def test_before_it_sleeps_it_has_looked_at_all_sources(process: Process) -> None:
    poller = Sockets([("link", 1)])
    loop = Loop(process, poller, Pace(1))
    loop.looks.found = [[("client", 1)]]
    for _ in range(4):
        loop.turn()
    assert (poller.waited, len(loop.other.ready)) == ([0, 0, None], 3)


def test_what_is_to_be_done_at_once_waits_for_nothing(process: Process) -> None:
    poller = Sockets([("link", 1)])
    loop = Loop(process, poller, Pace(20_000_000))
    loop.made.wake_ms = 0
    loop.turn()
    loop.turn()
    assert (poller.waited, loop.looks.waited) == ([0, 0], [])


def test_a_pace_ends(process: Process) -> None:
    poller = Sockets([("link", 1)])
    loop = Loop(process, poller, Pace(20_000_000), Pace(0))
    loop.looks.found = [[("client", 1)]]
    for _ in range(4):
        loop.turn()
    assert (poller.waited, loop.looks.waited) == ([0, 0, None], [0])


def test_it_runs_where_the_core_says(process: Process) -> None:
    allowed = os.sched_getaffinity(0)
    loop = Loop(process, Sockets(), RunOn(min(allowed)), RunOn(ANY_CPU))
    loop.turn()
    here = os.sched_getaffinity(0)
    loop.turn()
    assert (here, os.sched_getaffinity(0)) == ({min(allowed)}, allowed)


def test_it_turns_until_the_core_says_that_all_is_done(process: Process) -> None:
    loop = Loop(process, Sockets(), Pace(0), Exit(), Pace(0))
    assert loop.run() == EX_OK
    assert (loop.made.turns, loop.closed) == (2, 1)


def test_it_is_closed_after_an_error(process: Process) -> None:
    loop = Loop(process, Sockets(), "no effect")
    with pytest.raises(KeyError):
        loop.run()
    assert loop.closed == 1


def test_a_process_that_serves_says_where_with_its_statistics(process: Process) -> None:
    loop = Loop(process, Sockets(), Ready())
    loop.endpoint = "tcp://127.0.0.1:5"
    loop.turn()
    assert (process.endpoint, process.stats) == ("tcp://127.0.0.1:5", {"turns": 1})


@pytest.mark.parametrize("level", ["info", "warning", "error"])
def test_a_note_is_a_line_of_the_log(process: Process, level: Any) -> None:
    loop = Loop(process, Sockets(), Note("queues.read_failed", "why", level, {"at": 1}))
    loop.log = mock.Mock()
    loop.turn()
    getattr(loop.log, level).assert_called_once_with(
        "%s: %s", "queues.read_failed", "why", extra={"values": {"at": 1}}
    )
