"""zbroker/queues/commits.py: a unit lands once, whatever dies."""

from __future__ import annotations

import os
import random

import pytest

from zbroker.log.format import KIND_POINT, KIND_QUEUE
from zbroker.log.records import POINT, PointRecord
from zbroker.queues.commits import RETRY_MS, UNDER_WAY_MAX, Commits, PendingUnit, control
from zbroker.wire.internal import JournalReceipt, ReceiptItem

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

        self.commits.add(PendingUnit([control(KIND_QUEUE, body)], [body], done, number))
        return number


@pytest.fixture
def bench() -> Bench:
    return Bench()


def _receipt(journal: int, *ordinals: int, code: str = "") -> JournalReceipt:
    items = [ReceiptItem(at, 0 if code else 100 + at, 0, 0, code) for at in ordinals]
    return JournalReceipt(journal, 0, items)


def test_nothing_is_sent_before_a_journal_has_welcomed_us(bench: Bench) -> None:
    bench.add()
    assert bench.commits.take(0, 10) is None
    bench.commits.welcomed(1, 10)
    taken = bench.commits.take(0, 10)
    assert taken is not None
    assert taken[0].ordinal == 1
    assert taken[1] == [b"record"]


def test_units_land_in_order_and_receipts_are_confirmed(bench: Bench) -> None:
    first, second = bench.add(), bench.add()
    bench.commits.welcomed(1, 10)
    bench.commits.take(0, 10)
    bench.commits.receipts(_receipt(1, 1), 0)
    bench.commits.receipts(_receipt(1, 1, 2), 0)  # repeated until it is confirmed
    assert bench.landed == [first, second]
    bench.add()
    taken = bench.commits.take(0, 10)
    assert taken is not None
    assert taken[0].confirmed == 2
    assert taken[0].ordinal == 3


def test_a_retry_follows_what_is_refused_for_now(bench: Bench) -> None:
    number = bench.add()
    bench.commits.welcomed(1, 10)
    bench.commits.take(0, 10)
    bench.commits.receipts(_receipt(1, 1, code="disk_full"), 0)
    assert bench.commits.take(RETRY_MS - 1, 10) is None
    assert bench.commits.wake_ms() == RETRY_MS
    assert bench.commits.take(RETRY_MS, 10) is not None
    bench.commits.receipts(_receipt(1, 2), RETRY_MS)
    assert bench.landed == [number]
    assert bench.commits.wake_ms() is None


def test_what_was_refused_is_sent_again_before_what_was_added_later(bench: Bench) -> None:
    """The journal refuses what was sent after it as well; its receipts are waited for."""
    for name in (b"1", b"2", b"3"):
        bench.add(name)
    bench.commits.welcomed(1, 10)
    bench.commits.take(0, 10)
    bench.commits.receipts(_receipt(1, 1, code="disk_full"), 0)
    bench.add(b"4")
    assert bench.commits.take(RETRY_MS, 10) is None, "2 and 3 are not answered yet"
    assert bench.commits.wake_ms() is None, "their receipts wake"
    bench.commits.receipts(_receipt(1, 2, 3, code="not_ready"), 0)
    taken = bench.commits.take(RETRY_MS, 10)
    assert taken is not None
    assert taken[1] == [b"1", b"2", b"3", b"4"]
    assert taken[0].confirmed == 3


def test_what_was_refused_stays_in_order_over_a_restart_of_the_journal(bench: Bench) -> None:
    for name in (b"1", b"2", b"3"):
        bench.add(name)
    bench.commits.welcomed(1, 10)
    bench.commits.take(0, 10)
    bench.commits.receipts(_receipt(1, 1, code="disk_full"), 0)
    bench.commits.welcomed(2, 10)
    assert bench.commits.open == 3
    bench.commits.read(10)
    taken = bench.commits.take(0, 10)
    assert taken is not None
    assert taken[1] == [b"1", b"2", b"3"]


def test_doubt_begins_where_the_log_ended_when_the_first_unit_was_sent(bench: Bench) -> None:
    bench.commits.welcomed(1, 10)
    bench.add()
    bench.commits.take(0, 12)
    bench.add()
    bench.commits.take(0, 15)
    assert bench.commits.doubtful_from is None
    bench.commits.welcomed(2, 20)
    assert bench.commits.doubtful_from == 12


def test_a_record_says_which_unit_it_is(bench: Bench) -> None:
    record = PointRecord("p", "")
    bench.commits.add_record(KIND_POINT, record, lambda *given: None)
    bench.commits.welcomed(1, 10)
    taken = bench.commits.take(0, 10)
    assert taken is not None
    reported = POINT.decode(taken[1][0])
    assert (reported.by, reported.unit) == (7, 1)


def test_what_is_refused_for_good_is_reported(bench: Bench) -> None:
    bench.add()
    bench.commits.welcomed(1, 10)
    bench.commits.take(0, 10)
    bench.commits.receipts(_receipt(1, 1, code="too_large"), 0)
    assert bench.refused == ["too_large"]
    assert bench.commits.open == 0


def test_a_new_journal_is_sent_what_the_log_does_not_hold(bench: Bench) -> None:
    first, second = bench.add(), bench.add()
    bench.commits.welcomed(1, 10)
    bench.commits.take(0, 10)
    bench.commits.lost()
    bench.commits.welcomed(2, 50)
    assert bench.commits.take(0, 10) is None, "what landed is not known yet"
    bench.commits.found(7, first, 30)
    bench.commits.found(8, second, 31)  # of another process
    bench.commits.read(49)
    assert bench.landed == []
    bench.commits.read(50)
    assert bench.landed == [first]
    taken = bench.commits.take(0, 10)
    assert taken is not None
    assert len(taken[0].units) == 1
    bench.commits.receipts(_receipt(2, 1), 0)
    assert bench.landed == [first, second]


def test_receipts_of_a_journal_that_is_gone_are_not_listened_to(bench: Bench) -> None:
    bench.add()
    bench.commits.welcomed(1, 10)
    bench.commits.take(0, 10)
    bench.commits.welcomed(2, 10)
    bench.commits.receipts(_receipt(1, 1), 0)
    assert bench.landed == []


def test_only_so_many_are_under_way(bench: Bench) -> None:
    for _ in range(UNDER_WAY_MAX + 10):
        bench.add()
    bench.commits.welcomed(1, 10)
    taken = bench.commits.take(0, 10)
    assert taken is not None
    assert len(taken[0].units) == UNDER_WAY_MAX
    assert bench.commits.take(0, 10) is None
    bench.commits.receipts(_receipt(1, 1), 0)
    assert bench.commits.take(0, 10) is not None


class _Journal:
    """A log of unit numbers, with a journal that dies at any time; see journal/units.py."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: list[int] = []
        self.incarnation = 1
        self.held = 0
        self.items: list[ReceiptItem] = []

    def append(self, numbers: list[int], ordinal: int, confirmed: int) -> None:
        for at, number in enumerate(numbers, ordinal):
            if confirmed < self.held or self.rng.random() < 0.1:
                self.held = at
                self.items.append(ReceiptItem(at, 0, 0, 0, "disk_full"))
                continue
            self.log.append(number)
            self.items.append(ReceiptItem(at, len(self.log), 0))


def test_every_unit_is_in_the_log_once_in_order() -> None:
    for seed in range(SEEDS):
        _history(seed)


class _History:
    """Units, a journal, and what goes wrong between them."""

    def __init__(self, seed: int) -> None:
        self.rng, self.bench = random.Random(seed), Bench()
        self.commits, self.journal = self.bench.commits, _Journal(self.rng)
        self.now_ms = self.read = 0
        self.added: list[int] = []
        self.commits.welcomed(1, 0)

    def step(self) -> None:
        self.now_ms += self.rng.randrange(RETRY_MS)
        what = self.rng.random()
        if what < 0.4:
            self.added.append(self.bench.add(b"%d" % (len(self.added) + 1)))
        elif what < 0.6:
            self.send(arrives=self.rng.random() < 0.8)
        elif what < 0.8:
            self.read_on()
        elif what < 0.95:
            self.receipts()
        else:
            _restart(self.journal, self.commits)

    def send(self, *, arrives: bool = True) -> None:
        taken = self.commits.take(self.now_ms, self.read)
        if taken is None:
            return
        if arrives:
            numbers = [int(bytes(body)) for body in taken[1]]
            self.journal.append(numbers, taken[0].ordinal, taken[0].confirmed)
        else:
            _restart(self.journal, self.commits)

    def read_on(self) -> None:
        for at, number in enumerate(self.journal.log[self.read :], self.read):
            self.commits.found(7, number, at)
        self.read = len(self.journal.log)
        self.commits.read(self.read)

    def receipts(self) -> None:
        """All that are not confirmed, or the newest ones alone: one may be lost."""
        items = self.journal.items
        if self.rng.random() < 0.3:
            items = items[-2:]
        receipt = JournalReceipt(self.journal.incarnation, 0, list(items))
        self.commits.receipts(receipt, self.now_ms)


def _history(seed: int) -> None:
    history = _History(seed)
    for _ in range(200):
        history.step()
    for _ in range(1_000):
        history.now_ms += RETRY_MS
        history.read_on()
        history.send()
        history.receipts()
        if not history.commits.open:
            break
    assert history.journal.log == history.added, f"seed {seed}"
    assert sorted(history.bench.landed) == history.added, f"seed {seed}"


def _restart(journal: _Journal, commits: Commits) -> None:
    journal.incarnation += 1
    journal.items, journal.held = [], 0
    commits.lost()
    commits.welcomed(journal.incarnation, len(journal.log))
