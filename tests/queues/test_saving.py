"""zbroker/queues/saving.py: when the tables are written."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tests.queues.bench import HERE, Bench, bench, work
from zbroker import known_log
from zbroker.queues import saving
from zbroker.queues.manager import Saved
from zbroker.queues.saving import SAVE_MS, Saving
from zbroker.queues.snapshots import Snapshot, Snapshots


@dataclass
class Process:
    """As far as it is asked."""

    log: logging.Logger = field(default_factory=lambda: logging.getLogger("queues"))


class Thread:
    """Does what it is given when the test says so."""

    def __init__(self) -> None:
        self.given: list[tuple[Future[None], Any, tuple[Any, ...]]] = []

    def submit(self, call: Any, *args: Any) -> Future[None]:
        future: Future[None] = Future()
        self.given.append((future, call, args))
        return future

    def work(self, error: Exception | None = None) -> None:
        for future, call, args in self.given:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(call(*args))
        self.given.clear()

    def shutdown(self, wait: bool) -> None:
        self.work()


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Saving]:
    made = Saving(Process(), tmp_path)  # type: ignore[arg-type]
    yield made
    made.close()


@pytest.fixture
def slow(one: Saving) -> Thread:
    one._thread.shutdown()
    thread = one._thread = Thread()  # type: ignore[assignment]
    return thread


def _filled() -> tuple[Bench, list[int]]:
    at = bench()
    return at, at.many(4)


def test_what_was_saved_is_where_a_restart_goes_on(one: Saving) -> None:
    at, positions = _filled()
    at.consume()
    at.ack(positions[0])
    at.release(positions[1])
    one.save(at.manager)
    more = at.many(1)
    at.ack(positions[3])
    before = at.one().queue.dump()
    saved = one.load(HERE, at.persisted)
    assert saved["q", 1].position < at.position
    at.restart(saved)
    assert at.here() == [*positions[1:3], *more]
    assert at.one().queue.dump() == before
    assert at.notes == []


def test_nothing_is_saved_before_it_is_known_what_the_log_is(one: Saving, slow: Thread) -> None:
    one.save(Bench(work(), welcome=False).manager)
    assert slow.given == []


def test_tables_are_written_from_time_to_time_if_something_happened(
    one: Saving, slow: Thread
) -> None:
    at, _ = _filled()
    one.turn(at.manager, 1_000)
    one.turn(at.manager, 1_000 + SAVE_MS - 1)
    assert slow.given == []
    one.turn(at.manager, 1_000 + SAVE_MS)
    assert len(slow.given) == 1
    slow.work()
    one.turn(at.manager, 1_000 + 2 * SAVE_MS)
    assert slow.given == [], "nothing happened since"
    at.many(1)
    one.turn(at.manager, 1_000 + 2 * SAVE_MS)
    assert len(slow.given) == 1


def test_tables_are_written_earlier_when_much_happened(
    one: Saving, slow: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "SAVE_POSITIONS", 10)
    at, _ = _filled()
    one.turn(at.manager, 0)
    assert slow.given == []
    at.many(10)
    one.turn(at.manager, 1)
    assert len(slow.given) == 1


def test_one_save_ends_before_the_next_begins(one: Saving, slow: Thread) -> None:
    at, _ = _filled()
    one.turn(at.manager, 0)
    one.turn(at.manager, SAVE_MS)
    at.many(1)
    one.turn(at.manager, 3 * SAVE_MS)
    assert len(slow.given) == 1
    slow.work()
    one.turn(at.manager, 3 * SAVE_MS)
    assert len(slow.given) == 1


def test_what_is_written_is_of_one_moment(one: Saving, slow: Thread) -> None:
    at, positions = _filled()
    one.turn(at.manager, 0)
    one.turn(at.manager, SAVE_MS)
    folded = at.one().folded
    at.ack(*positions, sid=None, queue="q")
    slow.work()
    saved = one.load(HERE, at.persisted)
    assert saved["q", 1].position == folded
    at.restart(saved)
    assert at.here() == []


def test_what_cannot_be_written_is_told_and_tried_again(
    one: Saving, slow: Thread, caplog: pytest.LogCaptureFixture
) -> None:
    at, _ = _filled()
    one.turn(at.manager, 0)
    one.turn(at.manager, SAVE_MS)
    slow.work(lmdb.MapFullError("full"))
    at.many(1)
    one.turn(at.manager, 2 * SAVE_MS)
    assert "queues.not_saved" in caplog.text
    [(_, _, (_, taken))] = slow.given
    assert taken.whole, "what was not written may be missing anywhere"


def test_the_last_save_waits_for_the_one_before(one: Saving) -> None:
    at, _ = _filled()
    one.turn(at.manager, 0)
    one.turn(at.manager, SAVE_MS)
    more = at.many(1)
    one.save(at.manager)
    at.restart(one.load(HERE, at.persisted))
    assert at.here()[-1:] == more
    assert at.one().counts.entered == 0


def test_a_queue_that_was_deleted_is_not_in_the_tables_any_more(one: Saving) -> None:
    at = bench(work("a"), work("b"))
    one.save(at.manager)
    assert sorted(one.load(HERE, at.persisted)) == [("a", 1), ("b", 1)]
    at.configs = [work("a")]
    at.restart()
    one._snapshots = Snapshots()  # as in a new process
    one.save(at.manager)
    assert list(one.load(HERE, at.persisted)) == [("a", 1)]


def test_a_queue_that_is_being_read_is_not_saved(one: Saving) -> None:
    at, positions = _filled()
    at.reading = False
    at.restart()
    one.save(at.manager)
    assert one.load(HERE, at.persisted) == {}
    at.reading = True
    at.run()
    assert at.here() == positions


def test_how_far_the_log_was_stands_beside_the_tables(one: Saving, tmp_path: Path) -> None:
    """The journal's next start finds out by it that an older log was put back."""
    many = {("q", 1): Saved(40, 40, {}), ("r", 2): Saved(70, 40, {})}
    taken = Snapshot(True, 0, many, {("q", 1): 1, ("r", 2): 1}, [])
    one._write(HERE, taken)
    assert known_log.read(tmp_path, HERE.instance) == (HERE.generation, 70)
    (tmp_path / f"{known_log.NAME}.new").mkdir()
    one._write(HERE, taken)
    assert one.load(HERE, 100).keys() == many.keys()
    (tmp_path / f"{known_log.NAME}.new").rmdir()
    one._write(HERE, Snapshot(False, 90, {}, {}, []))
    assert known_log.read(tmp_path, HERE.instance) == (HERE.generation, 90)
