"""zbroker/queues/hand_over.py: a planned stop of an instance with replicated queues."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import HERE
from tests.queues.test_replicated import THERE, THIRD, Shared, moves, named, wants
from zbroker.config import QueueConfig
from zbroker.errors import ClientError
from zbroker.log import queue_records as r
from zbroker.queues import hand_over
from zbroker.queues.hand_over import GROUP_KEY, QUIET_MAX_MS, READING
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s

LOCAL = QueueConfig("local", topic="t")
SHARED = QueueConfig("q", topic="t", scope="distributed")


@pytest.fixture
def bench() -> Shared:
    return Shared()


def step(bench: Shared, what: str, to: int = 0) -> s.QueuesDrained:
    """The admin's next step."""
    answer: s.QueuesDrained = bench.ask(s.DrainQueues(1, what, to))
    return answer


def given(bench: Shared, to: int = THERE.instance) -> s.QueuesDrained:
    """All of it goes to another instance."""
    step(bench, "quiet")
    step(bench, "give", to)
    bench.run()
    return step(bench, "look")


def test_all_that_an_instance_owns_goes_to_another_one_unflagged(bench: Shared) -> None:
    mine = bench.many(3)
    bench.from_peer(2)
    found = given(bench)
    assert found == s.QueuesDrained(1, "giving", [s.LeavingQueue("q", 0, 0, 3)])
    assert moves(bench) == [r.Moved(named(mine, HERE), THERE.instance, 1, back=True)]
    assert len(bench.messages) == 5, "they are in the queue, elsewhere"


def test_what_a_consumer_may_have_seen_is_flagged(bench: Shared) -> None:
    [seen] = bench.many(1)
    bench.consume(backlog=1)
    [fresh] = bench.many(1)
    given(bench)
    assert moves(bench) == [
        r.Moved(named([fresh], HERE), THERE.instance, 1, back=True),
        r.Moved(named([seen], HERE), THERE.instance, 1, seen=True, back=True),
    ]


def test_nothing_more_is_offered_and_what_is_held_is_settled(bench: Shared) -> None:
    first = bench.many(1)
    bench.consume(backlog=2)
    found = step(bench, "quiet")
    assert (found.rows, found.consumers) == ([s.LeavingQueue("q", 1, 1, 0)], 1)
    bench.many(1)
    assert bench.got() == first
    bench.ack(*first)
    assert (bench.last().code, bench.last().sid) == ("not_ready", "s")
    [settled] = bench.of(q.Settled)
    assert settled.taken == 1, "the answer comes before the end"
    found = step(bench, "look")
    assert (found.rows, found.consumers, found.ended) == ([s.LeavingQueue("q", 1, 0, 0)], 0, 1)


def test_a_consumer_is_not_ended_before_its_answers_are_there(bench: Shared) -> None:
    """Its client would take them for lost."""
    positions = bench.many(1)
    bench.consume()
    step(bench, "quiet")
    bench.holding = True
    bench.ack(*positions)
    bench.run()
    assert not bench.errors()
    bench.land()
    assert isinstance(bench.answers[-2][1], q.Settled)
    assert bench.codes() == ["not_ready"]


def test_consumers_of_such_queues_are_refused_and_others_are_not() -> None:
    bench = Shared(SHARED, LOCAL)
    step(bench, "quiet")
    bench.consume()
    assert bench.codes() == ["not_ready"]
    bench.consume("local", sid="l")
    positions = bench.many(2)
    assert bench.got("l") == positions


def test_what_comes_later_goes_the_same_way(bench: Shared) -> None:
    given(bench)
    late = bench.many(2)
    assert moves(bench) == [r.Moved(named(late, HERE), THERE.instance, 1, back=True)]
    assert step(bench, "look").rows == [s.LeavingQueue("q", 0, 0, 2)]


def test_what_waits_for_its_time_is_given_and_keeps_it(bench: Shared) -> None:
    positions = bench.many(1)
    bench.consume()
    bench.release(*positions, delay_ms=60_000)
    given(bench)
    assert [one.seen for one in moves(bench) if isinstance(one, r.Moved)] == [True]
    step(bench, "off")
    bench.move(named(positions, HERE), number=2, takeover=True)
    bench.consume(sid="again")
    assert bench.got("again") == []
    bench.pass_ms(61_000)
    assert bench.got("again") == positions


def test_a_barrier_and_what_is_behind_it_are_given() -> None:
    bench = Shared(QueueConfig("q", topic="t", scope="distributed", barrier="/b = 1"))
    bench.publish(b'{"b": 0}')
    bench.publish(b'{"b": 1}')
    bench.publish(b'{"b": 0}')
    assert given(bench).rows == [s.LeavingQueue("q", 0, 0, 3)]


def test_one_record_a_turn_is_bounded(bench: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand_over, "GRANT_MAX", 2)
    mine = bench.many(5)
    given(bench)
    parts = [mine[:2], mine[2:4], mine[4:]]
    assert moves(bench) == [
        r.Moved(named(part, HERE), THERE.instance, 1, back=True) for part in parts
    ]


def test_what_is_refused_by_the_journal_is_given_again(bench: Shared) -> None:
    mine = bench.many(1)
    bench.holding = True
    given(bench)
    bench.holding = False
    bench.refuse()
    bench.run()
    assert moves(bench) == [r.Moved(named(mine, HERE), THERE.instance, 1, back=True)]
    assert step(bench, "look").rows == [s.LeavingQueue("q", 0, 0, 1)]


def test_what_another_instance_asks_for_meanwhile_does_not_come_back_either(bench: Shared) -> None:
    """A consumer here has room, and takes none any more."""
    mine = bench.many(2)
    bench.consume(backlog=1)
    step(bench, "quiet")
    wants(bench, 10, THIRD.instance)
    assert moves(bench) == [r.Moved(named(mine[1:], HERE), THIRD.instance, 1, back=True)]


def test_a_message_is_given_once_so_two_that_stop_do_not_pass_it_on_for_ever(
    bench: Shared,
) -> None:
    mine = bench.many(1)
    given(bench)
    back = r.Moved(named(mine, HERE), HERE.instance, 2, back=True)
    bench.facts_of(back)
    assert len(moves(bench)) == 1
    assert step(bench, "look").rows == [s.LeavingQueue("q", 1, 0, 1)]


def test_messages_of_one_key_stay() -> None:
    bench = Shared(
        QueueConfig("q", topic="t", scope="group-local", initial_owner="me", group_key="/k")
    )
    bench.publish(b'{"k": 1}')
    assert given(bench).rows == [s.LeavingQueue("q", 1, 0, 0, GROUP_KEY, True)]


def test_the_initial_owner_says_that_it_is_one() -> None:
    bench = Shared(QueueConfig("q", topic="t", scope="group-local", initial_owner="me"))
    bench.from_peer(2)
    assert given(bench).rows == [s.LeavingQueue("q", 0, 0, 2, "", True)]


def test_it_takes_over_no_more_for_an_instance_that_is_away(bench: Shared) -> None:
    """It would give that on; another instance has to act for it."""
    bench.ask(s.TakeOver(1, "q", THIRD.instance, "c", until_back=True))
    step(bench, "quiet")
    bench.from_peer(1, THIRD)
    [row] = step(bench, "look").rows
    assert (row.owned, row.acts_for) == (0, ["c"])
    step(bench, "off")
    bench.run()
    assert step(bench, "look").rows[0].owned == 1


def test_an_instance_that_does_not_know_yet_what_it_owns_gives_nothing() -> None:
    bench = Shared(replicates=True)
    bench.many(1)
    assert given(bench).rows == [s.LeavingQueue("q", 1, 0, 0, READING)]
    bench.peers_read()
    bench.run()
    assert step(bench, "look").rows == [s.LeavingQueue("q", 0, 0, 1)]


def test_it_asks_for_no_messages_of_others() -> None:
    def asked(*, leaving: bool) -> list[Any]:
        bench = Shared(replicates=True)
        bench.peers_read()
        bench.consume()
        bench.from_peer(3)
        if leaving:
            bench.consume(sid="idle")
            step(bench, "quiet")
        bench.pass_ms(500)
        bench.pass_ms(500)
        return [one for one in bench.to_replication if type(one).__name__ == "AskTransfer"]

    assert asked(leaving=False)
    assert not asked(leaving=True)


def test_it_offers_again_when_it_is_taken_back(bench: Shared) -> None:
    bench.consume()
    step(bench, "quiet")
    assert step(bench, "off").state == "off"
    bench.consume(sid="again")
    positions = bench.many(1)
    assert bench.got("again") == positions


def test_an_admin_that_is_gone_leaves_no_quiet_queues(bench: Shared) -> None:
    step(bench, "quiet")
    bench.pass_ms(QUIET_MAX_MS - 1)
    assert step(bench, "look").state == "quiet"
    bench.pass_ms(1)
    assert step(bench, "give", THERE.instance).state == "off"
    [mine] = bench.many(1)
    bench.consume()
    assert bench.got() == [mine]


def test_what_the_consumers_held_that_were_left_comes_flagged(bench: Shared) -> None:
    [held] = bench.many(1)
    bench.consume()
    found = given(bench)
    assert (found.ended, found.rows) == (1, [s.LeavingQueue("q", 0, 0, 1)])
    assert moves(bench) == [r.Moved(named([held], HERE), THERE.instance, 1, seen=True, back=True)]


def test_a_lost_consumer_is_not_waited_for_when_all_is_given(bench: Shared) -> None:
    """Its program goes on at another instance, and may acknowledge what it has there."""
    bench.many(1)
    bench.consume()
    bench.lose()
    assert step(bench, "quiet").rows == [s.LeavingQueue("q", 1, 1, 0)]
    assert given(bench).rows == [s.LeavingQueue("q", 0, 0, 1)]


def test_a_step_that_is_none_is_refused(bench: Shared) -> None:
    assert step(bench, "leave").code == "bad_field"  # type: ignore[attr-defined]


def test_explain_says_where_they_go(bench: Shared) -> None:
    bench.many(1)
    step(bench, "quiet")
    assert bench.ask(s.Explain(1, "q")).state == "drained"


def test_the_refusal_says_what_to_do() -> None:
    error: ClientError = hand_over.drained()
    assert (error.code, "all instances" in error.hint) == ("not_ready", True)
