"""Consumers with filters: which messages of other instances are asked for, by name, and given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from pyroaring import BitMap64

from tests.queues.bench import ANN, HERE
from tests.queues.test_owner_requests import GROUP, Asks
from tests.queues.test_replicated import THERE, THIRD, Shared, gone, moves, named
from zbroker.config import QueueConfig
from zbroker.engine.events import Commands, ReadFailed
from zbroker.errors import StorageError
from zbroker.ids import Origin
from zbroker.limits import U63_MAX
from zbroker.log.format import KIND_OWNERSHIP
from zbroker.log.queue_records import Moved, of_steps, steps_of
from zbroker.queues.core import AGAIN_MS
from zbroker.queues.dispatch import EXAMINE_MAX
from zbroker.queues.effects import Examine, Give
from zbroker.queues.owner_requests import UNKNOWN_MS
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.selector_stats import (
    ASK_AGAIN_MAX_MS,
    ASK_AGAIN_MS,
    NamedDemand,
    NextNames,
)
from zbroker.queues.work.sets import lowest
from zbroker.server.peers import Received
from zbroker.wire import codec
from zbroker.wire import queue_messages as q
from zbroker.wire.owner_requests import AskTransfer, TransferRequest
from zbroker.wire.queue_surveys import Explain
from zbroker.wire.replication import WANT_NAMES_MAX, NamedMessages

ONE, TWO = b'{"k": 1}', b'{"k": 2}'


class Seeks(Asks):
    """Such an instance; messages of others have contents. compared: each set that a filter was
    compared with, by the text of the filter; stuck: filters for which the log cannot be read."""

    def __init__(self, *configs: QueueConfig, **more: Any) -> None:
        self.compared: list[tuple[str, BitMap64]] = []
        self.stuck: set[str] = set()
        super().__init__(*configs, **more)

    def _read(self, effect: Any) -> Any:
        if isinstance(effect, Examine):
            if effect.filter.text in self.stuck:
                return ReadFailed(effect, StorageError("damaged", "the disk fails"))
            self.compared.append((effect.filter.text, effect.positions))
        return super()._read(effect)

    def theirs(self, *payloads: bytes, origin: Origin = THERE) -> list[int]:
        """A batch of that instance arrives; where it is here."""
        self._next(origin, len(payloads), 0)
        return self.publish(*payloads)

    def seeks(self) -> list[tuple[int, dict[Origin, list[int]], int]]:
        """What was asked for by name since the last look: of whom, what, and how many."""
        found = []
        for one in self.asked():
            assert one.count == 0
            found.append((one.owner, named_in(one), one.most))
        return found

    def queue(self) -> Queue:
        found = self.manager.running["q"].queue
        assert isinstance(found, Queue)
        return found


def named_in(ask: AskTransfer) -> dict[Origin, list[int]]:
    """The positions at their origins."""
    return {Origin(one.instance, one.generation): [*of_steps(one.steps)] for one in ask.where}


@pytest.fixture
def bench() -> Seeks:
    return Seeks()


# -- what is asked for ------------------------------------------------------------------------


def test_late_messages_that_fit_are_asked_for_by_name(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=4)
    bench.noop()  # positions here are others than those at their origin
    bench.theirs(ONE, TWO, ONE, TWO)
    bench.pass_ms(UNKNOWN_MS - 1)
    assert bench.seeks() == [], "they are not late"
    assert bench.compared == []
    bench.pass_ms(1)
    assert bench.seeks() == [(THERE.instance, {THERE: [1, 3]}, 2)]


@pytest.mark.seed("000-21")
def test_what_fits_no_filter_is_never_asked_for(bench: Seeks) -> None:
    bench.consume(filter="/k = 1")
    bench.theirs(TWO, TWO, b"no json")
    for _ in range(100):
        bench.pass_ms(100)
    assert bench.asked() == []
    assert len(bench.compared) == 1
    assert bench.core._requests.next_wake_ms() is None, "nothing is to be done"


@pytest.mark.seed("000-23")
def test_while_its_owner_keeps_up_nothing_is_compared(bench: Seeks) -> None:
    bench.consume(filter="/k = 1")
    for at in range(1, 100):
        bench.theirs(ONE)
        bench.pass_ms(20)
        bench.facts_of(gone([at * 2 - 1]))
    assert (bench.asked(), bench.compared) == ([], [])


def test_each_owner_is_asked_for_what_it_has(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=9)
    bench.theirs(ONE, TWO)
    bench.theirs(TWO, ONE, origin=THIRD)
    bench.theirs(ONE)
    bench.pass_ms(UNKNOWN_MS)
    bench.pass_ms(UNKNOWN_MS)  # those that came after the first batch are late, too
    bench.pass_ms(ASK_AGAIN_MS)
    assert bench.seeks()[-2:] == [
        (THERE.instance, {THERE: [1, 3]}, 2), (THIRD.instance, {THIRD: [2]}, 1),
    ]  # fmt: skip


@pytest.mark.seed("000-18")
def test_the_initial_owner_is_asked_by_its_name() -> None:
    bench = Seeks(GROUP)
    bench.consume(filter="/k = 1", backlog=9)
    [_, at] = bench.publish(TWO, ONE)
    bench.theirs(ONE)
    bench.pass_ms(UNKNOWN_MS)
    bench.pass_ms(UNKNOWN_MS)
    *_, ask = bench.asked()
    assert (ask.owner, ask.name) == (0, "other")
    assert named_in(ask) == {HERE: [at], THERE: [1]}


def test_a_request_has_a_limit_and_names_the_oldest(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=10)
    bench.theirs(*[ONE] * 5_000)
    bench.pass_ms(UNKNOWN_MS)
    assert bench.seeks() == [(THERE.instance, {THERE: [*range(1, WANT_NAMES_MAX + 1)]}, 20)]
    bench.pass_ms(ASK_AGAIN_MS - 1)
    assert sum(len(part) for _, part in bench.compared) <= 2 * WANT_NAMES_MAX, "one request ahead"
    assert max(len(part) for _, part in bench.compared) <= EXAMINE_MAX


def test_what_others_ask_for_is_in_the_same_message(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=4)
    bench.consume(sid="t", backlog=2)
    bench.theirs(TWO, ONE)
    bench.pass_ms(UNKNOWN_MS)
    asks = [(ask.count, named_in(ask), ask.most) for ask in bench.asked()]
    assert asks == [(4, {}, 0), (0, {THERE: [2]}, 1)], "the filter is compared in between"
    bench.pass_ms(ASK_AGAIN_MS)
    [ask] = bench.asked()
    assert (ask.count, named_in(ask), ask.most) == (4, {THERE: [2]}, 1)


def test_what_is_ready_here_counts(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=4)
    bench.later = (Give,)
    bench.publish(*[ONE] * 3)
    bench.theirs(*[ONE] * 50)
    bench.pass_ms(UNKNOWN_MS)
    assert [most for _, _, most in bench.seeks()] == [5], "one now, and four ahead"


def test_one_that_has_enough_neither_compares_nor_asks(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=2)
    bench.publish(ONE, ONE)
    bench.theirs(ONE)
    bench.compared.clear()
    bench.pass_ms(1_000)
    assert (bench.asked(), bench.compared) == ([], [])


def test_the_limit_of_the_queue_counts() -> None:
    bench = Seeks(QueueConfig("q", topic="t", scope="distributed", max_backlog=3))
    bench.consume(filter="/k = 1", backlog=10)
    bench.theirs(*[ONE] * 9)
    bench.pass_ms(UNKNOWN_MS)
    assert [most for _, _, most in bench.seeks()] == [6]
    bench.move(named([1, 2, 3]))
    bench.asked()
    bench.pass_ms(10 * ASK_AGAIN_MAX_MS)
    assert bench.asked() == [], "it is reached"


def test_messages_behind_a_barrier_are_not_asked_for() -> None:
    bench = Seeks(QueueConfig("q", topic="t", scope="distributed", barrier="/k = 3"))
    bench.consume(filter="/k = 1", backlog=10)
    bench.theirs(ONE, b'{"k": 3}', ONE)
    bench.pass_ms(UNKNOWN_MS)
    assert bench.seeks() == [(THERE.instance, {THERE: [1]}, 1)]


def test_messages_that_are_done_or_expired_are_not_asked_for(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=10)
    bench._next(THERE, 4, 0)
    first, *_ = bench.publish(*[ONE] * 4, expiry=[0, 0, bench.now.wall_ns + 5, 0])
    bench.facts_of(gone([1]))
    bench.holding = True
    bench.settle(q.Settle, [first + 1], None, queue="q")  # that is on its way to the log
    bench.pass_ms(UNKNOWN_MS)
    assert bench.seeks() == [(THERE.instance, {THERE: [4]}, 1)]


# -- again ------------------------------------------------------------------------------------


def test_a_request_that_nothing_came_of_is_made_again_later_and_later(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=4)
    bench.theirs(ONE, ONE)
    times: list[int] = []
    for _ in range(1_000):
        bench.pass_ms(10)
        times += [bench.now.mono_ms] * len(bench.asked())
    waits = [after - before for before, after in pairwise(times)]
    assert waits[0] == ASK_AGAIN_MS
    assert waits == sorted(waits)
    assert waits[-1] == ASK_AGAIN_MAX_MS
    assert len(bench.compared) == 1, "nothing is compared twice"


def test_what_comes_later_does_not_wait_for_what_does_not_come(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=4)
    bench.theirs(ONE, ONE)
    bench.pass_ms(10_000)
    bench.asked()
    bench.theirs(ONE, origin=THIRD)
    bench.pass_ms(UNKNOWN_MS)
    bench.pass_ms(ASK_AGAIN_MS)
    assert THIRD.instance in {owner for owner, _, _ in bench.seeks()}


def test_what_nothing_comes_of_does_not_hide_what_is_after_it(bench: Seeks) -> None:
    """Consumers of the owner may have the oldest ones for long; or one owner is away."""
    bench.consume(filter="/k = 1", backlog=4)
    bench.theirs(*[ONE] * 3_000)
    bench.theirs(ONE, origin=THIRD)
    seen: list[int] = []
    for _ in range(100):
        bench.pass_ms(ASK_AGAIN_MS)
        asked = bench.seeks()
        assert sum(len(part) for _, many, _ in asked for part in many.values()) <= WANT_NAMES_MAX
        assert all(1 in many[THERE] for _, many, _ in asked if THERE in many)
        seen += [owner for owner, _, _ in asked]
    assert 4 < seen.count(THIRD.instance) < 50
    assert sum(len(part) for _, part in bench.compared) == 3_001


def test_what_came_makes_the_next_request_at_once(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=2)
    theirs = bench.theirs(*[ONE] * 6)
    bench.pass_ms(UNKNOWN_MS)
    assert [most for _, _, most in bench.seeks()] == [4]
    bench.move(named([1, 2]))
    assert bench.got() == theirs[:2]
    bench.pass_ms(ASK_AGAIN_MS // 2)
    assert bench.seeks() == [], "nothing more can be taken"
    bench.ack(*theirs[:2])
    [(_, many, most)] = bench.seeks()
    assert (many, most) == ({THERE: [3, 4, 5, 6]}, 2)
    assert len(bench.compared) == 1


def test_filters_have_equal_parts_of_a_request(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=4)
    bench.consume(filter="/k = 2", backlog=4, sid="t", rid=ANN)
    bench.theirs(*[ONE] * 2_000)
    bench.theirs(TWO)
    for _ in range(10):
        bench.pass_ms(UNKNOWN_MS)
    names = [many[THERE] for _, many, _ in bench.seeks()]
    assert any(2_001 in each for each in names)
    assert all(len(each) <= WANT_NAMES_MAX for each in names)


# -- consumers come and go, disks fail --------------------------------------------------------


def test_a_filter_that_cannot_be_compared_stops_no_other_one(bench: Seeks) -> None:
    bench.stuck = {"/k = 1"}
    bench.consume(filter="/k = 1")
    bench.consume(filter="/k = 2", sid="t")
    bench.theirs(ONE, TWO)
    bench.pass_ms(UNKNOWN_MS)
    assert bench.seeks() == [(THERE.instance, {THERE: [2]}, 1)]
    bench.stuck.clear()
    for _ in range(20):
        bench.pass_ms(AGAIN_MS)
    assert {at for _, many, _ in bench.seeks() for at in many[THERE]} == {1, 2}


def test_a_consumer_that_left_meanwhile_asks_for_nothing(bench: Seeks) -> None:
    bench.consume(filter="/k = 1")
    bench.theirs(ONE)
    bench.later = (Examine,)
    bench.pass_ms(UNKNOWN_MS)
    bench.send(q.Cancel("s", "c"))
    bench.go_on()
    bench.pass_ms(10_000)
    assert bench.asked() == []


def test_one_that_joins_is_compared_with_what_is_late_already(bench: Seeks) -> None:
    bench.consume(filter="/k = 2")
    bench.theirs(ONE)
    bench.pass_ms(UNKNOWN_MS)
    assert bench.asked() == []
    bench.consume(filter="/k = 1", sid="t")
    bench.pass_ms(1)
    assert bench.seeks() == [(THERE.instance, {THERE: [1]}, 1)]


def test_what_came_for_a_consumer_that_left_goes_back(bench: Seeks) -> None:
    """Although another one, with another filter, has room all the time."""
    bench.consume(filter="/k = 1", backlog=1)
    bench.consume(filter="/k = 2", sid="t")
    bench.theirs(ONE, ONE)
    bench.pass_ms(UNKNOWN_MS)
    assert bench.asked()
    bench.move(named([1, 2]))
    bench.send(q.Cancel("s", "c"))
    for _ in range(8):
        bench.pass_ms(5_000)
        bench.publish(TWO)  # t is busy
    assert given(bench) == [1, 2]
    assert all(isinstance(one, Moved) and one.back for one in moves(bench))


def test_an_instance_without_links_compares_nothing() -> None:
    bench = Shared()
    bench.consume(filter="/k = 1")
    bench.from_peer(1)
    bench.pass_ms(1_000)
    queue = bench.manager.running["q"].queue
    assert isinstance(queue, Queue)
    assert (bench.to_replication, queue.late_before) == ([], 0)


# -- what the owner gives ---------------------------------------------------------------------


def wants(
    bench: Shared,
    positions: Iterable[int],
    most: int = 10,
    *,
    count: int = 0,
    origin: Origin = HERE,
) -> list[int]:
    """Another instance asks for these; what it was given since the start."""
    where = [NamedMessages(*origin, steps_of(BitMap64(positions)))]
    bench.turn.hear(TransferRequest("q", THERE.instance, count, where, most))
    bench.run()
    return given(bench)


def given(bench: Shared) -> list[int]:
    return sorted(at for one in moves(bench) for part in one.where for at in part.positions)


def test_the_oldest_of_those_that_are_named_are_given(bench: Seeks) -> None:
    mine = bench.publish(*[ONE] * 6)
    assert wants(bench, mine[1::2], 2) == [mine[1], mine[3]]
    assert wants(bench, mine[1::2], 2) == [mine[1], mine[3], mine[5]]


def test_names_are_those_of_their_origin(bench: Seeks) -> None:
    bench.noop()
    bench.theirs(*[ONE] * 5)
    bench.move(named([2, 4]))
    assert wants(bench, [2], origin=THIRD) == []
    assert wants(bench, [2, 3], origin=THERE) == [2], "3 is not of this instance"
    assert wants(bench, [99, U63_MAX - 1], origin=THERE) == [2], "these are not known"


@pytest.mark.seed("000-25")
def test_what_a_consumer_here_can_take_stays(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=2)
    bench.later = (Give,)
    mine = bench.publish(ONE, TWO, ONE, TWO)
    assert wants(bench, mine) == [mine[1], mine[3]], "it has room for none of these"
    bench.consume(sid="t", backlog=9)
    mine = bench.publish(TWO)
    assert wants(bench, mine) == given(bench)[:2]


def test_what_a_consumer_has_got_room_for_in_this_turn_stays(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=1)
    mine = bench.publish(ONE, ONE, TWO)
    ack = codec.encode(q.Settle(cid="c", sid="s", ends=[mine[0], mine[0] + 1]))
    bench.turn.hear(Commands([Received(ANN, [ack])]))
    assert wants(bench, mine) == mine[2:]
    assert bench.got() == mine[:2]


def test_what_a_filter_here_was_not_compared_with_is_not_given_yet(bench: Seeks) -> None:
    bench.later = (Examine,)
    bench.consume(filter="/k = 1", backlog=1)
    mine = bench.publish(TWO, ONE)
    assert wants(bench, mine, count=5) == []
    bench.go_on()
    assert bench.got() == mine[1:]
    assert wants(bench, mine) == mine[:1]


def test_what_fits_a_consumer_that_is_full_is_given(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=1)
    mine = bench.publish(ONE, ONE)
    assert wants(bench, mine) == mine[1:], "the first one is with it"


def test_a_number_of_messages_is_given_of_those_that_no_filter_here_fits(bench: Seeks) -> None:
    bench.consume(filter="/k = 1", backlog=2)
    mine = bench.publish(ONE, TWO, TWO, TWO)
    assert wants(bench, [], count=2) == mine[1:3]


def test_nothing_is_named_and_given_twice(bench: Seeks) -> None:
    mine = bench.publish(ONE, ONE)
    bench.holding = True
    wants(bench, mine, 2, count=9)
    wants(bench, mine, 2, count=9)
    bench.land()
    bench.land()
    assert given(bench) == mine
    assert len(bench.written(KIND_OWNERSHIP)) == 1


def _filters_do_not_count(queue: Queue) -> BitMap64 | None:
    many = queue.consumers.current()
    takes = any(one.credit and one.spare > 0 and one.looks is None for one in many)
    return BitMap64() if takes else None


def _what_was_not_compared_counts_as_useless(queue: Queue) -> BitMap64 | None:
    known = [one.looks for one in queue.consumers.current() if one.spare > 0]
    fits = [looks.matching for looks in known if looks is not None]
    return queue.places.ready.standing - BitMap64.union(BitMap64(), *fits) if known else None


def _it_begins_again_each_time(demand: NamedDemand, came: int, *, later: bool) -> None:
    demand.rounds += 1


def _the_oldest_of_all_are_named(queue: Queue, now_ms: int) -> NextNames:
    known = [one.looks.matching for one in queue.consumers.current() if one.looks is not None]
    fits = BitMap64.union(BitMap64(), *known) & queue.places.foreign
    return NextNames(lowest(fits, WANT_NAMES_MAX), 8, now_ms + ASK_AGAIN_MS)


PLANTED: list[tuple[Any, str, Any, Callable[[Seeks], None]]] = [
    (Queue, "untaken", _filters_do_not_count,
     test_what_a_consumer_has_got_room_for_in_this_turn_stays),
    (Queue, "untaken", _what_was_not_compared_counts_as_useless,
     test_what_a_filter_here_was_not_compared_with_is_not_given_yet),
    (NamedDemand, "_go_on", _it_begins_again_each_time,
     test_what_nothing_comes_of_does_not_hide_what_is_after_it),
    (Queue, "seek", _the_oldest_of_all_are_named, test_filters_have_equal_parts_of_a_request),
]  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: one[2].__name__)
def test_a_planted_bug_is_found(planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, bug, claim = planted
    monkeypatch.setattr(where, name, bug)
    with pytest.raises(AssertionError):
        claim(Seeks())


# -- why a message is not delivered -----------------------------------------------------------


def test_explain_says_what_is_asked_for(bench: Seeks) -> None:
    def lines(position: int) -> list[str]:
        return list(bench.ask(Explain(1, "q", position)).lines)

    one, two = bench.theirs(ONE, TWO)
    assert len(lines(one)) == 1
    bench.consume(filter="/k = 1", backlog=1)
    assert "was not compared" in lines(one)[-1]
    bench.pass_ms(UNKNOWN_MS)
    bench.pass_ms(1)
    assert "asked for" in lines(one)[-1]
    assert "fits no filter" in lines(two)[-1]
    assert "1 of them fit" in bench.ask(Explain(2, "q")).lines[0]
    bench.consume(sid="t")
    assert len(lines(one)) == 1, "that one takes any"
