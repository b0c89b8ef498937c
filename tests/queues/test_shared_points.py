"""Points of all instances, as the queues process sets, removes and uses them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import bench, replayable
from tests.queues.linked import Linked, Roaming, join, linked
from zbroker.config import QueueConfig
from zbroker.exchanges.exchange_rows import ExchangeRecord
from zbroker.ids import Origin, format_vector, parse_vector
from zbroker.log.format import KIND_EXCHANGE, KIND_POINT, KIND_SHARED_POINT, KIND_TRANSACTION
from zbroker.log.point_records import SHARED_POINT, PointId, SharedPointRecord
from zbroker.log.records import TransactionRecord, encode
from zbroker.queues import point_commands
from zbroker.wire import messages as m
from zbroker.wire import queue_surveys as s
from zbroker.wire.replicas import Replicated

LOCAL = replayable()


@pytest.fixture
def three() -> list[Linked]:
    return linked()


def points(at: Linked) -> dict[str, str]:
    """What each point covers."""
    return {row.name: row.covers for row in at.ask(s.AskPoints(9)).rows}


def written(at: Linked) -> list[SharedPointRecord]:
    return [SHARED_POINT.decode(one.body) for one in at.log if one.kind == KIND_SHARED_POINT]


def some(three: list[Linked]) -> None:
    """Two messages of two instances, everywhere."""
    three[0].accept(1)
    three[1].accept(2)
    join(three)


def test_a_point_that_is_set_at_one_instance_is_the_same_at_all(three: list[Linked]) -> None:
    some(three)
    answer = three[0].ask(s.SetPoint(1, "eod"))
    vector = parse_vector(answer.vector)
    assert vector[three[1].home] > 0
    assert answer.position == vector[three[0].home] + 1
    join(three)
    assert [points(one) for one in three] == [{"eod": answer.vector}] * 3
    for one in three:
        one.begin_again()
        assert points(one) == {"eod": answer.vector}


def test_its_place_is_looked_up_by_name(three: list[Linked]) -> None:
    some(three)
    three[0].ask(s.SetPoint(1, "eod"))
    join(three)
    three[2].accept(3)
    [listed] = three[2].ask(s.AskPoints(2)).rows
    [found] = three[2].ask(s.AskPoints(3, "eod")).rows
    assert (listed.position, found.position) == (0, three[2].place(3))
    assert three[2].ask(s.AskPoints(4, "noon")).code == "unknown_point"


def test_an_instance_without_links_has_places_in_its_log() -> None:
    at = bench()
    at.many(3)
    assert at.ask(s.SetPoint(7, "noon")).code == ""
    assert at.log[-1].kind == KIND_POINT
    [row] = at.ask(s.AskPoints(8)).rows
    assert (row.shared, at.ask(s.AskPoints(9, "noon")).rows) == (False, [row])


def test_one_that_is_removed_anywhere_is_gone_everywhere(three: list[Linked]) -> None:
    some(three)
    three[0].ask(s.SetPoint(1, "eod"))
    join(three)
    assert three[1].ask(s.RemovePoint(2, "eod", dry_run=True)).position == 0
    assert list(points(three[1])) == ["eod"]
    assert three[1].ask(s.RemovePoint(3, "eod")).vector == points(three[0])["eod"]
    assert points(three[1]) == {}
    join(three)
    assert [points(one) for one in three] == [{}] * 3
    three[0].begin_again()
    assert points(three[0]) == {}
    assert three[0].ask(s.RemovePoint(4, "eod")).code == "unknown_point"


def test_one_that_is_set_again_is_where_it_was_set_last(three: list[Linked]) -> None:
    some(three)
    three[0].ask(s.SetPoint(1, "eod"))
    join(three)
    three[1].accept(3)
    last = three[1].ask(s.SetPoint(2, "eod")).vector
    assert written(three[1])[-1].ends == [PointId(*three[0].home, three[0].log[-1].position)]
    join(three)
    assert [points(one) for one in three] == [{"eod": last}] * 3


def test_two_that_are_set_apart_are_one_and_both_are_removed(three: list[Linked]) -> None:
    some(three)
    for one in three[:2]:
        one.ask(s.SetPoint(1, "eod"))
    join(three)
    assert len({points(one)["eod"] for one in three}) == 1
    three[2].ask(s.RemovePoint(2, "eod"))
    assert len(written(three[2])[-1].ends) == 2
    join(three)
    assert [points(one) for one in three] == [{}] * 3


def test_a_removal_leaves_what_its_writer_did_not_know(three: list[Linked]) -> None:
    some(three)
    three[0].ask(s.SetPoint(1, "eod"))
    three[1].pull(three[0])
    last = three[2].ask(s.SetPoint(1, "eod")).vector
    three[1].ask(s.RemovePoint(2, "eod"))
    join(three)
    assert [points(one) for one in three] == [{"eod": last}] * 3


def test_of_two_on_their_way_the_later_one_is_meant(three: list[Linked]) -> None:
    """It is set before the first one has landed, so it does not end that one."""
    one = three[0]
    one.holding = True
    for name in ("eod", "eod"):
        one.ask(s.SetPoint(1, name))
    one.land()
    one.holding = False
    first, last = written(one)
    assert (last.ends, last.number > first.number) == ([], True)
    [row] = one.ask(s.AskPoints(2)).rows
    assert row.set_at == one.log[-1].position
    one.ask(s.RemovePoint(3, "eod"))
    assert points(one) == {}


def test_a_clock_that_goes_back_does_not_matter(three: list[Linked]) -> None:
    some(three)
    three[0].ask(s.SetPoint(1, "eod"))
    join(three)
    ahead = written(three[0])[0].number + 1_000_000_000_000
    body = encode(SharedPointRecord("eod", ahead, points(three[0])["eod"]))
    three[2].record_of(KIND_SHARED_POINT, body, three[2].home)
    three[2].watermarks_say(definitions=9)
    three[1].accept(3)
    join(three)
    last = three[1].ask(s.SetPoint(2, "eod")).vector
    join(three)
    assert [points(one) for one in three] == [{"eod": last}] * 3


# -- by a vector, and places --------------------------------------------------------------------


def test_a_vector_makes_a_point_of_all(three: list[Linked]) -> None:
    some(three)
    vector = three[0].ask(s.SetPoint(1, "a")).vector
    assert three[1].ask(s.SetPoint(2, "b", covers=vector)).code == ""
    join(three)
    assert points(three[2]) == {"a": vector, "b": vector}


def test_a_place_stays_in_its_log(three: list[Linked]) -> None:
    some(three)
    three[0].ask(s.SetPoint(1, "here", three[0].place(2) or 0))
    join(three)
    assert [list(points(one)) for one in three] == [["here"], [], []]


def test_a_place_cannot_take_the_name_of_a_point_of_all(three: list[Linked]) -> None:
    some(three)
    three[0].ask(s.SetPoint(1, "eod"))
    join(three)
    refused = three[1].ask(s.SetPoint(2, "eod", 1))
    assert (refused.code, "one of all instances" in refused.reason) == ("bad_field", True)
    assert "another name" in refused.hint


@pytest.mark.parametrize("first", [0, 1])
def test_a_point_of_all_takes_the_place_of_a_local_one(three: list[Linked], first: int) -> None:
    some(three)
    one, two, _ = three
    made = [lambda: two.ask(s.SetPoint(1, "eod")), lambda: one.ask(s.SetPoint(2, "eod", 1))]
    made[first]()
    made[1 - first]()
    join(three)
    vector = points(two)["eod"]
    for _ in range(2):
        assert points(one) == {"eod": vector}
        one.begin_again()
    assert one.ask(s.RemovePoint(3, "eod")).code == ""
    assert points(one) == {}


def test_without_links_any_more_it_still_is_one_of_all() -> None:
    at = bench()
    at.many(2)
    body = encode(SharedPointRecord("eod", 1, format_vector({at.origin: 1})))
    at.record_of(KIND_SHARED_POINT, body, at.origin)
    at.watermarks_say(definitions=1)
    assert at.ask(s.SetPoint(7, "eod")).code == ""
    assert at.log[-1].kind == KIND_SHARED_POINT
    assert at.ask(s.RemovePoint(8, "eod")).code == ""
    assert at.ask(s.AskPoints(9)).rows == []


# -- what names it ------------------------------------------------------------------------------


def test_a_queue_of_several_instances_is_read_from_it(three: list[Linked]) -> None:
    some(three)
    three[0].ask(s.SetPoint(1, "eod"))
    join(three)
    three[2].accept(3)
    join(three)
    for one in three:
        reader = Roaming()
        assert reader.read_at(one, since="point:eod") == ""
        assert reader.got == [3]


def test_a_local_queue_is_read_from_where_its_vector_leads() -> None:
    one, two = many = [Linked(n, LOCAL) for n in range(2)]
    two.accept(2)
    one.accept(1)
    one.ask(s.SetPoint(1, "eod"))
    join(many)
    one.consume(since="point:eod", sid="r")
    assert [at for sid, give in one.gives for at in give.positions if sid == "r"] == [one.place(2)]
    two.consume(since="point:eod", sid="r")
    given = [at for sid, give in two.gives for at in give.positions if sid == "r"]
    assert given == [two.place(2), two.place(1)], "1 comes after what the point does not cover"


def test_one_that_nobody_knows_is_refused(three: list[Linked]) -> None:
    reader = Roaming()
    assert reader.read_at(three[0], since="point:eod") == "unknown_point"


def test_a_purge_takes_what_it_covers_on_every_instance(three: list[Linked]) -> None:
    some(three)
    three[0].ask(s.SetPoint(1, "eod"))
    join(three)
    three[1].accept(3)
    join(three)
    answer = three[2].purge(point="eod")
    assert (answer.count, answer.position) == (2, three[2].place(3))
    join(three)
    assert [one.numbers() for one in three] == [{3}] * 3


def test_a_purge_without_a_place_answers_none(
    three: list[Linked], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the log is to go then: what the vector covers may be anywhere in it."""
    some(three)
    three[0].ask(s.SetPoint(1, "eod"))
    join(three)
    located = three[2].locate

    def expired(ask: Any) -> Any:
        found = located(ask)
        found.code = "bookmark_expired"
        return found

    monkeypatch.setattr(three[2], "locate", expired)
    answer = three[2].purge(point="eod")
    assert (answer.code, answer.count, answer.position) == ("", 2, three[2].log_start)


def test_a_work_queue_is_purged_to_the_place_of_its_vector() -> None:
    at = Linked(0, QueueConfig("q", topic="t"))
    at.accept(1)
    at.ask(s.SetPoint(1, "eod"))
    at.accept(2)
    planned = at.purge(point="eod", dry_run=True)
    assert (planned.count, planned.position) == (1, at.place(2))
    assert at.purge(point="eod").count == 1
    assert at.numbers() == {2}


def test_a_purge_to_a_place_that_is_not_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Linked(0, QueueConfig("q", topic="t"))
    at.accept(1)
    at.ask(s.SetPoint(1, "eod"))
    located = at.locate

    def pending(ask: Any) -> Any:
        found = located(ask)
        found.code = "bookmark_pending"
        return found

    monkeypatch.setattr(at, "locate", pending)
    assert at.purge(point="eod").code == "bookmark_pending"
    assert at.numbers() == {1}


# -- limits, refusals, restarts -----------------------------------------------------------------


def test_their_vectors_are_bounded(three: list[Linked], monkeypatch: pytest.MonkeyPatch) -> None:
    some(three)
    one = three[0]
    covers = one.ask(s.SetPoint(1, "a")).vector
    monkeypatch.setattr(point_commands, "COVERS_MAX_BYTES", 2 * len(covers))
    assert one.ask(s.SetPoint(2, "b", covers=covers)).code == ""
    assert one.ask(s.SetPoint(3, "c", covers=covers)).code == "too_many"
    one.ask(s.RemovePoint(4, "a"))
    assert one.ask(s.SetPoint(5, "c", covers=covers)).code == ""
    one.begin_again()
    assert one.ask(s.SetPoint(6, "d", covers=covers)).code == "too_many"


def test_one_with_too_large_a_vector_is_refused(three: list[Linked]) -> None:
    vector = format_vector({three[0].home._replace(instance=n + 1): 1 for n in range(20_000)})
    assert three[0].ask(s.SetPoint(1, "a", covers=vector)).code == "too_large"


def test_points_of_all_count_among_the_points_of_an_instance(
    three: list[Linked], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(point_commands, "POINTS_MAX", 1)
    some(three)
    three[0].ask(s.SetPoint(1, "a"))
    join(three)
    assert three[1].ask(s.SetPoint(2, "b")).code == "too_many"
    assert three[1].ask(s.SetPoint(3, "a")).code == "", "one that is there may be set again"


def test_a_refused_one_is_none(three: list[Linked]) -> None:
    one = three[0]
    one.holding = True
    one.ask(s.SetPoint(1, "a"))
    one.refuse("too_large")
    assert one.reported[-1][1].code == "too_large"
    assert points(one) == {}


@pytest.mark.parametrize("landed", [True, False])
def test_one_that_was_under_way_when_the_journal_died_is_set_once(
    three: list[Linked], landed: bool
) -> None:
    one = three[0]
    one.doubt(lambda: one.ask(s.SetPoint(1, "a")), landed=landed)
    one.run()
    assert [said.name for said in written(one)] == ["a"]
    assert list(points(one)) == ["a"]
    [row] = one.manager.points._shared["a"]
    assert row == PointId(*one.home, one.log[-1].position)


def forged(kind: int, by: int) -> bytes:
    """A record of another instance that claims to be of the first unit of a process here."""
    if kind == KIND_SHARED_POINT:
        return encode(SharedPointRecord("x", 1, format_vector({Origin(7, 1): 1}), [], by, 2))
    if kind == KIND_EXCHANGE:
        return encode(ExchangeRecord([], by, 2))
    return encode(TransactionRecord("p", "s", 1, by=by, unit=2))


@pytest.mark.parametrize("kind", [KIND_SHARED_POINT, KIND_EXCHANGE, KIND_TRANSACTION])
def test_a_record_of_another_instance_does_not_say_that_one_of_here_landed(
    three: list[Linked], kind: int
) -> None:
    one, two, _ = three
    one.holding = True
    one.ask(s.SetPoint(1, "a"))
    one.die()
    one.record_of(kind, forged(kind, one.incarnation), two.home)
    one.holding = False
    one.come_back()
    one.run()
    assert "a" in [said.name for said in written(one)]


def test_an_answer_waits_for_synchronous_destinations() -> None:
    one = Linked(0, QueueConfig("q", topic="t"), sync=True)
    one.accept(1)
    assert one.ask(s.SetPoint(7, "a")) is None
    assert list(points(one)) == ["a"]
    one.turn.hear(Replicated(one.journal, one.position, 1))
    one.run()
    assert isinstance(one.reported[-1][1], s.Changed)


def test_nobody_is_sent_an_error(three: list[Linked]) -> None:
    some(three)
    three[0].ask(s.SetPoint(1, "eod"))
    join(three)
    three[0].consume(since="point:eod")
    assert not isinstance(three[0].last(), m.Error)
