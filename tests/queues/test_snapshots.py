"""zbroker/queues/snapshots.py: what the tables lack."""

from __future__ import annotations

import random

import pytest

from tests.queues.bench import Bench, bench, replayable, work
from zbroker.queues.registry import SavedQueue
from zbroker.queues.snapshots import Key, Snapshot, Snapshots, position_of
from zbroker.wire import queue_surveys as s


def _held(at: Bench) -> dict[str, list[object]]:
    """What each queue holds, and what is known of it."""
    return {
        name: [(position, one.queue.where(position)) for position in one.queue.here]
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
def test_a_queue_stands_where_the_log_is_known(
    saved: int, upto: int, persisted: int, position: int | None
) -> None:
    assert position_of(saved, upto, persisted) == position
