"""zbroker/queues/snapshots.py: what the tables lack."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tests.queues.bench import HERE, Bench, bench, replayable, work
from zbroker import known_log
from zbroker.engine.contract import Limit
from zbroker.engine.effects import Exit
from zbroker.log.generations import Generations
from zbroker.queues import snapshots
from zbroker.queues.registry import QueueRegistry
from zbroker.queues.saved_queue import SavedQueue
from zbroker.queues.snapshots import SAVE_MS, Key, SaveSchedule, Snapshot, Snapshots, position_of
from zbroker.queues.tables import LOOK_MS, TableWriter
from zbroker.wire import queue_surveys as s


def _held(at: Bench) -> dict[str, list[object]]:
    """What each queue holds, and what is known of it."""
    return {
        name: [(position, one.queue.where(position, at.now)) for position in one.queue.here]
        for name, one in at.manager.running.items()
    }


class Tables:
    """What they hold, as snapshots are written to them."""

    def __init__(self, at: Bench) -> None:
        self.at = at
        self.snapshots = Snapshots()
        self.many: dict[Key, SavedQueue] = {}
        self.upto = 0

    def save(self) -> Snapshot:
        taken = self.snapshots.take(self.at.manager)
        if taken.whole:
            self.many = {}
        for key in taken.gone:
            del self.many[key]
        self.many |= taken.many
        self.upto = taken.upto
        return taken

    def load(self) -> dict[tuple[str, int], SavedQueue]:
        found = {}
        for key, one in self.many.items():
            position = position_of(one.position, self.upto, self.at.persisted)
            assert position is not None
            found[key] = one._replace(position=position)
        return found


def test_a_queue_that_stands_still_is_copied_once() -> None:
    at = bench(work("busy"), *(work(f"idle{i}", topic=f"x{i}") for i in range(20)))
    tables = Tables(at)
    assert len(tables.save().many) == 21
    at.many(3)
    taken = tables.save()
    assert (taken.whole, list(taken.many), taken.upto) == (False, [("busy", 1)], at.position)
    assert tables.save().many == {}


def test_what_was_not_written_is_copied_again_with_all_else() -> None:
    at = bench(work("a"), work("b", topic="x"))
    tables = Tables(at)
    tables.save()
    at.many(1)
    tables.snapshots.take(at.manager)
    tables.snapshots.forget()
    assert (tables.save().whole, list(tables.many)) == (True, [("a", 1), ("b", 1)])


def test_a_queue_that_was_made_again_replaces_the_one_before() -> None:
    at = Bench()
    tables = Tables(at)
    for what in ("create", "delete", "create"):
        definition = {"topic": "t"} if what == "create" else {}
        at.ask(s.Define(1, what, "q", definition))
        tables.save()
    assert list(tables.many) == [("q", 2)]
    at.ask(s.Define(1, "delete", "q"))
    assert tables.save().gone == [("q", 2)]


def test_a_queue_that_reads_the_log_by_itself_keeps_no_other_back() -> None:
    """Nor is it taken for as far as they are: it is not in the tables before it is through."""
    at = bench(work("a"))
    at.many(5)
    tables = Tables(at)
    at.reading = False
    at.ask(s.Define(1, "create", "late", {"topic": "t", "recovery_point": "epoch"}))
    taken = tables.save()
    assert list(taken.many) == [("a", 1)]
    assert taken.upto == at.one("a").folded
    at.reading = True
    at.run()
    tables.save()
    assert sorted(tables.many) == [("a", 1), ("late", 1)]


@pytest.mark.parametrize("seed", range(20))
def test_tables_of_what_changed_are_tables_of_all(seed: int) -> None:
    """A restart with them goes on as one that reads the whole log does."""
    rng = random.Random(seed)
    at = bench(work("a"), work("b", topic="x", max_deliveries=2), replayable("c", topic="x"))
    at.consume("a", sid="a")
    at.consume("b", sid="b")
    tables = Tables(at)
    for _ in range(30):
        step = rng.randrange(6)
        if step == 0:
            at.many(rng.randrange(1, 4), topic=rng.choice("tx"))
        elif step == 1:
            at.ack(*[one for one in at.got("a") if one in at.here("a")][:1], sid="a")
        elif step == 2:
            at.release(*[one for one in at.got("b") if one in at.here("b")][:1], sid="b")
        elif step == 3:
            at.ask(s.Purge(1, rng.choice("abc")))
        elif step == 4:
            tables.save()
        else:
            at.noop()
    tables.save()
    at.many(2, topic=rng.choice("tx"))
    tabled = tables.load()
    at.restart()
    expected = _held(at)
    at.restart(tabled)
    assert _held(at) == expected
    assert at.notes == []


@pytest.mark.parametrize(
    ("saved", "upto", "persisted", "position"),
    [(5, 9, 10, 9), (9, 5, 10, 9), (5, 9, 8, 5), (5, 9, 4, None), (5, 0, 5, 5), (5, 9, 9, 9)],
)
def test_a_queue_is_where_the_log_is_known(
    saved: int, upto: int, persisted: int, position: int | None
) -> None:
    assert position_of(saved, upto, persisted) == position


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


class Clock:
    def mono_ms(self) -> int:
        return 0

    def wall_ns(self) -> int:
        return 0


class Saves:
    """A schedule and the tables, as in a process. schedule: of `manager`."""

    def __init__(self, path: Path) -> None:
        self.tables = TableWriter(path, Clock())
        self.schedule: SaveSchedule | None = None
        self.ended = False

    def turn(self, manager: QueueRegistry, now_ms: int) -> None:
        """The end of one."""
        self.schedule = self.schedule or SaveSchedule(manager)
        for event in self.tables.events({}, Limit(1)):
            self.schedule.saved(event)
        for effect in self.schedule.tick(now_ms):
            if isinstance(effect, Exit):
                self.ended = True
            else:
                self.tables.save(effect)

    def stop(self, manager: QueueRegistry) -> None:
        """The process ends; the next one has another schedule."""
        self.schedule = self.schedule or SaveSchedule(manager)
        self.schedule.stop()
        self.ended = False
        while not self.ended:
            self.turn(manager, 0)
            if self.tables._writing is not None:
                wait([self.tables._writing], 60)
        self.schedule = None

    def load(self, at: Bench) -> dict[Key, SavedQueue]:
        return self.tables.load(HERE, at.persisted, at.manager.history)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Saves]:
    made = Saves(tmp_path)
    yield made
    made.tables.close()


@pytest.fixture
def slow(one: Saves) -> Thread:
    one.tables._thread.shutdown()
    thread = one.tables._thread = Thread()  # type: ignore[assignment]
    return thread


def _filled() -> tuple[Bench, list[int]]:
    at = bench()
    return at, at.many(4)


def test_what_was_saved_is_where_a_restart_goes_on(one: Saves) -> None:
    at, positions = _filled()
    at.consume()
    at.ack(positions[0])
    at.release(positions[1])
    one.stop(at.manager)
    more = at.many(1)
    at.ack(positions[3])
    before = at.one().queue.dump()
    saved = one.load(at)
    assert saved["q", 1].position < at.position
    at.restart(saved)
    assert at.here() == [*positions[1:3], *more]
    assert at.one().queue.dump() == before
    assert at.notes == []


def test_nothing_is_saved_before_it_is_known_what_the_log_is(one: Saves, slow: Thread) -> None:
    manager = Bench(work(), welcome=False).manager
    one.turn(manager, 0)
    one.turn(manager, SAVE_MS)
    one.stop(manager)
    assert slow.given == []
    assert one.ended


def test_tables_are_written_from_time_to_time_if_something_happened(
    one: Saves, slow: Thread
) -> None:
    at, _ = _filled()
    one.turn(at.manager, 1_000)
    one.turn(at.manager, 1_000 + SAVE_MS - 1)
    assert slow.given == []
    assert one.tables.next_wake_ms() is None
    one.turn(at.manager, 1_000 + SAVE_MS)
    assert len(slow.given) == 1
    assert one.tables.next_wake_ms() == LOOK_MS
    slow.work()
    one.turn(at.manager, 1_000 + 2 * SAVE_MS)
    assert slow.given == [], "nothing happened since"
    at.many(1)
    one.turn(at.manager, 1_000 + 2 * SAVE_MS)
    assert len(slow.given) == 1


def test_tables_are_written_earlier_when_much_happened(
    one: Saves, slow: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "SAVE_POSITIONS", 10)
    at, _ = _filled()
    one.turn(at.manager, 0)
    assert slow.given == []
    at.many(10)
    one.turn(at.manager, 1)
    assert len(slow.given) == 1


def test_one_save_ends_before_the_next_begins(one: Saves, slow: Thread) -> None:
    at, _ = _filled()
    one.turn(at.manager, 0)
    one.turn(at.manager, SAVE_MS)
    at.many(1)
    one.turn(at.manager, 3 * SAVE_MS)
    assert len(slow.given) == 1
    slow.work()
    one.turn(at.manager, 3 * SAVE_MS)
    assert len(slow.given) == 1


def test_what_is_written_is_of_one_moment(one: Saves, slow: Thread) -> None:
    at, positions = _filled()
    one.turn(at.manager, 0)
    one.turn(at.manager, SAVE_MS)
    folded = at.one().folded
    at.ack(*positions, sid=None, queue="q")
    slow.work()
    saved = one.load(at)
    assert saved["q", 1].position == folded
    at.restart(saved)
    assert at.here() == []


def test_what_cannot_be_written_is_reported_and_tried_again(one: Saves, slow: Thread) -> None:
    at, _ = _filled()
    one.turn(at.manager, 0)
    one.turn(at.manager, SAVE_MS)
    slow.work(lmdb.MapFullError("full"))
    at.many(1)
    one.turn(at.manager, 2 * SAVE_MS)
    [(_, _, (_, taken))] = slow.given
    assert taken.whole, "what was not written may be missing anywhere"
    at.run()
    assert [note.name for note in at.notes] == ["queues.not_saved"]


def test_the_last_save_waits_for_the_one_before(one: Saves) -> None:
    at, _ = _filled()
    one.turn(at.manager, 0)
    one.turn(at.manager, SAVE_MS)
    more = at.many(1)
    one.stop(at.manager)
    at.restart(one.load(at))
    assert at.here()[-1:] == more
    assert at.one().counts.entered == 0


def test_a_queue_that_was_deleted_is_not_in_the_tables_any_more(one: Saves) -> None:
    at = bench(work("a"), work("b"))
    one.stop(at.manager)
    assert sorted(one.load(at)) == [("a", 1), ("b", 1)]
    at.configs = [work("a")]
    at.restart()
    one.stop(at.manager)
    assert list(one.load(at)) == [("a", 1)]


def test_a_queue_that_is_being_read_is_not_saved(one: Saves) -> None:
    at, positions = _filled()
    at.reading = False
    at.restart()
    one.stop(at.manager)
    assert one.load(at) == {}
    at.reading = True
    at.run()
    assert at.here() == positions


def test_how_far_the_log_was_is_beside_the_tables(one: Saves, tmp_path: Path) -> None:
    """The journal's next start finds out by it that an older log was put back."""
    many = {("q", 1): SavedQueue(40, 40, {}), ("r", 2): SavedQueue(70, 40, {})}
    taken = Snapshot(True, 0, many, {("q", 1): 1, ("r", 2): 1}, [])
    one.tables._write(HERE, taken)
    assert known_log.read(tmp_path, HERE.instance) == (HERE.generation, 70)
    (tmp_path / f"{known_log.NAME}.new").mkdir()
    one.tables._write(HERE, taken)
    assert one.tables.load(HERE, 100, Generations([(HERE.generation, 1)])).keys() == many.keys()
    (tmp_path / f"{known_log.NAME}.new").rmdir()
    one.tables._write(HERE, Snapshot(False, 90, {}, {}, []))
    assert known_log.read(tmp_path, HERE.instance) == (HERE.generation, 90)
