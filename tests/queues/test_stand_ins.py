"""An instance takes over what comes of another one, as long as that is away."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import HERE
from tests.queues.test_replicated import THERE, THIRD, Shared, moves, named
from zbroker.config import QueueConfig
from zbroker.log import queue_records as r
from zbroker.log.records import StandIn
from zbroker.queues import stand_ins
from zbroker.queues.owner_moves import LOOK_MS
from zbroker.wire import queue_surveys as s
from zbroker.wire.owner_requests import LiveSources

GROUP = QueueConfig("q", topic="t", scope="group-local", initial_owner="other")


@pytest.fixture
def bench() -> Shared:
    return Shared()


def begin(bench: Shared, instance: int = THERE.instance, **more: Any) -> Any:
    return bench.ask(s.TakeOver(1, "q", instance, "other", until_back=True, **more))


def end(bench: Shared) -> Any:
    return bench.ask(s.TakeOver(2, "q", THERE.instance, "other", end=True))


def live(bench: Shared, *instances: int) -> None:
    bench.turn.hear(LiveSources([*instances]))
    bench.run()


@pytest.mark.seed("000-30")
def test_what_is_here_and_what_comes_later_is_taken_over_flagged(bench: Shared) -> None:
    bench.consume()
    before = bench.from_peer(2)
    assert begin(bench).count == 2
    assert bench.got() == before
    later = bench.from_peer(1)
    others = bench.from_peer(1, THIRD)
    assert bench.got() == before + later
    assert [one.deliveries for one in bench.seen()] == [2, 2, 2]
    assert others[0] in bench.messages
    assert moves(bench)[1:] == [
        r.Moved(named([3]), HERE.instance, 1, takeover=True, seen=True)
    ]  # each once


@pytest.mark.seed("000-32")
def test_a_person_ends_it(bench: Shared) -> None:
    bench.consume()
    begin(bench)
    assert not end(bench).code
    bench.from_peer(1)
    assert bench.got() == []
    end(bench)
    assert [one.on for one in bench.facts(StandIn)] == [True, False], "there was nothing to end"


def test_the_answer_comes_once_it_is_durable_and_a_refused_one_may_be_tried_again(
    bench: Shared,
) -> None:
    bench.holding = True
    assert begin(bench) is None
    bench.holding = False
    bench.refuse()
    assert bench.reported[-1][1].code
    assert not begin(bench).code
    assert THERE.instance in bench.manager.running["q"].stand_ins.of


def test_a_message_that_comes_to_belong_to_it_later_is_taken_over_then(bench: Shared) -> None:
    bench.from_peer(1, THIRD)
    begin(bench)
    bench.many(1)
    bench.move(named([1], THIRD), THERE.instance, origin=THIRD)
    assert moves(bench) == []
    bench.pass_ms(LOOK_MS)
    assert moves(bench) == [
        r.Moved(named([1], THIRD), HERE.instance, 2, takeover=True, seen=True)
    ]  # it had been given to that one


@pytest.mark.seed("000-32")
def test_it_ends_when_the_log_of_that_instance_comes_again(bench: Shared) -> None:
    bench.consume()
    begin(bench)
    live(bench, THIRD.instance)
    taken = bench.from_peer(1)
    live(bench, THERE.instance, THIRD.instance)
    live(bench, THERE.instance, THIRD.instance)
    bench.from_peer(1)
    assert bench.got() == taken
    assert [one.name for one in bench.notes].count("queues.owner_is_back") == 1
    [on, off] = bench.facts(StandIn)
    assert (on.on, off.on) == (True, False)


def test_what_that_instance_took_over_itself_stays_with_it(bench: Shared) -> None:
    """Two that act for each other would take it from one another for ever."""
    bench.consume()
    begin(bench)
    [mine] = bench.many(1)
    bench.move(named([mine], HERE), THERE.instance, takeover=True, seen=True)
    bench.many(1)
    assert moves(bench) == []


def test_of_an_instance_that_is_there_it_is_refused(bench: Shared) -> None:
    live(bench, THERE.instance)
    assert begin(bench).code == "bad_field"
    assert bench.facts(StandIn) == []


def test_a_dry_run_begins_nothing(bench: Shared) -> None:
    begin(bench, dry_run=True)
    bench.consume()
    bench.from_peer(1)
    assert bench.got() == []


def test_of_the_initial_owner_it_is_all_that_is_published_anywhere() -> None:
    bench = Shared(GROUP)
    bench.consume()
    begin(bench)
    mine, theirs = bench.many(1), bench.from_peer(1, THIRD)
    assert bench.got() == mine + theirs


def test_it_is_known_after_a_restart_from_the_tables_and_from_the_log(bench: Shared) -> None:
    begin(bench)
    for tables in (bench.tables(), {}):
        bench.restart(tables)
        bench.logon()
        bench.gives.clear()
        bench.consume()
        [one] = bench.from_peer(1)
        assert one in bench.got()


def test_while_it_is_being_taken_over_it_is_not_taken_over_again(bench: Shared) -> None:
    begin(bench)
    bench.holding = True
    bench.from_peer(1)
    bench.many(1)
    bench.holding = False
    bench.land()
    bench.many(1)
    assert len(moves(bench)) == 1


def test_what_was_refused_is_tried_again(bench: Shared) -> None:
    bench.consume()
    begin(bench)
    bench.holding = True
    theirs = bench.from_peer(1)
    bench.holding = False
    bench.refuse()
    bench.many(1)
    assert theirs[0] in bench.got()


def test_its_record_holds_the_log_and_is_written_again_in_time(
    bench: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stand_ins, "AGAIN", 5)
    begin(bench)
    [first] = bench.manager.running["q"].stand_ins.of.values()
    assert bench.lowest == first.at
    for _ in range(10):
        bench.ack(*bench.many(1), sid=None, queue="q")
    [again] = bench.manager.running["q"].stand_ins.of.values()
    assert again.at > first.at
    assert bench.lowest >= again.at


def test_a_queue_that_may_not_deliver_twice_has_to_be_told() -> None:
    once = QueueConfig("q", topic="t", scope="distributed", semantics="at-most-once")
    assert begin(Shared(once)).code == "bad_queue"


def test_it_is_refused_while_it_is_not_known_who_is_away() -> None:
    """Or it would end as soon as the replication process says that this instance was there."""
    bench = Shared(replicates=True)
    assert begin(bench).code == "not_ready"
    live(bench, THERE.instance)
    assert begin(bench).code == "bad_field"
    live(bench)
    assert not begin(bench).code
    assert [one.on for one in bench.facts(StandIn)] == [True]
