"""zbroker/queues/commits.py: a unit lands once, whatever dies."""

from __future__ import annotations

import os
import random

import pytest

from zbroker.journal.format import KIND_QUEUE
from zbroker.queues.commits import RETRY_MS, UNDER_WAY_MAX, Commits, Unit, control
from zbroker.wire.internal import Receipt, ReceiptItem

SEEDS = int(os.environ.get("ZB_SEEDS", "200"))


class Bench:
    """Commits and what came of its units."""

    def __init__(self) -> None:
        self.commits = Commits(7)
        self.landed: list[int] = []
        self.refused: list[str] = []

    def add(self, body: bytes = b"record") -> int:
        number = self.commits.number()

        def done(code: str, reason: str, position: int) -> None:
            if code:
                self.refused.append(code)
            else:
                self.landed.append(number)

        self.commits.add(Unit([control(KIND_QUEUE, body)], [body], done, number))
        return number


@pytest.fixture
def bench() -> Bench:
    return Bench()


def _receipt(journal: int, *ordinals: int, code: str = "") -> Receipt:
    items = [ReceiptItem(at, 0 if code else 100 + at, 0, 0, code) for at in ordinals]
    return Receipt(journal, 0, items)


def test_nothing_is_sent_before_a_journal_has_welcomed_us(bench: Bench) -> None:
    bench.add()
    assert bench.commits.take(0) is None
    bench.commits.welcomed(1, 10)
    taken = bench.commits.take(0)
    assert taken is not None
    assert taken[0].ordinal == 1
    assert taken[1] == [b"record"]


def test_units_land_in_order_and_receipts_are_confirmed(bench: Bench) -> None:
    first, second = bench.add(), bench.add()
    bench.commits.welcomed(1, 10)
    bench.commits.take(0)
    bench.commits.receipts(_receipt(1, 1), 0)
    bench.commits.receipts(_receipt(1, 1, 2), 0)  # repeated until it is confirmed
    assert bench.landed == [first, second]
    bench.add()
    taken = bench.commits.take(0)
    assert taken is not None
    assert taken[0].confirmed == 2
    assert taken[0].ordinal == 3


def test_what_is_refused_for_now_is_sent_again_later(bench: Bench) -> None:
    number = bench.add()
    bench.commits.welcomed(1, 10)
    bench.commits.take(0)
    bench.commits.receipts(_receipt(1, 1, code="disk_full"), 0)
    assert bench.commits.take(RETRY_MS - 1) is None
    assert bench.commits.wake_ms() == RETRY_MS
    assert bench.commits.take(RETRY_MS) is not None
    bench.commits.receipts(_receipt(1, 2), RETRY_MS)
    assert bench.landed == [number]
    assert bench.commits.wake_ms() is None


def test_what_is_refused_for_good_is_told(bench: Bench) -> None:
    bench.add()
    bench.commits.welcomed(1, 10)
    bench.commits.take(0)
    bench.commits.receipts(_receipt(1, 1, code="too_large"), 0)
    assert bench.refused == ["too_large"]
    assert bench.commits.open == 0


def test_a_new_journal_is_sent_what_the_log_does_not_hold(bench: Bench) -> None:
    first, second = bench.add(), bench.add()
    bench.commits.welcomed(1, 10)
    bench.commits.take(0)
    bench.commits.lost()
    bench.commits.welcomed(2, 50)
    assert bench.commits.take(0) is None, "what landed is not known yet"
    bench.commits.found(7, first)
    bench.commits.found(8, second)  # of another process
    bench.commits.read(49)
    assert bench.landed == []
    bench.commits.read(50)
    assert bench.landed == [first]
    taken = bench.commits.take(0)
    assert taken is not None
    assert len(taken[0].units) == 1
    bench.commits.receipts(_receipt(2, 1), 0)
    assert bench.landed == [first, second]


def test_receipts_of_a_journal_that_is_gone_are_not_listened_to(bench: Bench) -> None:
    bench.add()
    bench.commits.welcomed(1, 10)
    bench.commits.take(0)
    bench.commits.welcomed(2, 10)
    bench.commits.receipts(_receipt(1, 1), 0)
    assert bench.landed == []


def test_only_so_many_are_under_way(bench: Bench) -> None:
    for _ in range(UNDER_WAY_MAX + 10):
        bench.add()
    bench.commits.welcomed(1, 10)
    taken = bench.commits.take(0)
    assert taken is not None
    assert len(taken[0].units) == UNDER_WAY_MAX
    assert bench.commits.take(0) is None
    bench.commits.receipts(_receipt(1, 1), 0)
    assert bench.commits.take(0) is not None


class _Journal:
    """A log of unit numbers, with a journal that dies at any time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: list[int] = []
        self.incarnation = 1
        self.ordinal = 0
        self.items: list[ReceiptItem] = []

    def append(self, numbers: list[int], ordinal: int) -> None:
        for at, number in enumerate(numbers, ordinal):
            if self.rng.random() < 0.1:
                self.items.append(ReceiptItem(at, 0, 0, 0, "disk_full"))
                continue
            self.log.append(number)
            self.items.append(ReceiptItem(at, len(self.log), 0))


def test_every_unit_stands_in_the_log_once() -> None:
    for seed in range(SEEDS):
        _history(seed)


def _history(seed: int) -> None:
    rng, bench = random.Random(seed), Bench()
    commits, journal, now_ms, read = bench.commits, _Journal(rng), 0, 0
    commits.welcomed(1, 0)
    added: list[int] = []
    for _ in range(200):
        now_ms += rng.randrange(RETRY_MS)
        what = rng.random()
        if what < 0.4:
            added.append(bench.add(b"%d" % (len(added) + 1)))
        elif what < 0.6 and (taken := commits.take(now_ms)) is not None:
            numbers = [int(bytes(body)) for body in taken[1]]
            if rng.random() < 0.8:  # else the journal died before it came
                journal.append(numbers, taken[0].ordinal)
            else:
                _restart(journal, commits)
        elif what < 0.8:
            for number in journal.log[read:]:
                commits.found(7, number)
            read = len(journal.log)
            commits.read(read)
        elif what < 0.95:
            commits.receipts(Receipt(journal.incarnation, 0, list(journal.items)), now_ms)
        else:
            _restart(journal, commits)
    for _ in range(1_000):
        now_ms += RETRY_MS
        for number in journal.log[read:]:
            commits.found(7, number)
        read = len(journal.log)
        commits.read(read)
        if (taken := commits.take(now_ms)) is not None:
            journal.append([int(bytes(body)) for body in taken[1]], taken[0].ordinal)
        commits.receipts(Receipt(journal.incarnation, 0, list(journal.items)), now_ms)
        if not commits.open:
            break
    assert sorted(journal.log) == added, f"seed {seed}"
    assert sorted(bench.landed) == added, f"seed {seed}"


def _restart(journal: _Journal, commits: Commits) -> None:
    journal.incarnation += 1
    journal.items = []
    commits.lost()
    commits.welcomed(journal.incarnation, len(journal.log))
