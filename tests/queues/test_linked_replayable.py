"""A replayable queue of several instances: marks, purges and readers, whatever comes first."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest
from pyroaring import BitMap64

from tests.queues.linked import Linked, Roaming, join, linked
from zbroker.ids import NOW, Vector, format_vector
from zbroker.log.format import KIND_CLOSED, KIND_DEFINITION, KIND_OWNERSHIP
from zbroker.log.queue_records import OriginsNoted
from zbroker.log.records import ClosedRecord, encode
from zbroker.queues.journal_client import JournalClient
from zbroker.queues.purges import Purges
from zbroker.queues.replicated.early_facts import EarlyFacts
from zbroker.queues.replicated.origin_facts import OriginFacts
from zbroker.queues.replicated.replicated_replayable import ReplicatedReplayable
from zbroker.queues.start_positions import StartPositions
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s
from zbroker.wire.owner_requests import TransferRequest

SEEDS: Final = 40
STEPS: Final = 60


class History:
    """What was promised: published, acknowledged and purged by number."""

    def __init__(self, seed: int, *, twice: bool) -> None:
        """twice: publishers send messages to a second instance, too."""
        self.random, self.twice = Random(seed), twice
        self.many = linked(3)
        self.reader = Roaming()
        self.published: set[int] = set()
        self.acked: set[int] = set()
        self.purged: set[int] = set()

    def run(self) -> None:
        steps: list[tuple[int, Callable[[Linked], None]]] = [
            (6, self._publish), (8, self._pull), (3, self._ack), (1, self._purge),
            (1, self._restart), (2, self._read),
        ]  # fmt: skip
        weights, calls = zip(*steps, strict=True)
        for _ in range(STEPS):
            [call] = self.random.choices(calls, weights)
            call(self.random.choice(self.many))
            self.reader.take()
            self._look_at_reader()
        join(self.many)
        self.judge()

    def _publish(self, at: Linked) -> None:
        number = len(self.published)
        if self.twice and self.published and self.random.random() < 0.3:
            number = self.random.choice(sorted(self.published))
        self.published.add(number)
        at.accept(number)

    def _pull(self, at: Linked) -> None:
        other = self.random.choice([one for one in self.many if one is not at])
        for _ in range(self.random.randint(1, 4)):
            at.pull(other)

    def _ack(self, at: Linked) -> None:
        here = sorted(at.numbers())
        numbers = self.random.sample(here, min(len(here), 2))
        if numbers:
            at.acknowledge(*numbers)
            assert at.of(q.Settled)[-1].taken == len(numbers)
            self.acked |= {*numbers}

    def _purge(self, at: Linked) -> None:
        before = self.random.choice([0, at.position, *at.here()])
        purged = {at.number(one) for one in at.here() if one < before or not before}
        assert at.purge(before).count == len(purged)
        self.purged |= purged
        assert not purged & at.numbers()

    def _restart(self, at: Linked) -> None:
        if self.reader.at is at:
            self.reader.take()
            self.reader.at = None
        here, noted = at.numbers(), at.noted()
        at.begin_again(at.tables() if self.random.random() < 0.5 else None)
        assert (at.numbers(), at.noted()) == (here, noted)

    def _read(self, at: Linked) -> None:
        code = self.reader.read_at(at)
        if code:
            assert code == "bookmark_expired"
            # of a purged message with two names one is remembered, maybe not the one that it had
            assert self.twice or self.purged - {*self.reader.got}, "it missed nothing"
            self.reader = Roaming()
            assert self.reader.read_at(at) == ""

    def _look_at_reader(self) -> None:
        if not self.twice:
            assert len(self.reader.got) == len({*self.reader.got}), "it came again"

    def judge(self) -> None:
        """All instances have the same, and that is what was promised."""
        for one in self.many:
            assert one.numbers() == self.published - self.purged
            assert one.noted() == self.acked - self.purged
        if self.reader.read_at(self.many[0]) != "bookmark_expired":
            self._look_at_reader()
            assert self.published - self.purged <= {*self.reader.got}, "a gap"
        join(self.many)
        for one in self.many:
            replicated = one.one().replicated
            assert replicated is not None
            assert replicated.needs is None, "the log is held for nothing"


@pytest.mark.seed("003-36")
@pytest.mark.parametrize("twice", [False, True])
def test_all_instances_have_the_same_and_a_reader_gets_it_once(twice: bool) -> None:
    for seed in range(SEEDS):
        History(seed, twice=twice).run()


def other_name() -> None:
    """A purge at the third names a message by where it had it from; the second has it from a
    publisher, and hears of that other name last."""
    one, two, three = linked(3)
    one.accept(7)
    two.accept(7)
    three.pull(one)
    three.acknowledge(7)
    assert three.purge().count == 1
    assert two.numbers() == {7}
    while two.pull(three):
        pass
    assert two.numbers() == {7}
    while two.pull(one):
        pass
    assert two.numbers() == set()


def test_a_purge_takes_a_message_by_any_of_its_names() -> None:
    other_name()


# -- one thing at a time ----------------------------------------------------------------------


@pytest.fixture
def three() -> list[Linked]:
    return linked(3)


def everywhere(many: list[Linked], *numbers: int) -> None:
    """Messages that the first one accepted, on all of them."""
    for number in numbers:
        many[0].accept(number)
    join(many)


def in_two_orders(three: list[Linked]) -> None:
    """After 1 and 2 the first one has 4, then 3; the second one has 3 only."""
    one, two, _ = three
    everywhere(three, 1, 2)
    two.accept(3)
    one.accept(4)
    while one.pull(two):
        pass


def test_a_mark_is_shown_on_all_and_takes_no_message(three: list[Linked]) -> None:
    everywhere(three, 1, 2)
    three[2].acknowledge(1)
    join(three)
    assert [one.noted() for one in three] == [{1}] * 3
    assert [one.numbers() for one in three] == [{1, 2}] * 3


def test_a_mark_that_came_first_outlives_the_log_before_its_message() -> None:
    """It is written again, since a start without tables may begin between the two."""
    one, two, three = linked(3)
    one.accept(1)
    while two.pull(one):
        pass
    two.acknowledge(1)
    at = three.position
    while three.pull(two):
        pass
    assert three.one().lowest == at
    three.holding = True
    while three.pull(one):
        pass
    assert three.one().lowest == at
    three.holding = False
    three.land()
    assert three.one().lowest > at
    cut(three, 1)
    assert three.noted() == {1}


def cut(at: Linked, number: int) -> None:
    """The log is removed before this message, and the process begins without tables."""
    place = at.place(number)
    assert place is not None
    at.log_start = place
    at.log[:] = [one for one in at.log if one.position >= place or one.kind == KIND_DEFINITION]
    at.begin_again()


def purged_early() -> tuple[Linked, Linked, int]:
    """An instance with a message, and another one which the purge of it by a third one has reached
    first; where that is there."""
    one, two, three = linked(3)
    one.accept(1)
    while two.pull(one):
        pass
    two.purge()
    at = three.position
    while three.pull(two):
        pass
    assert three.holds().lowest == at
    return one, three, at


def test_a_purge_that_came_first_outlives_the_log_before_its_message() -> None:
    one, three, at = purged_early()
    while three.pull(one):
        pass
    assert three.numbers() == set()
    assert three.holds().lowest > at
    cut(three, 1)
    assert three.numbers() == set()


def test_a_purge_of_what_only_a_lost_host_had_does_not_hold_the_log() -> None:
    one, three, at = purged_early()
    closing = one.home._replace(generation=one.home.generation + 1)
    body = encode(ClosedRecord(one.home.generation, 0))
    three._put(KIND_CLOSED, body)
    three.log[-1].origin_instance, three.log[-1].origin_generation = closing
    three.persist()
    assert three.holds().lowest > at


def test_the_tables_have_purges_of_what_is_to_come() -> None:
    one, two, three = linked(3)
    one.accept(1)
    while two.pull(one):
        pass
    two.acknowledge(1)
    one.accept(2)
    while two.pull(one):
        pass
    two.purge(two.place(2) or 0)
    while three.pull(two):
        pass
    three.begin_again(three.tables())
    while three.pull(one):
        pass
    assert three.numbers() == {2}


def test_a_reader_goes_on_at_another_instance(three: list[Linked]) -> None:
    """Each has its own order: it gets what it has not had, also where that is before the rest."""
    one, two, _ = three
    in_two_orders(three)
    reader = Roaming()
    reader.read_at(one)
    assert reader.got == [1, 2, 4, 3]
    two.accept(5)
    reader.read_at(two)
    assert reader.got == [1, 2, 4, 3, 5]
    join(three)
    reader.take()
    assert reader.got == [1, 2, 4, 3, 5]
    reader.read_at(one)
    one.accept(6)
    reader.take()
    assert reader.got == [1, 2, 4, 3, 5, 6]


def test_a_reader_that_begins_now_goes_on_after_that(three: list[Linked]) -> None:
    everywhere(three, 1, 2)
    three[1].accept(3)
    join(three)
    reader = Roaming()
    reader.read_at(three[0], since=NOW)
    three[0].accept(4)
    reader.read_at(three[2])
    join(three)
    reader.take()
    assert reader.got == [4]


def test_a_reader_waits_until_the_queue_was_read_as_far_as_the_log_is(three: list[Linked]) -> None:
    """Else it would get again what has another name by a record that is read later."""
    one, two, _ = three
    one.accept(1)
    reader = Roaming()
    reader.read_at(one)
    two.reading = False
    two.accept(1)
    while two.pull(one):
        pass
    two.consume(sid="late", since=format_vector(reader.vector))
    assert not two.of(q.Consuming)
    two.reading = True
    two.run()
    assert two.of(q.Consuming)
    assert two.got("late") == []


def test_a_search_leaves_out_what_the_reader_had(three: list[Linked]) -> None:
    everywhere(three, 1, 2, 3)
    reader = Roaming()
    reader.read_at(three[0], until=three[0].bookmark(three[0].place(2) or 0))
    assert reader.got == [1, 2]
    reader.read_at(three[1], selector="/x IS NULL")
    assert reader.got == [1, 2, 3]


def test_a_reader_ends_if_a_purge_elsewhere_takes_what_it_was_to_get(three: list[Linked]) -> None:
    one, two, _ = three
    everywhere(three, 1)
    reader = Roaming()
    reader.read_at(two)
    one.accept(2)
    one.purge()
    while two.pull(one):
        pass
    reader.take()
    assert reader.got == [1, 2]  # it had it before the purge came
    assert two.codes() == []
    one.accept(3)
    while three[2].pull(one):
        pass
    three[2].purge()
    while two.pull(three[2]):
        pass
    two.pull(one)
    assert two.codes() == ["bookmark_expired"]
    reader.at = None
    join(three)
    assert reader.read_at(one) == "bookmark_expired"
    assert reader.read_at(one, bookmark_not_found="epoch") == ""


def test_what_an_instance_lets_go_of_stays_at_the_others(three: list[Linked]) -> None:
    """Its bound is about its own disk."""
    one, two, _ = three
    everywhere(three, 1, 2, 3)
    reader = Roaming()
    reader.read_at(two, until=two.bookmark(two.place(1) or 0))
    one.core.journal._release_before(one.one(), one.place(3) or 0)
    one.run()
    join(three)
    assert [each.numbers() for each in three] == [{3}, {1, 2, 3}, {1, 2, 3}]
    one.begin_again()
    assert one.numbers() == {3}
    assert reader.read_at(one) == "bookmark_expired"
    assert reader.read_at(two) == ""
    assert reader.got == [1, 2, 3]


def test_a_message_that_cannot_be_read_here_stays_at_the_others(three: list[Linked]) -> None:
    everywhere(three, 1, 2)
    three[0].unreadable.add(three[0].place(1) or 0)
    three[0].consume(since="0")
    join(three)
    assert [one.numbers() for one in three] == [{2}, {1, 2}, {1, 2}]


def test_a_point_of_another_instance_is_before_the_same_messages(three: list[Linked]) -> None:
    one, two, _ = three
    in_two_orders(three)
    two.accept(5)
    vector = one.ask(s.SetPoint(1, "end")).vector
    assert two.ask(s.SetPoint(2, "end", covers=vector)).code == ""
    join(three)
    reader = Roaming()
    reader.read_at(two, since="point:end")
    assert reader.got == [5]
    assert two.purge(point="end").count == 4
    join(three)
    assert [each.numbers() for each in three] == [{5}] * 3
    two.begin_again()
    assert two.ask(s.AskPoints(3)).rows[0].covers == vector


@pytest.mark.parametrize("given", [{"covers": "no vector"}, {"covers": "1.1.1", "at": 1}])
def test_a_point_that_is_none_is_refused(three: list[Linked], given: dict[str, Any]) -> None:
    assert three[0].ask(s.SetPoint(1, "end", **given)).code == "bad_field"


def test_its_messages_belong_to_no_instance(three: list[Linked]) -> None:
    one, two, _ = three
    everywhere(three, 1)
    assert two.ask(s.TakeOver(1, "q", one.home.instance)).code == "bad_queue"
    assert two.ask(s.AskQueues(2, "q")).rows[0].owners == []
    two.turn.hear(TransferRequest("q", one.home.instance, 10))
    two.run()
    join(three)
    assert not [each for each in one.log if each.kind == KIND_OWNERSHIP]


def test_a_purge_that_changes_nothing_writes_nothing(three: list[Linked]) -> None:
    everywhere(three, 1)
    three[0].purge()
    end = three[0].position
    assert three[0].purge(1).count == 0
    assert three[0].purge(dry_run=True).count == 0
    assert three[0].position == end


def test_a_client_purges_it_for_all(three: list[Linked]) -> None:
    everywhere(three, 1, 2)
    three[1].send(q.PurgeQueue("q", "c"))
    assert three[1].of(q.QueueChanged)[-1].count == 2
    join(three)
    assert [one.numbers() for one in three] == [set()] * 3


def test_a_local_one_does_not_become_one_of_several_instances() -> None:
    one = Linked(0)
    made = {"topic": "t", "kind": "replayable"}
    assert one.ask(s.Define(1, "create", "q", made)).code == ""
    refused = one.ask(s.Define(2, "alter", "q", {"scope": "distributed"}))
    assert (refused.code, one.one().replicated) == ("bad_queue", None)


# -- bugs that have to be found ---------------------------------------------------------------


def _mark_is_gone(patch: pytest.MonkeyPatch) -> None:
    def apply(self: Any, fact: Any, local: BitMap64, *given: Any, **more: Any) -> None:
        self.take_out(local)

    patch.setattr(ReplicatedReplayable, "_apply", apply)


def _purge_by_own_place(patch: pytest.MonkeyPatch) -> None:
    def vector_before(self: Any, position: int, folded: int) -> Vector:
        return {one: position - 1 for one in self._read if one.instance == self.me}

    patch.setattr(ReplicatedReplayable, "vector_before", vector_before)


def _early_mark_is_dropped(patch: pytest.MonkeyPatch) -> None:
    add = EarlyFacts.add

    def dropped(self: Any, origin: Any, early: Any) -> None:
        if not isinstance(early.fact, OriginsNoted):
            add(self, origin, early)

    patch.setattr(EarlyFacts, "add", dropped)


def _purge_misses_what_comes_later(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("zbroker.queues.replicated.replicated_replayable.raise_to", _keep_lost)


def _keep_lost(vector: Vector, other: Vector) -> None:
    """As raise_to, but a purge is not remembered."""


def _purge_takes_one_name_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicatedReplayable, "_tied", lambda self, batch, local: None)


def _purge_is_of_the_last_one(patch: pytest.MonkeyPatch) -> None:
    whole = ReplicatedReplayable._apply_whole

    def last(self: Any, fact: Any, at: int) -> None:
        self.purged = {}
        whole(self, fact, at)

    patch.setattr(ReplicatedReplayable, "_apply_whole", last)


def _reader_gets_all_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicatedReplayable, "had", lambda self, vector: BitMap64())


def _reader_gets_again_what_comes_later(patch: pytest.MonkeyPatch) -> None:
    named = ReplicatedReplayable._named

    def forgetful(self: Any, *names: Any) -> None:
        if self._queue.reader is not None:
            self._queue.reader.passed = {}
        named(self, *names)

    patch.setattr(ReplicatedReplayable, "_named", forgetful)


def _reader_begins_after_all_that_it_had(patch: pytest.MonkeyPatch) -> None:
    search = StartPositions._search

    def late(self: Any, opening: Any) -> None:
        search(self, opening)
        if opening.passed and opening.had and opening.queue.reader is not None:
            opening.queue.reader.position = opening.had.max() + 1

    patch.setattr(StartPositions, "_search", late)


def _reader_misses_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicatedReplayable, "missed", lambda self, passed: True)


def _ties_count_no_more(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OriginFacts, "_tie", lambda self, batch: None)


def _purge_does_not_hold_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicatedReplayable, "_is_ahead", lambda self, vector: False)


def _early_mark_is_not_written_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicatedReplayable, "_keep", lambda self, early, found: None)


def _what_is_released_here_is_so_for_all(patch: pytest.MonkeyPatch) -> None:
    released = JournalClient._release_before

    def everywhere_else(self: Any, one: Any, position: int) -> None:
        released(self, one, position)
        purges = Purges(self._shared)
        purges.replayable(one, purges.of(one, position), lambda *_: None)

    patch.setattr(JournalClient, "_release_before", everywhere_else)


BUGS: Final = {
    "a mark is taken for the end of a message": _mark_is_gone,
    "a purge is of places of one log": _purge_by_own_place,
    "a mark before its message is dropped": _early_mark_is_dropped,
    "a purge misses a message that comes later": _purge_misses_what_comes_later,
    "a purge misses the other name of a message": _purge_takes_one_name_only,
    "a purge makes the one before it forgotten": _purge_is_of_the_last_one,
    "a reader of another instance gets all again": _reader_gets_all_again,
    "it gets again what comes later": _reader_gets_again_what_comes_later,
    "it begins after all that it had": _reader_begins_after_all_that_it_had,
    "it is refused though it missed nothing": _reader_misses_nothing,
    "other names do not count": _ties_count_no_more,
    "the log is not held for a purge of what comes later": _purge_does_not_hold_the_log,
    "a mark before its message is not written again": _early_mark_is_not_written_again,
    "what one instance lets go of is purged": _what_is_released_here_is_so_for_all,
}


def look_everywhere() -> None:
    """Histories in which it has to be seen."""
    other_name()
    test_a_mark_that_came_first_outlives_the_log_before_its_message()
    test_a_purge_that_came_first_outlives_the_log_before_its_message()
    test_what_an_instance_lets_go_of_stays_at_the_others(linked(3))
    for seed in range(4 * SEEDS):
        History(seed, twice=seed % 2 == 1).run()


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    with pytest.raises((AssertionError, LookupError)):
        look_everywhere()
