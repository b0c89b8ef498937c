"""zbroker/admin/queue_watch.py: what is known of queues between two questions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.admin.queue_rows import Clock, Room, row
from zbroker.admin import queue_watch
from zbroker.admin.queue_watch import STALE_MS, QueueWatch
from zbroker.wire import queue_surveys as q

BOUND_S = 10.0
HOUR_MS = 3_600_000


class Bench:
    def __init__(self) -> None:
        self.room, self.clock = Room(), Clock()
        self.watch = QueueWatch(self.room.desk, self.clock)

    def look(self, *rows: q.QueueRow, after_ms: int = 1_000) -> None:
        self.room.rows = list(rows)
        self.clock.ms += after_ms
        self.watch.look()

    def known_ms(self, up_ms: int = HOUR_MS) -> dict[str, int]:
        return dict(self.watch.seen(up_ms).known_ms)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_before_the_first_look_nothing_is_known(bench: Bench) -> None:
    assert bench.watch.rows() == []
    assert bench.watch.numbers() == {}
    assert bench.watch.totals()["count"] == 0


def test_totals_are_those_of_all_queues(bench: Bench) -> None:
    bench.look(row("a", depth=3, ready=2, dead=1), row("b", depth=4, leased=4))
    found = bench.watch.totals()
    assert {key: found[key] for key in ("count", "depth", "ready", "leased", "dead")} == {
        "count": 2, "depth": 7, "ready": 2, "leased": 4, "dead": 1,
    }  # fmt: skip


def test_the_history_gets_what_has_grown(bench: Bench) -> None:
    bench.look(row("a", depth=3, acked=50))
    bench.look(row("a", depth=2, acked=52), row("b", depth=5))
    found = bench.watch.numbers()["queues"]
    assert (found["depth"], found["acked_grown"]) == (7, 2)


def test_a_room_that_hangs_is_believed_for_a_while(bench: Bench) -> None:
    bench.look(row("a", depth=3))
    bench.room.silent = True
    bench.look(after_ms=STALE_MS - 1)
    assert [one.name for one in bench.watch.rows()] == ["a"]
    bench.look(after_ms=1)
    assert bench.watch.rows() == []
    assert bench.watch.numbers() == {}


def test_a_queue_that_was_there_is_known_as_long_as_the_room_runs(bench: Bench) -> None:
    bench.look(row("a", depth=1))
    assert bench.known_ms() == {"a": HOUR_MS}


def test_a_queue_that_is_new_is_known_since_it_came(bench: Bench) -> None:
    bench.look(row("a", depth=1))
    bench.look(row("a", depth=1), row("b", depth=1))
    bench.look(row("a", depth=1), row("b", depth=1), after_ms=500)
    assert bench.known_ms() == {"a": HOUR_MS, "b": 500}
    assert bench.known_ms(up_ms=100) == {"a": 100, "b": 100}


def test_a_queue_that_is_made_again_is_new(bench: Bench) -> None:
    bench.look(row("a", depth=1))
    bench.look(row("a", life=2, depth=1))
    assert bench.known_ms() == {"a": 0}


def test_only_what_changed_is_asked_for(bench: Bench) -> None:
    bench.look(row("a", depth=1), row("b", depth=2), row("c", depth=4, bytes=9))
    bench.room.changed = [row("b", depth=7), row("d", depth=8)], ["c"]
    bench.look()
    assert [(ask.since, ask.of) for ask in bench.room.asked] == [(0, 0), (1, 1)]
    assert sorted((one.name, one.depth) for one in bench.watch.rows()) == [
        ("a", 1), ("b", 7), ("d", 8),
    ]  # fmt: skip
    assert bench.watch.numbers()["queues"]["depth"] == 16
    assert sorted(one.name for one in bench.watch.filled()) == ["a", "b", "d"]
    bench.room.changed = [row("b")], []
    bench.look()
    assert sorted(one.name for one in bench.watch.filled()) == ["a", "d"]


def test_what_does_not_change_grows_older(bench: Bench) -> None:
    """How long nobody took from it follows from the time: the room says it once."""
    bench.look(row("a", depth=1, idle_ms=500), row("empty", idle_ms=500))
    bench.room.changed = [], []
    bench.look(after_ms=2_000)
    seen = bench.watch.seen(HOUR_MS)
    assert ([one.name for one in seen.rows], dict(seen.ago_ms)) == (["a"], {"a": 2_000})


def test_another_process_tells_everything(bench: Bench) -> None:
    bench.look(row("a", depth=1), row("b"))
    bench.room.incarnation = 2
    bench.look(row("b", depth=3))
    assert [(one.name, one.depth) for one in bench.watch.rows()] == [("b", 3)]
    bench.look(row("b", depth=3))
    assert bench.room.asked[-1].of == 2


def test_dead_letters_of_late_are_seen(bench: Bench) -> None:
    bench.look(row("a"))
    bench.look(row("a", dead=2))
    seen = bench.watch.seen(0)
    assert (dict(seen.dead), seen.now_ns) == ({"a": 2}, bench.clock.wall_ns())


@pytest.fixture
def running(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(queue_watch, "EVERY_S", 0.001)
    yield bench
    bench.watch.stop()
    bench.watch._thread.join(BOUND_S)
    assert not bench.watch._thread.is_alive()


def test_once_begun_it_asks_again_and_again(running: Bench) -> None:
    asked, several = running.room.ask, threading.Event()

    def ask(*arguments: Any) -> Any:
        found = asked(*arguments)
        if len(running.room.asked) >= 3:
            several.set()
        return found

    running.room.ask = ask  # type: ignore[method-assign]
    running.watch.start()
    assert several.wait(BOUND_S)
