"""zbroker/queues/admin_commands.py: purge, requeue, definitions, points: durable, then answered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import HERE, KEY_A, STEP_NS, WALL_NS, Bench, bench, replayable, rules, work
from zbroker.config.journal import RecordConfig
from zbroker.ids import format_vector
from zbroker.log.format import KIND_POINT, KIND_PURGE, KIND_WIRING
from zbroker.log.records import WIRING, MessagesGone, Returned
from zbroker.queues import browser, definition_changes, point_commands, purges
from zbroker.queues.effects import Reenter
from zbroker.recording import Recording
from zbroker.wire import bodies
from zbroker.wire import queue_messages as q
from zbroker.wire import queue_surveys as s

TABLE = {"topic": "t", "max_deliveries": 3}


def vector(position: int) -> str:
    """What is before a position."""
    return format_vector({HERE: position - 1})


def define(what: str, name: str = "new", **more: Any) -> s.Define:
    return s.Define(1, what, name, **more)


# -- purge ------------------------------------------------------------------------------------


def test_a_purge_takes_what_no_consumer_has() -> None:
    at = bench()
    positions = at.many(5)
    at.consume(backlog=2)
    assert at.ask(s.Purge(7, "q")) == s.Changed(7, 3, at.one().folded - 1)
    assert at.here() == positions[:2]
    assert [fact.why for fact in at.facts(MessagesGone)] == ["purged"]


def test_a_purge_takes_what_consumers_have_if_it_is_said() -> None:
    at = bench()
    at.many(5)
    at.consume(backlog=2)
    assert at.ask(s.Purge(7, "q", leased=True)).count == 5
    assert at.here() == []


def test_a_purge_ends_before_a_position() -> None:
    at = bench()
    positions = at.many(5)
    assert at.ask(s.Purge(7, "q", before=positions[2])) == s.Changed(7, 2, positions[2])
    assert at.here() == positions[2:]


def test_a_purge_ends_at_a_point() -> None:
    at = bench()
    positions = at.many(5)
    at.ask(s.SetPoint(6, "noon", positions[2]))
    assert at.ask(s.Purge(7, "q", point="noon")).count == 2
    assert at.here() == positions[2:]


def test_a_purge_that_is_tried_takes_nothing() -> None:
    at = bench()
    positions = at.many(5)
    at.consume(backlog=2)
    assert at.ask(s.Purge(7, "q", dry_run=True)).count == 3
    assert at.ask(s.Purge(7, "q", dry_run=True, leased=True)).count == 5
    assert at.here() == positions


def test_a_purge_of_nothing_is_answered_at_once() -> None:
    at = bench()
    at.holding = True
    assert at.ask(s.Purge(7, "q")).count == 0


def test_a_purge_is_answered_when_it_is_durable() -> None:
    at = bench()
    at.many(5)
    at.holding = True
    assert at.ask(s.Purge(7, "q")) is None
    at.land()
    assert at.reported[-1][1].count == 5  # type: ignore[union-attr]


def test_a_purge_that_is_refused_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purges, "FACTS_MAX", 3)
    monkeypatch.setattr("zbroker.queues.queue_state.FACTS_MAX", 3)
    at = bench()
    positions = at.many(5)
    at.holding = True
    at.ask(s.Purge(7, "q"))
    assert len(at.under_way) == 2, "it is too large for one unit"
    at.refuse("too_large", 1)
    at.land()
    [(_, reported)] = at.reported
    assert isinstance(reported, s.Changed)
    assert reported.code == "too_large"
    assert at.here() == positions[:3]


def test_a_purge_can_make_dead_letters() -> None:
    at = bench(work(dead_letter="dead"))
    positions = at.many(3)
    reported = at.ask(s.Purge(7, "q", before=positions[2], dead_letters=True))
    assert (reported.code, reported.count) == ("", 2)
    letters = at.letters()
    assert [data for _, data, _ in letters] == [b"0", b"1"]
    assert {headers["zb-reason"] for _, _, headers in letters} == {"forced"}
    assert at.here() == positions[2:]


def test_without_a_topic_for_them_a_purge_makes_no_dead_letters() -> None:
    at = bench()
    positions = at.many(3)
    assert at.ask(s.Purge(7, "q", dead_letters=True)).code == "bad_queue"
    assert at.here() == positions


def test_what_is_on_its_way_back_is_not_brought_back_again() -> None:
    at, positions = _dead()
    at.holding = True
    assert at.ask(s.Requeue(7, "q", limit=3)) is None
    assert at.ask(s.Requeue(8, "q")) is None
    at.land()
    counts = [(reported.cid, reported.count) for _, reported in at.reported]  # type: ignore[union-attr]
    assert counts == [(7, 3), (8, 1)]
    assert at.here() == positions


def test_a_purge_of_a_replayable_queue_is_a_record() -> None:
    at = bench(replayable(), work("other"))
    positions = at.many(5)
    at.ask(s.SetPoint(6, "noon", positions[2]))
    at.holding = True
    assert at.ask(s.Purge(7, "q", point="noon")) is None
    assert at.kinds() == [KIND_PURGE]
    at.land()
    assert at.reported[-1][1] == s.Changed(7, 2, positions[2], vector(positions[2]))
    assert at.here() == positions[2:]
    assert at.here("other") == positions


def test_a_purge_of_a_replayable_queue_can_be_tried() -> None:
    at = bench(replayable())
    positions = at.many(5)
    reported = at.ask(s.Purge(7, "q", before=positions[2], dry_run=True))
    assert reported == s.Changed(7, 2, positions[2], vector(positions[2]))
    assert at.here() == positions
    at.holding = True
    assert at.ask(s.Purge(7, "q", before=positions[0])).count == 0, "nothing is to be written"


def test_a_purge_of_a_replayable_queue_takes_nothing_that_it_has_not_read() -> None:
    at = bench(replayable())
    positions = at.many(2)
    at.reading = False
    reported = at.ask(s.Purge(7, "q", before=positions[-1] + 100, dry_run=True))
    assert reported.position == at.one().folded


def test_a_refused_purge_of_a_replayable_queue_says_so() -> None:
    at = bench(replayable())
    at.many(5)
    at.holding = True
    at.ask(s.Purge(7, "q"))
    at.refuse("too_large")
    assert at.reported[-1][1].code == "too_large"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (s.Purge(7, "nope"), "unknown_queue"),
        (s.Purge(7, "q", point="nope"), "unknown_point"),
        (s.Requeue(7, "nope"), "unknown_queue"),
        (s.Requeue(7, "log"), "bad_queue"),
        (s.Requeue(7, "q", ["1|1|"] * 10_001), "too_many"),
        (s.Requeue(7, "q", ["nonsense"]), "bad_bookmark"),
        (s.Explain(7, "nope"), "unknown_queue"),
        (s.Explain(7, "q", bookmark="nonsense"), "bad_bookmark"),
        (s.Explain(7, "q", bookmark="5|5|"), "bookmark_not_found"),
        (define("create", "q", definition=TABLE), "queue_exists"),
        (define("create", definition={"topic": "t", "lease": "nonsense"}), "bad_queue"),
        (define("create", definition={"nonsense": 1}), "bad_queue"),
        (define("create", "$new", definition=TABLE), "bad_queue"),
        (define("create", definition={"topic": "shut"}), "bad_queue"),
        (define("create", definition={**TABLE, "recovery_point": "5|5|"}), "bookmark_not_found"),
        (define("create", definition={**TABLE, "recovery_point": "nonsense"}), "bad_queue"),
        (define("alter", definition=TABLE), "unknown_queue"),
        (define("alter", "q", definition=TABLE), "bad_queue"),
        (define("delete"), "unknown_queue"),
        (define("delete", "q"), "bad_queue"),
        (define("drop", "q"), "bad_field"),
        (s.SetPoint(7, ""), "bad_field"),
        (s.SetPoint(7, "n" * 256), "bad_field"),
        (s.SetPoint(7, "a\nb"), "bad_field"),
        (s.SetPoint(7, "p", 1_000), "bad_field"),
        (s.SetPoint(7, "p", -1), "bad_field"),
    ],
)
def test_what_cannot_be_is_refused(question: s.QueuesQuestion, code: str) -> None:
    at = bench(work(), replayable("log"), record=Recording([RecordConfig("t")]))
    at.many(2)
    before, rows = at.position, dict(at.manager.rows)
    reported = at.ask(question)
    assert reported.code == code
    assert reported.reason
    assert reported.cid == question.cid
    assert (at.position, at.manager.rows) == (before, rows), "nothing was written"


def test_before_the_log_was_read_nothing_is_purged_or_brought_back() -> None:
    at = bench()
    at.many(3)
    at.reading = False
    at.restart()
    assert at.ask(s.Purge(7, "q")).code == "not_ready"
    assert at.ask(s.Requeue(7, "q")).code == "not_ready"


def test_before_the_queues_are_known_nothing_is_defined() -> None:
    at = Bench(welcome=False)
    assert at.ask(define("create", definition=TABLE)).code == "not_ready"
    assert at.ask(s.AskPoints(7)).rows == []


def test_before_the_journal_was_heard_of_no_point_is_set() -> None:
    at = bench()
    at.manager.here = None
    assert at.ask(s.SetPoint(7, "p")).code == "not_ready"


# -- requeue ----------------------------------------------------------------------------------


def _dead(*configs: Any, count: int = 4) -> tuple[Bench, list[int]]:
    """Messages that were given up."""
    at = bench(*(configs or (work(dead_letter="dead"),)))
    positions = at.publish(*[b'{"n": %d}' % number for number in range(count)])
    at.consume()
    at.release(*positions)
    at.reject(*positions)
    at.send(q.Cancel("s"))
    assert at.here() == []
    return at, positions


def test_dead_letters_come_back_with_counts_that_begin_again() -> None:
    at, positions = _dead()
    assert at.ask(s.Requeue(7, "q")) == s.Changed(7, 4)
    assert at.here() == positions
    at.consume(sid="t")
    assert [one.deliveries for one in at.seen("t")] == [1, 1, 1, 1]
    assert not at.one().dead


def test_the_newest_dead_letters_come_back_first() -> None:
    at, positions = _dead()
    assert at.ask(s.Requeue(7, "q", limit=1)).count == 1
    assert at.here() == positions[3:]
    assert at.ask(s.Requeue(7, "q", limit=2)).count == 2
    assert at.here() == positions[1:]


@pytest.mark.parametrize("limit", [0, -2])
def test_no_dead_letters_come_back_if_none_are_wanted(limit: int) -> None:
    at, _ = _dead()
    assert at.ask(s.Requeue(7, "q", limit=limit)).count == 0
    assert at.here() == []


def test_dead_letters_are_named_by_bookmarks() -> None:
    at, positions = _dead()
    alive = at.many(1)
    names = [at.bookmark(positions[1]), at.bookmark(alive[0]), "5|5|"]
    assert at.ask(s.Requeue(7, "q", names)).count == 1
    assert at.here() == [positions[1], *alive]


def test_a_silent_journal_is_reported() -> None:
    at, positions = _dead()
    at.silent = True
    assert at.ask(s.Requeue(7, "q", [at.bookmark(one) for one in positions])) is None
    at.pass_ms(10_000)
    assert [reported.code for _, reported in at.reported] == ["not_ready"]  # type: ignore[union-attr]
    assert at.here() == []


def test_a_requeue_can_be_tried() -> None:
    at, positions = _dead()
    assert at.ask(s.Requeue(7, "q", dry_run=True)).count == 4
    names = [at.bookmark(positions[0])]
    assert at.ask(s.Requeue(7, "q", names, dry_run=True)).count == 1
    assert at.here() == []


def test_a_requeue_is_answered_when_it_is_durable() -> None:
    at, _ = _dead()
    at.holding = True
    assert at.ask(s.Requeue(7, "q")) is None
    at.land()
    assert at.reported[-1][1] == s.Changed(7, 4)


def test_a_refused_requeue_says_so() -> None:
    at, _ = _dead()
    at.holding = True
    at.ask(s.Requeue(7, "q"))
    at.refuse("too_large")
    assert at.reported[-1][1].code == "too_large"  # type: ignore[union-attr]
    assert at.here() == []


def test_dead_letters_on_their_way_back_hold_the_log() -> None:
    at, positions = _dead()
    lowest = at.holds(0).lowest
    assert lowest > positions[-1]
    at.holding = True
    at.ask(s.Requeue(7, "q"))
    assert at.holds(0).lowest == positions[0]
    at.refuse("too_large")
    assert at.holds(0).lowest == lowest


def test_dead_letters_are_brought_back_once_at_a_time() -> None:
    at, positions = _dead()
    at.holding = True
    at.ask(s.Requeue(7, "q"))
    reported = at.ask(s.Requeue(8, "q"))
    assert reported == s.Changed(8), "else one may be acknowledged before it comes back again"
    at.land()
    assert at.here() == positions


def test_dead_letters_before_the_log_start_stay_away() -> None:
    at, positions = _dead()
    at.log_start = positions[1]
    at.watermarks()
    reported = at.ask(s.Requeue(7, "q"))
    assert (reported.count, reported.text) == (3, "")
    assert at.here() == positions[1:]


def test_messages_that_were_brought_back_stay_when_the_log_start_is_raised() -> None:
    at, positions = _dead()
    at.ask(s.Requeue(7, "q"))
    assert at.here() == positions
    at.log_start = positions[1]
    at.persist()
    assert at.here() == positions, "their record is above the log start, and holds them"


def test_dead_letters_that_the_log_does_not_hold_stay_away() -> None:
    at, positions = _dead()
    at.unreadable.add(positions[0])
    reported = at.ask(s.Requeue(7, "q"))
    assert (reported.count, reported.text) == (3, "1 are not in the log any more")
    assert at.here() == positions[1:]


@pytest.mark.parametrize("key", ["priority", "group_key"])
def test_dead_letters_come_back_in_their_order(key: str) -> None:
    at, positions = _dead(work(**{key: "/n"}))
    at.ask(s.Requeue(7, "q"))
    [fact] = at.facts(Returned)
    assert len(fact.priorities if key == "priority" else fact.groups) == 4
    at.consume(sid="t")
    assert at.got("t") == (positions[::-1] if key == "priority" else positions)


def test_dead_letters_of_a_queue_that_was_deleted_meanwhile_are_refused() -> None:
    at, _ = _dead()
    at.later = (Reenter,)
    at.ask(s.Requeue(7, "q"))
    del at.manager.running["q"]
    at.go_on()
    assert at.reported[-1][1].code == "unknown_queue"  # type: ignore[union-attr]


# -- definitions ------------------------------------------------------------------------------


def test_a_queue_is_made_once_its_record_is_durable() -> None:
    at = Bench()
    positions = at.many(3)
    at.holding = True
    assert at.ask(define("create", definition=TABLE)) is None
    assert at.kinds() == [KIND_WIRING]
    assert "new" not in at.manager.running
    at.land()
    [(_, reported)] = at.reported
    assert reported == s.Changed(1, position=at.position - 1)
    one = at.one("new")
    assert (one.definition.source, one.definition.declaration) == ("admin", 1)
    assert one.definition.config.max_deliveries == 3
    assert at.here("new") == positions


def test_a_queue_that_begins_now_has_nothing_of_before() -> None:
    at = Bench()
    at.many(3)
    at.ask(define("create", definition={**TABLE, "recovery_point": "now"}))
    more = at.many(1)
    assert at.here("new") == more
    at.restart()
    assert at.here("new") == more


def test_a_queue_begins_after_its_recovery_point() -> None:
    at = Bench()
    positions = at.many(3)
    table = {**TABLE, "recovery_point": at.bookmark(positions[0])}
    at.ask(define("create", definition=table))
    assert at.here("new") == positions[1:]


def test_a_definition_that_is_tried_is_only_judged() -> None:
    at = Bench()
    before = at.position
    reported = at.ask(define("create", definition=TABLE, dry_run=True))
    assert reported == s.Changed(1)
    assert at.ask(define("create", definition={"nope": 1}, dry_run=True)).code == "bad_queue"
    assert (at.position, at.manager.running) == (before, {})


def test_what_an_alter_says_holds_from_then_on() -> None:
    at = Bench()
    at.ask(define("create", definition=TABLE))
    at.holding = True
    at.ask(define("alter", definition={"lease": "5s"}))
    assert at.one("new").definition.config.lease == 30_000
    at.land()
    config = at.one("new").definition.config
    assert (config.lease, config.max_deliveries) == (5_000, 3)
    assert at.one("new").queue.config.lease == 5_000  # type: ignore[union-attr]


def test_what_cannot_change_is_refused() -> None:
    at = Bench()
    at.ask(define("create", definition=TABLE))
    assert at.ask(define("alter", definition={"topic": "u"})).code == "bad_queue"


def test_an_alter_can_be_tried() -> None:
    at = Bench()
    at.ask(define("create", definition=TABLE))
    at.ask(define("alter", definition={"lease": "5s"}, dry_run=True))
    at.ask(define("delete", dry_run=True))
    assert at.one("new").definition.config.lease == 30_000


def test_a_deleted_queue_ends_its_consumers() -> None:
    at = Bench()
    at.logon()
    at.ask(define("create", definition=TABLE))
    at.many(3)
    at.consume("new")
    at.ask(define("delete"))
    assert at.manager.running == {}
    assert at.errors() == [("unknown_queue", None, "s")]
    assert at.core.shared.consumers == {}
    at.restart()
    assert at.manager.running == {}


def test_a_queue_that_is_made_again_begins_a_new_life() -> None:
    at = Bench()
    positions = at.many(3)
    for number in range(3):
        at.ask(define("create", definition=TABLE))
        assert at.one("new").definition.declaration == number + 1
        assert at.here("new") == positions
        at.ask(s.Purge(7, "new"))
        assert at.here("new") == []
        at.ask(define("delete"))
    records = [WIRING.decode(one.body) for one in at.log if one.kind == KIND_WIRING]
    assert [one.life for one in records] == [1, 1, 2, 2, 3, 3]


def test_one_change_at_a_time() -> None:
    at = Bench()
    at.holding = True
    assert at.ask(define("create", definition=TABLE)) is None
    assert at.ask(define("create", definition=TABLE)).code == "not_ready"
    at.land()
    assert at.ask(define("delete")) is None
    assert at.ask(define("alter", definition={"lease": "5s"})).code == "not_ready"
    at.land()
    assert at.manager.running == {}
    assert at.ask(define("create", definition=TABLE)) is None


def test_of_two_creates_that_look_something_up_the_second_is_refused() -> None:
    at = Bench()
    [position] = at.many(1)
    table = {**TABLE, "recovery_point": at.bookmark(position)}
    at.silent = True
    at.ask(define("create", definition=table))
    at.ask(define("create", definition=TABLE))
    at.answer()
    assert [reported.code for _, reported in at.reported] == ["", "queue_exists"]  # type: ignore[union-attr]


def test_a_refused_definition_says_so() -> None:
    at = Bench()
    at.holding = True
    at.ask(define("create", definition=TABLE))
    at.refuse("too_large")
    assert at.reported[-1][1].code == "too_large"  # type: ignore[union-attr]
    assert at.manager.running == {}
    at.ask(define("create", definition=TABLE))
    at.land()
    assert "new" in at.manager.running


def test_queues_and_points_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definition_changes, "QUEUES_MAX", 1)
    monkeypatch.setattr(point_commands, "POINTS_MAX", 1)
    at = bench()
    assert at.ask(define("create", definition=TABLE)).code == "too_many"
    assert at.ask(s.SetPoint(7, "a")).code == ""
    assert at.ask(s.SetPoint(7, "b")).code == "too_many"
    assert at.ask(s.SetPoint(7, "a")).code == "", "one that is there may be set again"


# -- points -----------------------------------------------------------------------------------


def test_a_point_is_after_what_is_durable() -> None:
    at = bench()
    at.many(3)
    end = at.position
    at.holding = True
    assert at.ask(s.SetPoint(7, "noon")) is None
    assert at.kinds() == [KIND_POINT]
    assert at.manager.points == {}
    at.land()
    assert at.reported[-1][1] == s.Changed(7, 0, end, vector(end))
    assert at.ask(s.AskPoints(8)) == s.Points(8, [s.PointRow("noon", end, vector(end), end)])


def test_points_are_reported_in_the_order_in_which_they_were_set() -> None:
    at = bench()
    positions = at.many(3)
    for name, position in (("z", positions[0]), ("a", positions[2]), ("z", positions[1])):
        at.ask(s.SetPoint(7, name, position))
    rows = at.ask(s.AskPoints(8)).rows
    assert [(row.name, row.position) for row in rows] == [("a", positions[2]), ("z", positions[1])]
    at.restart()
    assert at.ask(s.AskPoints(8)).rows == rows


def test_a_refused_point_says_so() -> None:
    at = bench()
    at.holding = True
    at.ask(s.SetPoint(7, "noon"))
    at.refuse("too_large")
    assert at.reported[-1][1].code == "too_large"  # type: ignore[union-attr]
    assert at.manager.points == {}


def test_a_removed_point_is_gone_after_a_restart_too() -> None:
    at = bench()
    positions = at.many(3)
    at.ask(s.SetPoint(7, "noon", positions[1]))
    at.ask(s.SetPoint(7, "night"))
    at.holding = True
    assert at.ask(s.RemovePoint(8, "noon")) is None
    assert "noon" in at.manager.points, "until the removal is durable"
    at.land()
    assert at.reported[-1][1] == s.Changed(8, 0, positions[1], vector(positions[1]))
    at.holding = False
    assert list(at.manager.points) == ["night"]
    at.restart()
    assert list(at.manager.points) == ["night"]


def test_a_dry_run_removes_no_point() -> None:
    at = bench()
    at.ask(s.SetPoint(7, "noon"))
    end = at.position
    assert (
        at.ask(s.RemovePoint(8, "noon", dry_run=True)).position
        == at.ask(s.AskPoints(9)).rows[0].position
    )
    assert at.position == end, "nothing was written"


def test_a_refused_removal_leaves_the_point() -> None:
    at = bench()
    at.ask(s.SetPoint(7, "noon"))
    at.holding = True
    at.ask(s.RemovePoint(8, "noon"))
    at.refuse("too_large")
    assert at.reported[-1][1].code == "too_large"  # type: ignore[union-attr]
    assert list(at.manager.points) == ["noon"]


def test_who_names_a_removed_point_learns_that_it_may_have_been_removed() -> None:
    at = bench()
    at.ask(s.SetPoint(7, "noon"))
    at.ask(s.RemovePoint(8, "noon"))
    for ask in (s.RemovePoint(9, "noon"), s.Purge(9, "q", point="noon")):
        reported = at.ask(ask)
        assert (reported.code, "it was removed" in reported.reason) == ("unknown_point", True)


def test_a_removal_makes_a_place_for_another_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(point_commands, "POINTS_MAX", 1)
    at = bench()
    assert at.ask(s.SetPoint(7, "a")).code == ""
    assert at.ask(s.SetPoint(7, "b")).code == "too_many"
    assert at.ask(s.RemovePoint(7, "a")).code == ""
    assert at.ask(s.SetPoint(7, "b")).code == ""


def test_a_point_that_is_set_again_after_its_removal_is_where_it_was_set() -> None:
    at = bench()
    positions = at.many(3)
    at.ask(s.SetPoint(7, "noon", positions[0]))
    at.ask(s.RemovePoint(7, "noon"))
    at.ask(s.SetPoint(7, "noon", positions[2]))
    assert at.manager.points["noon"].position == positions[2]
    at.restart()
    assert at.manager.points["noon"].position == positions[2]


# -- looking ----------------------------------------------------------------------------------


def test_queues_are_reported_by_name() -> None:
    at = bench(work("b"), work("a"))
    reported = at.ask(s.AskQueues(7))
    assert (reported.cid, reported.incarnation, reported.persisted) == (
        7,
        at.incarnation,
        at.persisted,
    )
    assert [row.name for row in reported.rows] == ["a", "b"]
    assert [row.name for row in at.ask(s.AskQueues(7, "b")).rows] == ["b"]
    assert at.ask(s.AskQueues(7, "c")).rows == []


def test_consumers_are_reported() -> None:
    at = bench()
    at.consume()
    reported = at.ask(s.AskConsumers(7))
    assert (reported.cid, [row.sid for row in reported.rows], reported.left_out) == (7, ["s"], 0)


def test_a_message_is_explained_by_its_bookmark() -> None:
    at = bench()
    [position] = at.many(1)
    reported = at.ask(s.Explain(7, "q", bookmark=at.bookmark(position)))
    assert (reported.cid, reported.state) == (7, "ready")


def test_a_queue_is_explained() -> None:
    at = bench()
    assert at.ask(s.Explain(7, "q")).lines[0] == "it is empty"


@pytest.mark.parametrize("data", [True, False])
def test_rows_are_for_clients_and_for_the_admin_alike(data: bool) -> None:
    at = bench()
    at.many(1)
    at.send(q.Browse("q", "b", data=data))
    reported = at.ask(s.BrowseQueue(7, "q", data=data))
    assert reported.rows == at.last().rows
    assert at.bodies[-1] == (b"\x91\xc4\x010" if data else None)
    assert reported.payloads == ([b"0"] if data else [])


def test_who_looks_where_nothing_is_gets_an_answer_of_its_kind() -> None:
    at = bench()
    assert isinstance(at.ask(s.BrowseQueue(7, "nope")), s.Browsed)
    assert isinstance(at.ask(s.Explain(7, "nope")), s.Explained)
    assert isinstance(at.ask(s.Purge(7, "nope")), s.Changed)


def _filled(*configs: Any, count: int = 6) -> tuple[Bench, list[int]]:
    at = bench(*configs)
    return at, at.publish(*[b'{"n": %d}' % number for number in range(count)])


def _rows(at: Bench, **more: Any) -> q.Rows:
    at.send(q.Browse("q", "b", **more))
    assert at.codes() == []
    return at.of(q.Rows)[-1]


def _positions(at: Bench, **more: Any) -> tuple[list[int], int | None]:
    rows = _rows(at, **more)
    return [row.position for row in rows.rows], rows.next


def test_a_row_says_what_a_message_is_and_where_it_is() -> None:
    at, positions = _filled()
    at.consume(backlog=1)
    at.pass_ms(1_000)
    rows = _rows(at).rows
    first, second = positions[:2]
    due_ms = rows[0].due_ms
    assert due_ms is not None
    assert 28_000 < due_ms < 30_000
    time_ns = WALL_NS + first * STEP_NS
    assert rows[0] == q.BrowsedRow(
        first, at.bookmark(first), "t", time_ns, 8, "leased", 1, 0, "ann", due_ms
    )
    assert rows[1] == q.BrowsedRow(second, at.bookmark(second), "t", time_ns, 8, "ready", 0, 0)
    assert at.bodies[-1] is None
    assert at.got() == [first], "nothing was taken"


def test_payloads_are_in_the_body_if_they_are_asked_for() -> None:
    at, _ = _filled(count=2)
    at.send(q.Browse("q", data=True))
    assert at.bodies[-1] == bodies.pack([b'{"n": 0}', b'{"n": 1}'])


def test_rows_go_on_after_the_last_one() -> None:
    at, positions = _filled()
    assert _positions(at, limit=4) == (positions[:4], positions[3])
    assert _positions(at, limit=4, after=positions[3]) == (positions[4:], None)
    assert _positions(at, limit=6) == (positions, None)
    assert _positions(at, after=positions[-1]) == ([], None)


@pytest.mark.seed("003-33")
def test_an_answer_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows are asked for; what is left comes with the next question."""
    monkeypatch.setattr(browser, "SHOWN_BYTES", 250)
    at = bench()
    positions = [at.publish(b'{"n": %d}'.ljust(100) % number)[0] for number in range(7)]
    assert _positions(at, data=True) == (positions[:3], positions[2])
    assert _positions(at, data=True, after=positions[2]) == (positions[3:6], positions[5])
    assert _positions(at, data=True, after=positions[5]) == (positions[6:], None)
    at.unreadable.update(positions[:2])
    assert _positions(at, filter="/n != 3") == ([positions[n] for n in (2, 4, 5)], positions[5])


def test_an_empty_queue_has_no_rows() -> None:
    at = bench()
    assert _positions(at) == ([], None)


def test_rows_of_one_state() -> None:
    at, positions = _filled()
    at.consume(backlog=2)
    at.holding = True
    assert _positions(at, state="leased") == (positions[:2], None)
    assert _positions(at, state="ready", limit=2) == (positions[2:4], positions[3])
    assert _positions(at, state="ready", limit=2, after=positions[3]) == (positions[4:], None)
    assert _positions(at, state="nonsense") == ([], None)


def test_states_are_looked_at_for_so_many_messages_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(browser, "SCANNED_MAX", 4)
    at, positions = _filled()
    assert _positions(at, state="leased") == ([], positions[3])
    assert _positions(at, state="leased", after=positions[3]) == ([], None)


def test_rows_that_a_filter_is_true_for() -> None:
    at, positions = _filled()
    assert _positions(at, filter="/n > 3") == (positions[4:], None)
    assert _positions(at, filter="/n > 1", limit=2) == (positions[2:4], positions[3])
    assert _positions(at, filter="/n > 1", limit=2, after=positions[3]) == (positions[4:], None)
    assert _positions(at, filter="/n > 1", state="leased") == ([], None)


def test_a_filter_is_compared_with_so_many_messages_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(browser, "EXAMINED_MAX", 4)
    at, positions = _filled()
    assert _positions(at, filter="/n > 4") == ([], positions[3])
    assert _positions(at, filter="/n > 4", after=positions[3]) == (positions[5:], None)


def test_what_cannot_be_read_has_no_row() -> None:
    at, positions = _filled()
    at.unreadable.add(positions[0])
    assert _positions(at) == (positions[1:], None)


def test_the_rows_of_a_replayable_queue_say_what_was_acknowledged() -> None:
    at, positions = _filled(replayable(), count=2)
    at.ack(positions[0], sid=None, queue="q")
    assert [row.state for row in _rows(at).rows] == ["acked", "kept"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (q.Browse("nope", "b"), "unknown_queue"),
        (q.Browse("q", "b", filter="/n ="), "bad_filter"),
        (q.Browse("no", "b"), "not_entitled"),
    ],
)
def test_a_browse_that_cannot_be_is_refused(command: q.Browse, code: str) -> None:
    at = Bench(work(), work("no"), access=rules("q", "nope"))
    at.logon(key=KEY_A)
    at.send(command)
    assert at.errors() == [(code, "b", None)]


# -- the admin --------------------------------------------------------------------------------


def test_the_admin_browses_too() -> None:
    at, positions = _filled()
    reported = at.ask(s.BrowseQueue(7, "q", limit=2, filter="/n > 0", data=True))
    assert reported.cid == 7
    assert [row.position for row in reported.rows] == positions[1:3]
    assert reported.payloads == [b'{"n": 1}', b'{"n": 2}']
    assert reported.next == positions[2]


def test_the_admin_gets_no_payloads_unless_he_asks() -> None:
    at, _ = _filled()
    assert at.ask(s.BrowseQueue(7, "q", limit=2)).payloads == []


def test_the_admin_gets_so_many_rows_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(q, "BROWSED_MAX", 2)
    at, positions = _filled()
    assert len(at.ask(s.BrowseQueue(7, "q", limit=1_000_000)).rows) == 2
    assert at.ask(s.BrowseQueue(7, "q", limit=1_000_000)).next == positions[1]


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (s.BrowseQueue(7, "nope"), "unknown_queue"),
        (s.BrowseQueue(7, "q", filter="/n ="), "bad_filter"),
    ],
)
def test_the_admin_is_refused_what_cannot_be(question: s.BrowseQueue, code: str) -> None:
    at, _ = _filled()
    reported = at.ask(question)
    assert (reported.cid, reported.code, reported.rows) == (7, code, [])
