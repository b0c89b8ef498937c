"""A queue that several instances have: what is offered here, and what records of peers do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import Raw, to_builtins
from pyroaring import BitMap64

from tests.queues.bench import HERE, Bench, Got
from zbroker.config import QueueConfig
from zbroker.errors import ConfigError
from zbroker.ids import Origin
from zbroker.log import queue_records as r
from zbroker.log.format import (
    KIND_CLOSED,
    KIND_DEFINITION,
    KIND_NOOP,
    KIND_OUTCOMES,
    KIND_OWNERSHIP,
    KIND_QUEUE,
    KIND_STATE,
    KIND_TIE,
)
from zbroker.log.records import ClosedRecord, GoneEarly, Horizon, encode, unpack_positions
from zbroker.queues.replicated import early_facts
from zbroker.queues.snapshots import Snapshots
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.owner_requests import TransferRequest

THERE, THIRD = Origin(0xB, 1), Origin(0xC, 1)
LOWER = Origin(1, 1)
QUEUE = QueueConfig("q", topic="t", scope="distributed")
LIFE = r.QueueDeclaration(5, *THERE)


class Shared(Bench):
    """An instance whose log also has what others sent. at: positions at their origins."""

    def __init__(self, *configs: QueueConfig, **more: Any) -> None:
        self.at: dict[Origin, int] = {}
        super().__init__(*(configs or (QUEUE,)), **more)
        self.logon()

    def from_peer(self, count: int = 1, origin: Origin = THERE, *, at: int = 0) -> list[int]:
        """A batch of that instance arrives; where it is here."""
        where = self._next(origin, count, at)
        first = self.position
        self.publish(*[b"%d" % where] * count)
        # it was read with an origin of its own
        return list(range(first, first + count))

    def _next(self, origin: Origin, count: int, at: int) -> int:
        where = at or self.at.get(origin, 0) + 1
        self.at[origin] = where + count - 1
        self.names = origin, where
        return where

    names: tuple[Origin, int] | None = None

    def _put(self, *given: Any, **more: Any) -> None:
        super()._put(*given, **more)
        if self.names is not None:
            origin, where = self.names
            self.names = None
            last = self.log[-1]
            last.origin_instance, last.origin_generation = origin
            last.origin_position = where

    def arrives(self, kind: int, body: bytes, origin: Origin = THERE) -> None:
        """A control record of that instance arrives."""
        self._next(origin, 1, 0)
        self._put(kind, body)
        self.persist()

    def facts_of(self, *facts: r.AnyQueueFact, origin: Origin = THERE, life: Any = None) -> None:
        view = self.manager.replicated.definitions.view("q")
        assert view is not None
        kind = KIND_OWNERSHIP if isinstance(facts[0], r.Moved) else KIND_OUTCOMES
        record = r.OutcomesRecord("q", life or view.life, 1, 1, r.packed(facts))
        self.arrives(kind, encode(record), origin)

    def move(
        self, named: list[r.OriginSet], to: int = HERE.instance, number: int = 1,
        origin: Origin = THERE, *, takeover: bool = False, seen: bool = False,
    ) -> None:  # fmt: skip
        self.facts_of(r.Moved(named, to, number, takeover, seen), origin=origin)

    def outcomes(self) -> list[r.AnyQueueFact]:
        """What this instance told all others."""
        return [fact for record in self.written(KIND_OUTCOMES) for fact in r.facts_of(record)]

    def written(self, kind: int) -> list[r.OutcomesRecord]:
        own = (one for one in self.log if one.kind == kind and one.origin == HERE)
        return [r.OUTCOMES.decode(one.body) for one in own]

    @property
    def messages(self) -> BitMap64:
        return self.manager.running["q"].queue.here

    @property
    def lowest(self) -> int:
        return self.manager.running["q"].lowest

    def tables(self) -> dict[Any, Any]:
        """What the tables would hold now."""
        return Snapshots().take(self.manager).many


def named(positions: Iterable[int], origin: Origin = THERE) -> list[r.OriginSet]:
    return [r.OriginSet(*origin, r.steps_of(BitMap64(positions)))]


def gone(positions: Iterable[int], origin: Origin = THERE) -> r.OriginsGone:
    return r.OriginsGone(named(positions, origin))


@pytest.fixture
def bench() -> Shared:
    return Shared()


# -- who offers -------------------------------------------------------------------------------


@pytest.mark.seed("001-58")
def test_only_what_was_published_here_is_offered_here(bench: Shared) -> None:
    bench.consume()
    theirs, mine = bench.from_peer(2), bench.many(2)
    assert bench.got() == mine
    assert bench.messages == BitMap64(theirs + mine)


@pytest.mark.seed("000-15")
@pytest.mark.seed("000-16")
def test_the_initial_owner_offers_what_was_published_anywhere() -> None:
    for owner, offers in (("me", 2), ("other", 0)):
        config = QueueConfig("q", topic="t", scope="group-local", initial_owner=owner)
        bench = Shared(config)
        bench.consume()
        bench.from_peer()
        bench.many(1)
        assert len(bench.got()) == offers


@pytest.mark.seed("001-59")
def test_a_message_that_is_given_to_this_instance_is_offered(bench: Shared) -> None:
    bench.consume()
    [one, two] = bench.from_peer(2)
    bench.move(named([1]))
    assert bench.got() == [one]
    bench.move(named([2]), seen=True)
    assert bench.seen()[-1] == Got(two, 2)


def test_what_another_one_took_over_is_not_offered_any_more(bench: Shared) -> None:
    mine = bench.many(2)
    bench.move(named(mine, HERE), THERE.instance, takeover=True, seen=True)
    bench.consume()
    assert bench.got() == []
    assert bench.messages == BitMap64(mine)


def test_an_acknowledgement_counts_whoever_owns_the_message_by_then(bench: Shared) -> None:
    bench.consume()
    [one] = bench.many(1)
    bench.move(named([one], HERE), THERE.instance, takeover=True, seen=True)
    bench.ack(one)
    assert bench.last().taken == 1
    assert not bench.messages
    assert bench.outcomes() == [gone([one], HERE)]


def test_a_lease_that_ends_at_an_instance_that_owns_no_more_brings_nothing_back(
    bench: Shared,
) -> None:
    bench.consume()
    [one] = bench.many(1)
    bench.move(named([one], HERE), THERE.instance, takeover=True, seen=True)
    bench.pass_ms(100_000)
    assert bench.got() == [one]
    bench.move(named([one], HERE), number=2)
    assert bench.seen() == [Got(one), Got(one, 2)]


def test_only_the_owner_gives_a_message_up(bench: Shared) -> None:
    [one] = bench.from_peer(1)
    bench.settle(q.RejectMessages, [one], None, queue="q")
    assert (bench.last().taken, bench.messages) == (0, BitMap64([one]))


def test_expiry_is_decided_by_the_owner() -> None:
    bench = Shared(QueueConfig("q", topic="t", scope="distributed", expiration=1_000))
    bench.from_peer(1)
    mine = bench.many(1)
    bench.pass_ms(5_000)
    assert bench.outcomes() == [r.OriginsGone(named(mine, HERE), "time_limit")]
    assert len(bench.messages) == 1
    bench.move(named([1]))
    assert not bench.messages


@pytest.mark.seed("000-29")
def test_a_barrier_waits_for_all_before_it_here_whoever_owns_them() -> None:
    bench = Shared(QueueConfig("q", topic="t", scope="distributed", barrier="/b = 1"))
    bench.consume()
    bench.from_peer(1)
    [barrier] = bench.publish(b'{"b": 1}')
    assert bench.got() == []
    bench.facts_of(gone([1]))
    assert bench.seen() == [Got(barrier, barrier=True)]
    assert not bench.messages
    assert bench.outcomes() == []


# -- what is written --------------------------------------------------------------------------


@pytest.mark.seed("001-27")
def test_acknowledgements_go_to_all_instances_by_origin(bench: Shared) -> None:
    bench.consume()
    bench.from_peer(3)
    mine = bench.many(3)
    bench.ack(*mine[:2])
    assert bench.outcomes() == [gone(mine[:2], HERE)]
    assert bench.last().taken == 2


@pytest.mark.seed("001-18")
def test_a_message_of_a_peer_may_be_acknowledged_here(bench: Shared) -> None:
    [one, _] = bench.from_peer(2, at=40)
    bench.ack(sid=None, queue="q", bookmarks=[bench.bookmark(one)])
    assert bench.outcomes() == [gone([40])]
    assert len(bench.messages) == 1


def test_failures_go_to_all_instances(bench: Shared) -> None:
    bench.consume()
    [one] = bench.many(1)
    bench.release(one)
    [failed] = bench.outcomes()
    assert isinstance(failed, r.OriginsFailed)
    assert (failed.where, failed.why) == (named([one], HERE), "cancelled")
    assert bench.seen()[-1] == Got(one, 2)


def test_horizons_stay_on_this_instance(bench: Shared) -> None:
    bench.consume()
    bench.many(1)
    assert bench.facts(Horizon)
    assert all(one.kind in (KIND_QUEUE, KIND_DEFINITION, 1) for one in bench.log)


@pytest.mark.seed("001-06")
def test_what_enters_and_whose_it_is_follows_from_the_messages_alone() -> None:
    """No instance writes a record to tell the others, who read the same messages."""
    bench = Shared(QueueConfig("q", topic="t", scope="distributed", filter="/a = 1"))
    begin = len(bench.log)
    for origin in (HERE, THERE, THIRD):
        for body in (b'{"a": 1}', b'{"a": 2}'):
            if origin != HERE:
                bench._next(origin, 1, 0)
            bench.publish(body)
    replicated = bench.one().replicated
    assert replicated is not None
    owners = replicated.ownership.owners(bench.messages)
    assert {instance: len(part) for instance, part in owners.items()} == {
        HERE.instance: 1, THERE.instance: 1, THIRD.instance: 1,
    }  # fmt: skip
    assert {one.kind for one in bench.log[begin:]} == {1}


@pytest.mark.seed("001-57")
@pytest.mark.seed("001-60")
def test_what_consumers_have_is_written_when_it_is_done_and_many_at_once() -> None:
    """The owner gives messages of all instances in the order of its log."""
    bench = Shared(QueueConfig("q", topic="t", scope="group-local", initial_owner="me"))
    bench.consume(backlog=100)
    bench.consume(sid="other", backlog=100)
    known = [*bench.from_peer(10), *bench.many(10), *bench.from_peer(10)]
    assert sorted([*bench.got(), *bench.got("other")]) == known
    assert bench.got() == sorted(bench.got())
    assert bench.outcomes() == []
    bench.send(*[q.Settle(f"c{one}", ends=[one, one + 1], queue="q") for one in known])
    [record] = bench.written(KIND_OUTCOMES)
    assert [*r.facts_of(record)] == [
        r.OriginsGone([*named(range(1, 21)), *named(known[10:20], HERE)])
    ]


@pytest.mark.seed("000-42")
def test_a_local_queue_writes_what_it_wrote_before() -> None:
    bench = Shared(QueueConfig("q", topic="t"))
    bench.consume()
    [one] = bench.many(1)
    bench.ack(one)
    assert {part.kind for part in bench.log} <= {1, 9, KIND_QUEUE}
    bench.from_peer(1)
    assert len(bench.got()) == 2


def test_a_refused_acknowledgement_leaves_the_message(bench: Shared) -> None:
    bench.consume()
    [one] = bench.many(1)
    bench.holding = True
    bench.ack(one)
    bench.refuse()
    assert bench.messages == BitMap64([one])


# -- what is read -----------------------------------------------------------------------------


def test_what_a_peer_acknowledged_is_gone(bench: Shared) -> None:
    mine = bench.many(3)
    bench.facts_of(gone(mine[:2], HERE))
    bench.consume()
    assert bench.got() == mine[2:]


@pytest.mark.seed("001-42")
def test_a_command_that_a_peer_has_answered_is_answered_by_what_is_true(bench: Shared) -> None:
    mine = bench.many(2)
    bench.facts_of(gone(mine[:1], HERE))
    size = len(bench.log)
    bench.consume()
    bench.ack(mine[0])
    assert bench.last() == q.Settled("c", "s", 0, 1)
    bench.ack(mine[0], sid="never")
    assert bench.last().code == "unknown_sid"
    assert bench.say(q.Browse("q", "b")).rows[0].position == mine[1]
    assert not [one for one in bench.log[size:] if one.kind != KIND_QUEUE], "answers are no records"


def test_an_acknowledgement_may_come_before_its_message(bench: Shared) -> None:
    bench.consume()
    bench.facts_of(gone([4]), origin=THIRD)
    bench.from_peer(5)
    assert len(bench.messages) == 4
    bench.move(named([4, 5]), takeover=True, origin=THIRD)
    assert len(bench.got()) == 1


def test_what_was_acknowledged_early_is_written_again_behind_its_message(bench: Shared) -> None:
    bench.facts_of(gone([1]), origin=THIRD)
    [one] = bench.from_peer(1)
    [fact] = bench.facts(GoneEarly)
    assert unpack_positions(fact.where) == BitMap64([one])


def test_the_log_is_held_from_an_early_fact_on_until_that_is_durable(bench: Shared) -> None:
    at = bench.position
    bench.facts_of(gone([1]), origin=THIRD)
    assert bench.lowest == at
    assert bench.holds().lowest == at
    bench.holding = True
    bench.from_peer(1)
    assert bench.lowest == at
    bench.refuse()
    bench.from_peer(1)
    bench.holding = False
    bench.land()
    assert bench.lowest > at


def test_without_tables_what_was_acknowledged_early_stays_gone(bench: Shared) -> None:
    """Also where the log begins behind the acknowledgement by then."""
    bench.facts_of(gone([1]), origin=THIRD)
    [one] = bench.from_peer(1)
    begin = bench.log.index(next(each for each in bench.log if each.position == one))
    bench.log_start = one
    bench.log[:begin] = [each for each in bench.log[:begin] if each.kind == KIND_DEFINITION]
    bench.restart()
    assert not bench.messages


def test_an_early_change_of_owner_holds_the_log_while_its_message_is_here(bench: Shared) -> None:
    at = bench.position
    bench.move(named([1]), origin=THIRD, takeover=True)
    bench.from_peer(1)
    bench.consume()
    assert len(bench.got()) == 1
    assert bench.lowest == at
    bench.ack(*bench.got())
    assert bench.lowest > at


def test_a_fact_about_a_message_that_left_the_log_changes_nothing(bench: Shared) -> None:
    """A snapshot says how far its origin was: it does not wait for ever."""
    folds = {"origins": [[*THERE, 90]]}
    bench.arrives(KIND_STATE, encode({"part": 0, "folds": folds}), HERE)
    bench.facts_of(gone([80]), origin=THIRD)
    one = bench.manager.running["q"]
    assert one.replicated is not None
    assert one.replicated.early.lowest is None


def closes(bench: Shared, origin: Origin = THERE, end: int = 0) -> None:
    """The instance of an origin says in its next generation that this one has ended."""
    body = encode(ClosedRecord(origin.generation, end))
    bench.arrives(KIND_CLOSED, body, origin._replace(generation=origin.generation + 1))


def test_a_fact_about_what_a_closed_generation_never_had_is_not_waited_for(bench: Shared) -> None:
    """A host lost what it had not replicated; a fact names it all the same."""
    bench.from_peer(2)
    bench.facts_of(gone([2, 5]), origin=THIRD)
    one = bench.manager.running["q"]
    assert one.replicated is not None
    assert one.replicated.early.lowest is not None
    closes(bench, end=2)
    assert one.replicated.early.lowest is None
    bench.facts_of(gone([6]), origin=THIRD)
    assert one.replicated.early.lowest is None
    assert len(bench.messages) == 1


def test_of_closed_generations_tables_and_snapshots_tell(bench: Shared) -> None:
    closes(bench, LOWER)
    folds = {"closed": [[*THERE, 4, 2, 1]]}
    bench.arrives(KIND_STATE, encode({"part": 0, "folds": folds}), HERE)
    bench.restart(bench.tables())
    bench.facts_of(gone([9], LOWER), gone([9]), origin=THIRD)
    one = bench.manager.running["q"]
    assert one.replicated is not None
    assert one.replicated.early.lowest is None


def test_a_stopped_origin_goes_on_when_what_filled_the_room_never_comes(
    bench: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = bench.many(1)
    one = bench.manager.running["q"]
    assert one.replicated is not None
    monkeypatch.setattr(one.replicated.early, "_max_bytes", 1)
    bench.facts_of(gone([5]), origin=THIRD)
    bench.facts_of(gone([6]), gone(mine, HERE), origin=THIRD)
    assert one.replicated.stopped
    closes(bench, end=2)
    assert not one.replicated.stopped
    assert not bench.messages


def test_a_fact_of_a_newer_release_is_stepped_over_alone(bench: Shared) -> None:
    mine = bench.many(1)
    view = bench.manager.replicated.definitions.view("q")
    assert view is not None
    newer = Raw(encode([77, []]))
    record = r.OutcomesRecord("q", view.life, 1, 1, [newer, *r.packed([gone(mine, HERE)])])
    bench.arrives(KIND_OUTCOMES, encode(record))
    assert not bench.messages


@pytest.mark.parametrize("body", [b"\xc1", encode({"queue": 5}), encode([])])
def test_a_body_that_cannot_be_read_ends_nothing(bench: Shared, body: bytes) -> None:
    for kind in (KIND_OUTCOMES, KIND_OWNERSHIP, KIND_DEFINITION):
        bench.arrives(kind, body)
    bench.consume()
    mine = bench.many(1)
    assert bench.got() == mine


def test_positions_that_are_none_change_nothing(bench: Shared) -> None:
    mine = bench.many(1)
    bench.facts_of(r.OriginsGone([r.OriginSet(*HERE, [0, 5]), r.OriginSet(*HERE, [1])]))
    assert bench.messages == BitMap64(mine)


# -- the bound of what waits ------------------------------------------------------------------


def test_what_may_not_wait_any_more_is_read_again_when_there_is_room(
    bench: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench.manager.running["q"]
    assert one.replicated is not None
    monkeypatch.setattr(one.replicated.early, "_max_bytes", 1_000)
    failed = r.OriginsFailed(named(range(10, 20)), "lease_ended")
    bench.facts_of(failed, failed, failed, origin=THIRD)
    at = bench.position
    bench.facts_of(gone([12]), gone([2]), origin=THIRD)
    bench.facts_of(gone([3]), origin=THIRD)
    assert one.replicated.stopped == {THIRD: at}
    assert one.lowest <= at
    bench.from_peer(9)
    assert len(bench.messages) == 9  # behind it nothing of that origin counts for now
    bench.from_peer(11)
    assert one.replicated.stopped == {}
    assert len(bench.messages) == 17
    assert one.queue.where(max(bench.messages) - 2, bench.now).failures == 3


def test_other_origins_go_on_while_one_is_stopped(
    bench: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = bench.manager.running["q"]
    assert one.replicated is not None
    monkeypatch.setattr(one.replicated.early, "_max_bytes", 0)
    mine = bench.many(2)
    bench.facts_of(gone([50]), origin=THIRD)
    assert one.replicated.stopped
    bench.facts_of(gone(mine[:1], HERE))
    assert bench.messages == BitMap64(mine[1:])
    assert early_facts.EARLY_MAX_BYTES > 1 << 20


# -- ties -------------------------------------------------------------------------------------


def tie(bench: Shared, position: int, origin: Origin, at: int) -> None:
    """That instance accepted the message at `position`, too."""
    batch = next(one for one in bench.log if one.position == position)
    bench._next(origin, 1, at)
    bench._put(KIND_TIE, b"")
    last = bench.log[-1]
    last.publisher, last.sequence, last.skip = batch.publisher, batch.sequence, 0
    bench.persist()


def test_of_a_message_that_two_accepted_the_lower_one_is_the_owner(bench: Shared) -> None:
    [one], [two] = bench.many(1), bench.many(1)
    tie(bench, one, LOWER, 7)
    tie(bench, two, Origin(0xFFFF, 1), 7)
    bench.consume()
    assert bench.seen() == [Got(two, 2)]  # the other one may have delivered it before it knew


def test_what_the_loser_leased_comes_back_flagged_if_it_comes_back(bench: Shared) -> None:
    bench.consume()
    [one] = bench.many(1)
    tie(bench, one, LOWER, 7)
    bench.ack(one)
    assert bench.last().taken == 1
    assert not bench.messages


def test_a_fact_may_name_a_message_by_its_other_origin(bench: Shared) -> None:
    [one] = bench.many(1)
    bench.facts_of(gone([7], THIRD))
    assert bench.messages
    tie(bench, one, THIRD, 7)
    assert not bench.messages


# -- starts -----------------------------------------------------------------------------------


def test_the_tables_have_all_of_it(bench: Shared) -> None:
    bench.facts_of(gone([2]), gone([9]), origin=THIRD)
    bench.from_peer(4)
    mine = bench.many(2)
    bench.move(named([1]), seen=True)
    bench.move(named(mine[:1], HERE), THERE.instance, takeover=True, seen=True, origin=THIRD)
    here, before = bench.messages.copy(), bench.tables()
    bench.restart(before)
    assert bench.messages == here
    bench.logon()
    bench.consume()
    assert bench.got() == [min(here), mine[1]]
    assert bench.seen()[0].deliveries == 2
    bench.from_peer(5)
    assert len(bench.messages) == len(here) + 4


def test_tables_of_a_queue_that_begins_elsewhere_are_not_used(bench: Shared) -> None:
    bench.from_peer(3)
    saved = bench.tables()
    [key] = saved
    other = r.ReplicatedDefinition(
        "q", r.QueueDeclaration(key[1], *LOWER), r.Version(9, *LOWER), "config",
        definition=to_builtins(QUEUE),
    )  # fmt: skip
    for one in bench.log:
        if one.kind == KIND_DEFINITION:
            record = r.DEFINITION.decode(one.body)
            record.begins = [r.VectorEntry(*THERE, 2)]
            one.body = encode(record)
    assert other.life.created_ns == key[1]
    bench.restart(saved)
    assert len(bench.messages) == 1
    assert "queues.tables_unusable" in [note.name for note in bench.notes]


def test_without_tables_the_log_gives_the_same(bench: Shared) -> None:
    bench.facts_of(gone([2]), origin=THIRD)
    bench.from_peer(4)
    mine = bench.many(2)
    bench.move(named([1]), seen=True)
    bench.facts_of(gone(mine[:1], HERE))
    here = bench.messages.copy()
    foreign = bench.manager.running["q"].queue.places.foreign.copy()  # type: ignore[union-attr]
    bench.restart()
    assert bench.messages == here
    assert bench.manager.running["q"].queue.places.foreign == foreign  # type: ignore[union-attr]


# -- definitions ------------------------------------------------------------------------------


def definition(
    life: r.QueueDeclaration = LIFE, number: int = 1, config: QueueConfig = QUEUE,
    begins: Iterable[r.VectorEntry] = (), *, ends: bool = False, name: str = "q",
) -> bytes:  # fmt: skip
    made = None if ends else to_builtins(config)
    version = r.Version(number, *THERE)
    return encode(r.ReplicatedDefinition(name, life, version, "config", [*begins], made))


def views(bench: Shared) -> Any:
    one = bench.manager.running["q"].replicated
    assert one is not None
    return one.view


def test_a_queue_of_the_config_is_defined_for_all_instances(bench: Shared) -> None:
    [record] = [r.DEFINITION.decode(o.body) for o in bench.log if o.kind == KIND_DEFINITION]
    assert record.life[1:] == HERE
    assert record.version == (1, *HERE)
    assert record.definition == to_builtins(QUEUE)


def test_a_queue_that_a_peer_has_defined_is_adopted() -> None:
    bench = Shared(QUEUE, welcome=False)
    bench._next(THERE, 1, 0)
    bench._put(KIND_DEFINITION, definition())
    bench.persisted = bench.position
    bench.welcome()
    assert views(bench).life == LIFE
    assert [one.kind for one in bench.log] == [KIND_DEFINITION]


@pytest.mark.seed("000-35")
def test_a_queue_of_a_peer_runs_also_where_the_config_has_none() -> None:
    bench = Shared(QueueConfig("other", topic="o"))
    bench.arrives(KIND_DEFINITION, definition())
    bench.watermarks_say(definitions=1)
    bench.consume()
    mine = bench.many(1)
    assert bench.got() == mine


def test_two_lives_that_meet_are_one_queue(bench: Shared) -> None:
    """It was defined at a peer before the links were up, and nothing begins elsewhere by that."""
    mine, before = bench.many(1), views(bench).life
    bench.arrives(KIND_DEFINITION, definition())
    assert views(bench).lives == {LIFE, before}
    assert views(bench).life == LIFE
    bench.from_peer(1)
    bench.facts_of(gone([bench.at[THERE]]), life=before)
    bench.facts_of(gone(mine, HERE), life=LIFE)
    assert not bench.messages
    assert "queues.lives_met" not in [note.name for note in bench.notes]


def test_where_lives_that_meet_began_at_two_places_the_queue_is_read_again() -> None:
    bench = Shared()
    bench.from_peer(3)
    [record] = [one for one in bench.log if one.kind == KIND_DEFINITION]
    made = r.DEFINITION.decode(record.body)
    made.begins = [r.VectorEntry(*THERE, 3)]
    record.body = encode(made)
    bench.restart()
    bench.logon()
    bench.consume()
    assert len(bench.messages) == 0
    bench.arrives(KIND_DEFINITION, definition(begins=[r.VectorEntry(*THERE, 1)]))
    assert len(bench.messages) == 2
    assert "queues.lives_met" in [note.name for note in bench.notes]
    assert bench.codes() == ["not_ready"]


def test_a_deletion_by_a_peer_ends_the_queue(bench: Shared) -> None:
    bench.consume()
    bench.arrives(KIND_DEFINITION, definition(views(bench).life, 2, ends=True))
    assert "q" not in bench.manager.running
    assert bench.codes() == ["unknown_queue"]


@pytest.mark.seed("000-10")
def test_a_change_by_a_peer_holds_here(bench: Shared) -> None:
    config = QueueConfig("q", topic="t", scope="distributed", lease=1_000)
    bench.arrives(KIND_DEFINITION, definition(views(bench).life, 2, config))
    assert bench.manager.running["q"].definition.config.lease == 1_000
    bench.arrives(KIND_DEFINITION, definition(views(bench).life, 1))
    assert bench.manager.running["q"].definition.config.lease == 1_000


@pytest.mark.parametrize(
    "made", [{"name": 5}, {"name": "q", "topic": "t", "scope": "local"}, {"name": "other"}, {}]
)
def test_what_is_no_queue_here_is_noted_and_not_run(made: dict[str, Any]) -> None:
    bench = Shared(QueueConfig("other", topic="o"))
    record = r.ReplicatedDefinition("q", LIFE, r.Version(1, *THERE), "admin", [], made)
    bench.arrives(KIND_DEFINITION, encode(record))
    bench.watermarks_say(definitions=1)
    assert [*bench.manager.running] == ["other"]
    assert [note.name for note in bench.notes] == ["queues.not_usable"]


@pytest.mark.seed("000-43")
def test_a_local_queue_of_that_name_stays_and_that_is_noted() -> None:
    bench = Shared(QueueConfig("q", topic="t"))
    bench.arrives(KIND_DEFINITION, definition())
    bench.watermarks_say(definitions=1)
    assert bench.manager.running["q"].replicated is None
    assert [note.name for note in bench.notes] == ["queues.not_usable"]


@pytest.mark.seed("000-10")
def test_operators_make_change_and_delete_a_replicated_queue() -> None:
    bench = Shared(QueueConfig("other", topic="o"))
    made = bench.ask(s.Define(1, "create", "q", {"topic": "t", "scope": "distributed"}))
    assert made.code == ""
    assert views(bench).life[1:] == HERE
    bench.ask(s.Define(2, "alter", "q", {"lease": "1s"}))
    assert bench.manager.running["q"].definition.config.lease == 1_000
    bench.ask(s.Define(3, "delete", "q", {}))
    assert [*bench.manager.running] == ["other"]
    bench.ask(s.Define(4, "create", "q", {"topic": "t", "scope": "distributed"}))
    assert views(bench).life.created_ns > made.cid


def test_a_queue_of_the_config_of_a_peer_may_be_deleted_here() -> None:
    bench = Shared(QueueConfig("other", topic="o"))
    bench.arrives(KIND_DEFINITION, definition())
    bench.watermarks_say(definitions=1)
    assert bench.ask(s.Define(1, "delete", "q", {})).code == ""
    assert [*bench.manager.running] == ["other"]


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        ({}, "give it a `dead_letter` topic"),
        ({"dead_letter": "d"}, """HEADER('zb-queue') = 'q'" | zbroker pub t"""),
        ({"dead_letter": "d", "topic": "t.*", "regex": True}, "zbroker pub TOPIC"),
    ],
)
def test_nothing_of_a_replicated_queue_is_brought_back(more: dict[str, Any], hint: str) -> None:
    bench = Shared(QueueConfig("q", **{"topic": "t", "scope": "distributed", **more}))
    refused = bench.ask(s.Requeue(1, "q", limit=1))
    assert (refused.code, hint in refused.hint) == ("bad_queue", True)


def test_a_record_that_is_no_definition_waits_for_nothing(bench: Shared) -> None:
    bench.arrives(KIND_NOOP, b"")
    assert bench.manager.running["q"].folded == bench.position


# -- changes of owner -------------------------------------------------------------------------


def wants(bench: Shared, room: int = 10, instance: int = THERE.instance) -> None:
    bench.turn.hear(TransferRequest("q", instance, room))
    bench.run()


def moves(bench: Shared) -> list[r.AnyQueueFact]:
    return [fact for record in bench.written(KIND_OWNERSHIP) for fact in r.facts_of(record)]


@pytest.mark.seed("001-59")
def test_the_oldest_messages_are_given_to_an_instance_that_has_room(bench: Shared) -> None:
    mine = bench.many(5)
    wants(bench, 3)
    assert moves(bench) == [r.Moved(named(mine[:3], HERE), THERE.instance, 1)]
    bench.consume()
    assert bench.got() == mine[3:]


@pytest.mark.seed("000-24")
def test_of_two_instances_that_ask_for_the_same_the_first_one_gets_it(bench: Shared) -> None:
    mine = bench.many(3)
    bench.holding = True
    wants(bench, 2)
    wants(bench, 2, THIRD.instance)
    bench.land()
    bench.land()
    assert moves(bench) == [
        r.Moved(named(mine[:2], HERE), THERE.instance, 1),
        r.Moved(named(mine[2:], HERE), THIRD.instance, 1),
    ]
    wants(bench, 2)
    assert len(moves(bench)) == 2


@pytest.mark.seed("000-06")
@pytest.mark.seed("000-25")
@pytest.mark.seed("000-27")
def test_nothing_is_given_while_a_consumer_here_has_room(bench: Shared) -> None:
    bench.consume(backlog=2)
    mine = bench.many(1)
    wants(bench)
    assert moves(bench) == []
    mine += bench.many(3)
    wants(bench)
    assert moves(bench) == [r.Moved(named(mine[2:], HERE), THERE.instance, 1)]


def test_what_is_being_given_is_offered_to_nobody_and_stays_if_it_is_refused(
    bench: Shared,
) -> None:
    mine = bench.many(2)
    bench.holding = True
    wants(bench)
    bench.consume()
    assert bench.got() == []
    bench.holding = False
    bench.refuse()
    assert bench.got() == mine


def test_what_is_given_a_second_time_has_the_next_number(bench: Shared) -> None:
    bench.from_peer(1)
    bench.move(named([1]), number=4, takeover=True)
    wants(bench, instance=THIRD.instance)
    assert moves(bench) == [r.Moved(named([1]), THIRD.instance, 5)]


@pytest.mark.seed("001-53")
def test_what_may_have_been_delivered_is_given_as_such(bench: Shared) -> None:
    bench.consume()
    [one] = bench.many(1)
    bench.send(q.Cancel("s", "c"))
    wants(bench)
    assert moves(bench) == [r.Moved(named([one], HERE), THERE.instance, 1, seen=True)]


def test_an_acknowledgement_while_it_is_being_given_counts(bench: Shared) -> None:
    [one] = bench.many(1)
    bench.holding = True
    wants(bench)
    bench.settle(q.Settle, [one], None, queue="q")
    bench.land()
    bench.land()
    assert not bench.messages
    assert bench.last().taken == 1


def test_what_was_given_and_no_consumer_takes_goes_back(bench: Shared) -> None:
    bench.from_peer(2)
    bench.move(named([1, 2]))
    bench.pass_ms(2_000)
    bench.pass_ms(20_000)
    assert moves(bench) == []
    bench.pass_ms(20_000)
    assert moves(bench) == [r.Moved(named([1, 2]), THERE.instance, 2, back=True)]


def test_what_came_back_stays(bench: Shared) -> None:
    mine = bench.many(1)
    wants(bench)
    back = r.Moved(named(mine, HERE), HERE.instance, 2, back=True)
    bench.facts_of(back)
    for _ in range(5):
        bench.pass_ms(20_000)
    assert len(moves(bench)) == 1
    bench.consume()
    assert bench.got() == mine


def test_a_wish_for_a_queue_that_is_none_of_several_instances_changes_nothing() -> None:
    bench = Shared(QueueConfig("q", topic="t"))
    bench.many(1)
    wants(bench)
    bench.turn.hear(TransferRequest("other", THERE.instance, 1))
    assert all(one.kind != KIND_OWNERSHIP for one in bench.log)


def test_messages_of_one_key_are_not_given_away() -> None:
    config = QueueConfig("q", topic="t", scope="group-local", initial_owner="me", group_key="/k")
    bench = Shared(config)
    bench.publish(b'{"k": 1}')
    wants(bench)
    assert moves(bench) == []


def test_a_person_takes_over_what_belongs_to_an_instance_that_is_away(bench: Shared) -> None:
    bench.consume()
    theirs = bench.from_peer(3)
    mine = bench.many(1)
    ask = s.TakeOver(1, "q", THERE.instance, dry_run=True)
    assert (bench.ask(ask).count, moves(bench)) == (3, [])
    assert bench.ask(s.TakeOver(2, "q", THERE.instance)).count == 3
    assert moves(bench) == [r.Moved(named([1, 2, 3]), HERE.instance, 1, takeover=True, seen=True)]
    assert bench.got() == mine + theirs
    assert [one.deliveries for one in bench.seen()[1:]] == [2, 2, 2]


def test_a_takeover_that_makes_no_sense_is_refused(bench: Shared) -> None:
    assert bench.ask(s.TakeOver(1, "q", HERE.instance)).code == "bad_field"
    assert bench.ask(s.TakeOver(1, "other", THERE.instance)).code == "unknown_queue"
    local = Shared(QueueConfig("q", topic="t"))
    assert local.ask(s.TakeOver(1, "q", THERE.instance)).code == "bad_queue"


@pytest.mark.seed("001-53")
def test_an_at_most_once_queue_is_taken_over_if_that_is_wanted() -> None:
    bench = Shared(QueueConfig("q", topic="t", scope="distributed", semantics="at-most-once"))
    theirs = bench.from_peer(1)
    bench.consume()
    assert bench.ask(s.TakeOver(1, "q", THERE.instance)).code == "bad_queue"
    assert bench.ask(s.TakeOver(2, "q", THERE.instance, may_duplicate=True)).count == 1
    assert bench.got() == theirs
    assert bench.outcomes() == [r.OriginsGone(named([1]), "sent")]


def test_explain_says_that_messages_belong_to_others(bench: Shared) -> None:
    bench.consume()
    [one] = bench.from_peer(1)
    lines = bench.ask(s.Explain(1, "q")).lines
    assert "1 messages belong to other instances" in lines
    said = bench.ask(s.Explain(1, "q", position=one))
    assert said.state == "elsewhere"
    assert said.owners == [s.OwnedMessages(THERE.instance, 1, one, bench.log[-1].log_time)]
    bench.move(named([1]), to=THIRD.instance)
    said = bench.ask(s.Explain(1, "q", position=one))
    assert [(each.instance, each.number) for each in said.owners] == [(THIRD.instance, 1)]
    [other] = bench.from_peer(1, LOWER)
    said = bench.ask(s.Explain(1, "q", position=other))
    assert [each.instance for each in said.owners] == [LOWER.instance], "of this message only"
    mine = bench.many(1)
    assert bench.ask(s.Explain(1, "q", position=mine[0])).owners == []
    assert bench.ask(s.Explain(1, "q", position=1_000)).owners == []


def test_a_queue_says_how_many_messages_belong_to_whom(bench: Shared) -> None:
    theirs, mine = bench.from_peer(3), bench.many(2)
    bench.from_peer(1, THIRD)
    [row] = bench.ask(s.AskQueues(1, "q")).rows
    assert (row.depth, row.elsewhere, row.elsewhere_first) == (6, 4, theirs[0])
    assert row.elsewhere_ns == row.oldest_ns
    assert [(one.instance, one.depth, one.first, one.mine) for one in row.owners] == [
        (THERE.instance, 3, theirs[0], False), (HERE.instance, 2, mine[0], True),
        (THIRD.instance, 1, mine[-1] + 1, False),
    ]  # fmt: skip
    assert [one.owners for one in bench.ask(s.AskQueues(2)).rows] == [[]], "not each second"
    bench.facts_of(gone(range(1, 4)))
    assert bench.ask(s.AskQueues(3, "q")).rows[0].elsewhere == 1


@pytest.mark.parametrize(("owner", "mine"), [("me", True), ("other", False)])
def test_the_initial_owner_is_known_by_its_name(owner: str, mine: bool) -> None:
    config = QueueConfig("q", topic="t", scope="group-local", initial_owner=owner)
    bench = Shared(config)
    bench.from_peer(2)
    [row] = bench.ask(s.AskQueues(1, "q")).rows
    [one] = row.owners
    assert (one.instance, one.name, one.mine, one.depth) == (0, owner, mine, 2)
    assert row.elsewhere == (0 if mine else 2)


def test_a_fact_of_a_life_that_is_not_known_yet_counts_once_it_is(bench: Shared) -> None:
    """It came over a faster link than the definition, which is of another instance."""
    mine = bench.many(2)
    bench.facts_of(gone(mine[:1], HERE), origin=THIRD, life=LIFE)
    bench.facts_of(gone(mine[1:], HERE), origin=THIRD)
    assert bench.messages == BitMap64(mine)
    bench.arrives(KIND_DEFINITION, definition())
    assert not bench.messages


def test_a_definition_may_be_in_a_newer_generation_than_it_names(bench: Shared) -> None:
    """That began meanwhile, and its first record closes the one that is named."""
    mine = bench.many(1)
    closes(bench, Origin(*LIFE[1:]))
    bench.facts_of(gone(mine, HERE), origin=THIRD, life=LIFE)
    assert bench.messages == BitMap64(mine)
    bench.arrives(KIND_DEFINITION, definition(), THERE._replace(generation=2))
    assert not bench.messages


def test_a_fact_of_a_life_that_has_ended_counts_for_no_other(bench: Shared) -> None:
    mine = bench.many(1)
    bench.arrives(KIND_DEFINITION, definition(ends=True))
    bench.facts_of(gone(mine, HERE), life=LIFE)
    assert bench.messages == BitMap64(mine)


@pytest.mark.seed("000-36")
def test_a_config_that_means_another_queue_than_the_peers_is_refused() -> None:
    bench = Shared(QueueConfig("q", topic="other", scope="distributed"), welcome=False)
    bench._next(THERE, 1, 0)
    bench._put(KIND_DEFINITION, definition())
    bench.persisted = bench.position
    with pytest.raises(ConfigError, match="topic"):
        bench.welcome()
