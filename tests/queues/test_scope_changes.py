"""zbroker/queues/scope_changes.py: a local queue becomes one of several instances."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap64

from tests.queues.bench import Got
from tests.queues.test_replicated import LIFE, THERE, Shared, definition, named
from zbroker.config import QueueConfig
from zbroker.errors import ConfigError
from zbroker.log import queue_records as r
from zbroker.log.format import (
    KIND_DEFINITION,
    KIND_OUTCOMES,
    KIND_WIRING,
)
from zbroker.log.records import encode
from zbroker.queues import scope_changes
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s

LOCAL = {"topic": "t", "lease": "30s"}
DISTRIBUTED = {"scope": "distributed"}


class Local(Shared):
    """An instance with a local queue that an operator has made; its log has what others sent."""

    def __init__(self, *configs: QueueConfig, made: dict[str, Any] | None = None) -> None:
        super().__init__(QueueConfig("unused"), *configs)
        if not configs:
            given = LOCAL if made is None else made
            assert self.ask(s.Define(1, "create", "q", given)).code == ""

    def alter(self, **changes: Any) -> s.Changed:
        answer: s.Changed = self.ask(s.Define(2, "alter", "q", changes or DISTRIBUTED))
        return answer

    def last_change(self) -> s.Changed:
        """The newest answer of the admin's."""
        answer = self.reported[-1][1]
        assert isinstance(answer, s.Changed)
        return answer

    @property
    def is_local(self) -> bool:
        return self.one().replicated is None

    def state(self) -> dict[str, Any]:
        """What the queue knows of its messages."""
        one = self.one()
        assert one.replicated is not None
        queue = one.queue
        return {
            "here": list(queue.here),
            "failures": {at: queue.counting.failures.of(at) for at in queue.here},  # type: ignore[union-attr]
            "cancels": {at: queue.counting.cancels.of(at) for at in queue.here},  # type: ignore[union-attr]
            "dues": {at: queue.places.delays.due(at) for at in queue.here},  # type: ignore[union-attr]
            "flagged": list(one.replicated.flagged),
            "owners": one.replicated.ownership.owners(queue.here),
        }


@pytest.fixture
def bench() -> Local:
    return Local()


def test_what_is_done_stays_done_and_the_rest_is_owned(bench: Local) -> None:
    mine, theirs = bench.many(4), bench.from_peer(3)
    bench.consume()
    bench.ack(mine[0], mine[2], theirs[1])
    answer = bench.alter()
    assert (answer.code, answer.count) == ("", 4)
    left = [mine[1], mine[3], theirs[0], theirs[2]]
    assert list(bench.messages) == left
    assert bench.one().queue.places.foreign == BitMap64([theirs[0], theirs[2]])  # type: ignore[union-attr]
    bench.restart()
    assert list(bench.messages) == left


def test_the_initial_owner_has_all_of_a_group_local_one(bench: Local) -> None:
    theirs = bench.from_peer(2)
    assert bench.alter(scope="group-local", initial_owner="me").code == ""
    bench.consume()
    assert bench.got() == theirs


def test_counts_delays_and_what_was_delivered_are_taken_along(bench: Local) -> None:
    once, twice, waits, leased = bench.many(4)
    bench.consume(backlog=4)
    for _ in range(2):
        bench.release(twice)
    bench.release(once)
    bench.release(waits, delay_ms=60_000)
    bench.send(q.Cancel("s", "over"))
    [fresh] = bench.many(1)
    assert bench.alter().code == ""
    taken = bench.state()
    assert (taken["failures"][twice], taken["cancels"][twice], taken["failures"][once]) == (2, 2, 1)
    assert taken["dues"][waits]
    assert leased in taken["flagged"]
    assert fresh not in taken["flagged"]
    bench.restart()
    assert bench.state() == taken
    bench.logon()
    bench.consume(sid="after", backlog=10)
    got = {one.position: one.deliveries for one in bench.seen("after")}
    assert waits not in got
    assert got[leased] > 1
    assert got[fresh] == 1


def test_its_consumers_are_told_to_consume_again(bench: Local) -> None:
    [position] = bench.many(1)
    bench.consume()
    bench.alter()
    assert ("not_ready", None, "s") in bench.errors()
    bench.consume(sid="again")
    assert bench.seen("again") == [Got(position, 2)]


def test_an_acknowledgement_during_the_change_counts(bench: Local) -> None:
    first, second = bench.many(2)
    bench.consume()
    bench.holding = True
    bench.alter()
    assert bench.one().migrating
    bench.ack(first, queue="q")
    assert not bench.settled(), "it waits"
    bench.holding = False
    bench.land()
    bench.run()
    assert bench.settled() == [(1, 0)]
    assert list(bench.messages) == [second]
    assert not bench.is_local


def test_what_was_decided_before_lands_first(bench: Local) -> None:
    first, second = bench.many(2)
    bench.consume()
    bench.holding = True
    bench.ack(first)
    bench.alter()
    assert len(bench.under_way) == 1, "the state is written later"
    bench.holding = False
    bench.land()
    bench.run()
    assert list(bench.messages) == [second]
    assert not bench.is_local


def test_all_of_it_is_one_unit_and_the_definition_its_end(bench: Local) -> None:
    bench.many(1)
    bench.holding = True
    bench.alter()
    [(_, (parts, _))] = bench.under_way
    assert [part.kind for part in parts] == [KIND_WIRING, KIND_OUTCOMES, KIND_DEFINITION]


def test_a_process_that_dies_before_the_unit_has_a_local_queue(bench: Local) -> None:
    [position] = bench.many(1)
    bench.holding = True
    bench.alter()
    bench.under_way.clear()
    bench.holding = False
    bench.restart()
    assert bench.is_local
    assert bench.here() == [position]


def test_a_process_that_dies_after_the_unit_has_the_other_one(bench: Local) -> None:
    first, second = bench.many(2)
    bench.consume()
    bench.ack(first)
    bench.receipts = False
    bench.alter()
    bench.receipts = True
    bench.restart()
    assert not bench.is_local
    assert bench.here() == [second]


def test_a_queue_whose_unit_is_refused_stays_what_it_was(bench: Local) -> None:
    first, second = bench.many(2)
    bench.consume()
    bench.holding = True
    question = s.Define(2, "alter", "q", DISTRIBUTED)
    bench.ask(question)
    bench.ack(first)
    bench.refuse("too_large")
    bench.holding = False
    bench.run()
    assert bench.last_change().code == "too_large"
    assert bench.is_local
    bench.land()
    bench.run()
    assert bench.here() == [second], "the acknowledgement counts"
    assert bench.alter().code == ""


def test_a_change_that_does_not_become_quiet_ends(bench: Local) -> None:
    [position] = bench.many(1)
    bench.consume()
    bench.holding = True
    bench.ack(position)
    bench.alter()
    bench.pass_ms(scope_changes.QUIET_MAX_MS)
    assert bench.last_change().code == "not_ready"
    assert not bench.one().migrating


def test_what_changes_a_queue_waits_for_the_change(bench: Local) -> None:
    bench.many(1)
    bench.holding = True
    bench.alter()
    for question in (
        s.Purge(3, "q"), s.Requeue(3, "q", limit=1), s.Define(3, "alter", "q", DISTRIBUTED),
        s.Define(3, "delete", "q"),
    ):  # fmt: skip
        assert bench.ask(question).code == "not_ready"


def test_a_state_that_is_too_large_for_one_unit_is_refused(
    bench: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scope_changes, "STATE_MAX_BYTES", 10)
    bench.many(1)
    answer = bench.alter()
    assert answer.code == "too_large"
    assert "purge" in answer.hint
    assert bench.is_local


def test_a_dry_run_changes_nothing(bench: Local) -> None:
    bench.many(3)
    answer = bench.ask(s.Define(2, "alter", "q", DISTRIBUTED, dry_run=True))
    assert (answer.code, answer.count) == ("", 3)
    assert bench.is_local


@pytest.mark.parametrize(
    ("made", "changes", "says"),
    [
        ({"group_key": "/k"}, DISTRIBUTED, "group-local"),
        ({"kind": "replayable", "lease": "30s"}, DISTRIBUTED, "replayable"),
        ({}, {"scope": "group-local"}, "initial_owner"),
        ({}, {"scope": "distributed", "topic": "other"}, "`topic`"),
    ],
)
def test_what_queues_of_several_instances_cannot_have_is_refused(
    made: dict[str, Any], changes: dict[str, Any], says: str
) -> None:
    bench = Local(made={"topic": "t", **made})
    answer = bench.alter(**changes)
    assert answer.code == "bad_queue"
    assert says in answer.reason + answer.hint
    assert bench.is_local


def test_without_links_for_the_whole_log_it_is_refused(bench: Local) -> None:
    for destinations in ({}, {"copy": False}):
        bench.destinations = destinations
        bench.restart()
        answer = bench.alter()
        assert (answer.code, bench.is_local) == ("bad_queue", True)
        assert "[[destination]]" in answer.reason + answer.hint
        made = bench.ask(s.Define(3, "create", "new", {"topic": "t", **DISTRIBUTED}))
        assert made.code == "bad_queue"


def test_it_cannot_be_local_again(bench: Local) -> None:
    bench.alter()
    for scope in ({"scope": "local"}, {"scope": "group-local", "initial_owner": "me"}):
        answer = bench.alter(**scope)
        assert answer.code == "bad_queue"
        assert "another queue" in answer.hint
    assert bench.alter(lease="1m").code == ""


def test_a_queue_of_the_config_is_changed_there(bench: Local) -> None:
    bench = Local(QueueConfig("q", topic="t"))
    answer = bench.alter()
    assert answer.code == "bad_queue"
    assert "every instance" in answer.hint


def test_a_start_changes_a_queue_that_the_config_wants_on_several_instances() -> None:
    bench = Local(QueueConfig("q", topic="t"))
    first, second = bench.many(2)
    bench.consume()
    bench.ack(first)
    bench.configs = [QueueConfig("q", topic="t", scope="distributed")]
    bench.restart()
    assert not bench.is_local
    assert bench.here() == [second]
    assert [note.name for note in bench.notes if note.name.startswith("queues.scope")] == [
        "queues.scope_changed"
    ]
    bench.restart()
    assert bench.here() == [second]


def test_a_start_that_cannot_change_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope_changes, "STATE_MAX_BYTES", 10)
    bench = Local(QueueConfig("q", topic="t"))
    bench.configs = [QueueConfig("q", topic="t", scope="distributed")]
    bench.restart()
    assert bench.is_local
    assert any(note.name == "queues.scope_not_changed" for note in bench.notes)


def test_a_config_that_wants_another_queue_besides_is_refused() -> None:
    bench = Local(QueueConfig("q", topic="t"))
    bench.configs = [QueueConfig("q", topic="other", scope="distributed")]
    with pytest.raises(ConfigError, match="topic"):
        bench.restart()


def test_two_queues_that_meet_have_what_either_has_not_done(bench: Local) -> None:
    theirs, mine = bench.from_peer(3), bench.many(3)
    bench.consume()
    bench.ack(theirs[0], mine[0])
    bench.arrives(KIND_OUTCOMES, outcomes_of([2]))
    bench.arrives(KIND_DEFINITION, definition(LIFE))
    assert bench.is_local, "the queue of the peer waits"
    answer = bench.alter()
    assert (answer.code, bool(answer.text)) == ("", True)
    assert list(bench.messages) == [theirs[2], mine[1], mine[2]]
    bench.restart()
    assert list(bench.messages) == [theirs[2], mine[1], mine[2]]


def test_a_local_queue_that_is_deleted_makes_room_for_that_of_a_peer(bench: Local) -> None:
    theirs = bench.from_peer(2)
    bench.arrives(KIND_OUTCOMES, outcomes_of([1]))
    bench.arrives(KIND_DEFINITION, definition(LIFE))
    assert bench.is_local
    assert bench.ask(s.Define(2, "delete", "q")).code == ""
    assert not bench.is_local
    assert list(bench.messages) == theirs[1:]


def test_a_table_that_is_taken_out_makes_room_for_the_queue_of_a_peer() -> None:
    bench = Local(QueueConfig("q", topic="t"))
    bench.from_peer(1)
    bench.arrives(KIND_DEFINITION, definition(LIFE))
    assert bench.is_local
    bench.configs = []
    bench.restart()
    assert not bench.is_local


def test_what_is_done_is_read_before_anything_is_offered() -> None:
    """A process hears of the definition before it has read the unit that it is the end of."""
    bench = Shared(QueueConfig("other", topic="o"))
    bench.from_peer(2)
    record = r.DEFINITION.decode(definition(LIFE, begins=[r.VectorEntry(*THERE, 1)]))
    bench.manager.replicated.learn(record, bench.position + 2)
    bench.noop()
    assert not bench.one().ready
    bench.noop()
    bench.noop()
    assert bench.one().ready


def outcomes_of(positions: list[int]) -> bytes:
    """A record of the peer's queue: these of its own are done."""
    fact = r.OriginsGone(named(positions), "migrated")
    return encode(r.OutcomesRecord("q", LIFE, 1, 1, r.packed([fact])))
