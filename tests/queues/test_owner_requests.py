"""When messages of other instances are asked for, of whom, and how many."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.queues.bench import HERE
from tests.queues.test_replicated import THERE, THIRD, Shared, gone, named
from zbroker.config import QueueConfig
from zbroker.queues.effects import Give
from zbroker.queues.owner_requests import UNKNOWN_MS, USUAL_MAX_MS, UsualTime
from zbroker.queues.work.queue import Queue
from zbroker.queues.work.selector_stats import ASK_AGAIN_MAX_MS, ASK_AGAIN_MS
from zbroker.wire.owner_requests import AskTransfer

GROUP = QueueConfig("q", topic="t", scope="group-local", initial_owner="other")


class Asks(Shared):
    """An instance with links, whose peers hold nothing that is not here."""

    def __init__(self, *configs: QueueConfig, **more: Any) -> None:
        super().__init__(*configs, replicates=True, **more)
        self.peers_read()

    def asked(self) -> list[AskTransfer]:
        """What was asked for since the last look."""
        found = [one for one in self.to_replication if isinstance(one, AskTransfer)]
        self.to_replication.clear()
        return found


@pytest.fixture
def bench() -> Asks:
    return Asks()


@pytest.mark.seed("000-21")
@pytest.mark.seed("000-22")
def test_a_message_that_is_late_is_asked_for_if_a_consumer_could_take_it(bench: Asks) -> None:
    bench.from_peer(3)
    bench.pass_ms(10 * UNKNOWN_MS)
    assert bench.asked() == [], "no consumer"
    bench.consume(backlog=2)
    bench.pass_ms(UNKNOWN_MS - 1)
    assert bench.asked() == [], "it is not late"
    bench.pass_ms(1)
    assert bench.asked() == [AskTransfer("q", THERE.instance, "", 4)], "two now, and two ahead"


@pytest.mark.seed("000-23")
def test_while_its_owner_keeps_up_nothing_is_asked(bench: Asks) -> None:
    bench.consume(backlog=10)
    for at in range(1, 200):
        bench.from_peer(1)
        bench.pass_ms(20)
        bench.facts_of(gone([at * 2 - 1]))  # each fact has a position there, too
    assert bench.asked() == []
    bench.from_peer(1)
    bench.pass_ms(60)
    assert len(bench.asked()) == 1, "twice the usual 20 ms are over"


@pytest.mark.seed("000-21")
def test_consumers_that_have_enough_ask_for_nothing(bench: Asks) -> None:
    bench.many(5)
    bench.consume(backlog=2)
    bench.from_peer(5)
    bench.pass_ms(1_000)
    assert bench.asked() == []


def test_what_is_ready_here_comes_first(bench: Asks) -> None:
    bench.consume(backlog=4)
    bench.many(3)
    bench.later = (Give,)
    bench.from_peer(50)
    bench.pass_ms(UNKNOWN_MS)
    [ask] = bench.asked()
    assert ask.count == 5, "one now, and four ahead"


def test_a_request_that_nothing_came_of_is_made_again_later_and_later(bench: Asks) -> None:
    bench.consume(backlog=4)
    bench.from_peer(5)
    times: list[int] = []
    for _ in range(1_000):
        bench.pass_ms(10)
        times += [bench.now.mono_ms] * len(bench.asked())
    waits = [after - before for before, after in pairwise(times)]
    assert waits[0] == ASK_AGAIN_MS
    assert waits == sorted(waits)
    assert waits[-1] == ASK_AGAIN_MAX_MS


def test_each_owner_is_asked_in_turn(bench: Asks) -> None:
    bench.consume(backlog=4)
    bench.from_peer(1)
    bench.from_peer(1, THIRD)
    owners = []
    for _ in range(100):
        bench.pass_ms(10)
        owners += [ask.owner for ask in bench.asked()]
    assert owners[:4] == [THERE.instance, THIRD.instance] * 2


def test_what_came_makes_the_next_request_at_once(bench: Asks) -> None:
    bench.consume(backlog=2)
    bench.from_peer(6)
    bench.pass_ms(UNKNOWN_MS)
    assert [ask.count for ask in bench.asked()] == [4]
    bench.move(named([1, 2]))
    assert len(bench.got()) == 2
    bench.pass_ms(ASK_AGAIN_MS // 2)
    assert bench.asked() == [], "nothing more can be taken"
    bench.ack(*bench.got())
    assert [ask.count for ask in bench.asked()] == [2]
    bench.move(named([3]))
    assert bench.asked() == [], "the rest may still come"


@pytest.mark.seed("000-18")
def test_the_initial_owner_is_asked_by_name() -> None:
    bench = Asks(GROUP)
    bench.consume(backlog=2)
    bench.many(1)
    bench.pass_ms(UNKNOWN_MS)
    assert bench.asked() == [AskTransfer("q", 0, "other", 4)]


def test_messages_of_keys_are_not_asked_for() -> None:
    keyed = QueueConfig("q", topic="t", scope="group-local", initial_owner="o", group_key="/k")
    bench = Asks(keyed)
    bench.consume()
    bench.consume(sid="t", filter="/k = 1")
    bench.publish(b'{"k": 1}')
    bench.pass_ms(1_000)
    assert bench.asked() == []


def test_a_queue_that_holds_enough_for_its_limit_asks_for_no_more() -> None:
    bench = Asks(QueueConfig("q", topic="t", scope="distributed", max_backlog=3))
    bench.consume(backlog=10)
    bench.many(2)
    bench.from_peer(5)
    bench.pass_ms(1_000)
    assert bench.asked()[0].count == 4, "one now, and three ahead"


def test_a_queue_that_was_deleted_asks_for_nothing(bench: Asks) -> None:
    bench.consume()
    bench.from_peer(1)
    bench.manager.end(bench.manager.running["q"])
    bench.pass_ms(1_000)
    assert bench.asked() == []


def test_an_instance_without_links_asks_for_nothing() -> None:
    bench = Shared()
    bench.consume()
    bench.from_peer(1)
    bench.pass_ms(1_000)
    assert bench.to_replication == []


def test_the_usual_time_is_bounded_and_forgets() -> None:
    bench, usual = Shared(), UsualTime()
    queue = bench.manager.running["q"].queue
    assert isinstance(queue, Queue)
    now_ms = 0
    for took in [5_000] * 3 + [10] * 150:
        [at] = bench.from_peer(1)
        usual.look(queue, now_ms)
        now_ms += took
        bench.facts_of(gone([bench.at[THERE]]))
        assert at not in queue.here
        usual.look(queue, now_ms)
        assert usual.ms <= USUAL_MAX_MS
    assert usual.ms == 21


def test_a_message_that_was_given_here_says_nothing_about_its_owner(bench: Asks) -> None:
    bench.from_peer(1)
    bench.move(named([1]))
    bench.consume()
    bench.pass_ms(500)
    bench.ack(*bench.got())
    asking = bench.core._requests._many["q"]
    assert asking.usual.ms == UNKNOWN_MS
    assert HERE.instance not in bench.manager.running["q"].replicated.others()  # type: ignore[union-attr]
