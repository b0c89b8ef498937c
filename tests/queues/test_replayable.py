"""zbroker/queues/replayable.py: a list of messages that one consumer reads, from any place."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyroaring import BitMap64

from tests.queues.bench import code_of
from zbroker.engine.contract import Now
from zbroker.limits import U63_MAX
from zbroker.queues import replayable
from zbroker.queues.replayable import Replayable
from zbroker.queues.work.values import Arrivals, Offer, Outcome, SettleResult, Standing

NOW = Now(0, 0)
POSITIONS = st.frozensets(st.integers(1, 40), max_size=8)


def _filled(*positions: int) -> Replayable:
    made = Replayable()
    made.entered(Arrivals(BitMap64(positions)))
    return made


def _read(queue: Replayable) -> list[int]:
    """Everything that its reader gets now."""
    found: list[int] = []
    while offers := queue.offer(NOW, {}):
        [offer] = offers
        found += offer.positions
        queue.check()
    return found


class Beside(RuleBasedStateMachine):
    """A queue beside a list of messages; `reader`: position and end of who reads."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Replayable()
        self.here: list[int] = []
        self.acked: set[int] = set()
        self.reader: tuple[int, int] | None = None
        self.under_way: list[Outcome] = []
        self.end = 1
        self.key = 0

    def _remove(self, positions: set[int]) -> None:
        self.here = [at for at in self.here if at not in positions]
        self.acked -= positions

    @rule(count=st.integers(1, 5))
    def enter(self, count: int) -> None:
        entered = range(self.end, self.end + count)
        self.end += count
        self.queue.entered(Arrivals(BitMap64(entered)))
        self.here += entered

    @rule(positions=POSITIONS)
    def ack(self, positions: frozenset[int]) -> None:
        settling = self.queue.settle(BitMap64(positions), "ack")
        taken = positions & set(self.here)
        assert (settling.taken, settling.ignored) == (len(taken), len(positions - taken))
        self.under_way += settling.outcomes

    @precondition(lambda self: self.under_way)
    @rule(taken=st.booleans())
    def land(self, taken: bool) -> None:
        outcome = self.under_way.pop(0)
        if taken:
            self.queue.noted(outcome.positions)
            self.acked |= set(outcome.positions) & set(self.here)
        else:
            self.queue.undo(outcome)

    @rule(before=st.integers(0, 45))
    def purge(self, before: int) -> None:
        gone = {at for at in self.here if at < before}
        assert self.queue.before(before) == BitMap64(gone)
        self.queue.purged(before)
        self._remove(gone)

    @rule(positions=POSITIONS)
    def gone(self, positions: frozenset[int]) -> None:
        self.queue.gone(BitMap64(positions))
        self._remove(set(positions))

    @rule(position=st.integers(0, 45), until=st.none() | st.integers(1, 45))
    def open(self, position: int, until: int | None) -> None:
        self.key += 1
        self.queue.open(self.key, "ann", position, *([] if until is None else [until]))
        self.reader = position, U63_MAX if until is None else until

    @precondition(lambda self: self.reader is not None)
    @rule()
    def leave(self) -> None:
        self.queue.leave(self.key)
        self.reader = None

    @rule()
    def read(self) -> None:
        first, until = self.reader or (0, 0)
        wanted = [at for at in self.here if first <= at < until]
        assert _read(self.queue) == wanted
        if wanted:
            self.reader = wanted[-1] + 1, until

    @rule()
    def restart(self) -> None:
        rows = self.queue.dump()
        self.queue, self.reader, self.under_way = Replayable(), None, []
        self.queue.load(rows)

    @invariant()
    def same(self) -> None:
        queue = self.queue
        queue.check()
        assert list(queue.here) == self.here
        assert set(queue.noted_ones) == self.acked
        assert queue.lowest == (self.here[0] if self.here else None)
        first, until = self.reader or (0, U63_MAX)
        left = until == U63_MAX or any(first <= at < until for at in self.here)
        assert queue.ended(U63_MAX) == (not left)


def test_it_is_a_list_with_a_reader() -> None:
    run_state_machine_as_test(
        Beside, settings=settings(max_examples=150, stateful_step_count=40, deadline=None)
    )


def test_one_offer_has_so_many_messages_at_most() -> None:
    queue = _filled(*range(1, 2_501))
    queue.open(1, "ann", 1)
    sizes = []
    while offers := queue.offer(NOW, {1: True}):
        sizes += [len(offer.positions) for offer in offers]
    assert sizes == [replayable.CHUNK, replayable.CHUNK, 500]
    assert queue.reader is not None
    assert queue.reader.sent == 2_500


def test_nothing_is_offered_without_space() -> None:
    queue = _filled(1, 2)
    queue.open(1, "ann", 1)
    assert queue.offer(NOW, {1: False}) == []
    assert queue.offer(NOW, {2: False}) == [Offer(1, BitMap64([1, 2]))]


def test_one_client_at_a_time() -> None:
    queue = _filled()
    queue.check_free("ann")
    queue.open(1, "ann", 0)
    queue.check_free("ann")
    assert code_of(lambda: queue.check_free("bob")) == "resource_locked"
    queue.leave(7)
    assert code_of(lambda: queue.check_free("bob")) == "resource_locked"
    queue.lose(1, NOW)
    queue.check_free("bob")


def test_an_ack_that_is_on_its_way_is_not_written_twice() -> None:
    queue = _filled(1, 2, 3)
    first = queue.settle(BitMap64([1, 2]), "ack")
    assert first == SettleResult([Outcome(BitMap64([1, 2]), "noted", "acked")], 2, 0)
    assert queue.settle(BitMap64([2, 9]), "ack") == SettleResult([], 1, 1)
    queue.noted(BitMap64([1, 2]))
    assert queue.settle(BitMap64([1, 2]), "ack") == SettleResult([], 2, 0)
    assert not queue.going


def test_an_ack_that_was_refused_can_be_given_again() -> None:
    queue = _filled(1)
    [outcome] = queue.settle(BitMap64([1]), "ack").outcomes
    queue.undo(outcome)
    assert queue.settle(BitMap64([1]), "ack").outcomes == [outcome]


def test_only_an_ack_means_something() -> None:
    queue = _filled(1)
    for verb in ("release", "reject", "extend"):
        assert code_of(lambda verb=verb: queue.settle(BitMap64([1]), verb)) == "bad_command"


def test_what_cannot_be_read_is_to_go() -> None:
    queue = _filled(1, 2)
    assert queue.unreadable(BitMap64([2, 9])) == [Outcome(BitMap64([2]), "gone", "unreadable")]
    assert queue.unreadable(BitMap64([9])) == []


def test_nothing_ends_by_itself() -> None:
    queue = _filled(1)
    assert queue.tick(NOW) == []
    assert queue.next_wake(NOW) is None
    assert queue.deliveries_of(BitMap64([1])) is None


def test_where_a_message_is() -> None:
    queue = _filled(1, 2)
    queue.noted(BitMap64([2, 9]))
    assert [queue.where(at, NOW) for at in (1, 2, 9)] == [
        Standing("kept"), Standing("acked"), Standing("gone"),
    ]  # fmt: skip


def test_why_the_reader_gets_nothing() -> None:
    queue = _filled(1, 2)
    assert queue.why_nothing(NOW) == ["it has no consumer"]
    queue.open(1, "ann", 2)
    assert queue.why_nothing(NOW) == [
        "the consumer has no credit: it has not read what it was sent"
    ]
    _read(queue)
    assert queue.why_nothing(NOW) == ["the consumer has read everything"]


def test_what_it_takes_grows_with_what_it_holds() -> None:
    few, many = _filled(1), _filled(*range(1, 100_000, 3))
    assert few.memory_bytes() < many.memory_bytes()
