"""zbroker/queues/queue_state.py: one queue: folds, facts, what is to be committed."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tests.queues.bench import Bench, bench, code_of, replayable, work
from zbroker.log.records import (
    BarrierDelivered,
    Failed,
    Horizon,
    MessagesGone,
    Noted,
    Returned,
    pack_positions,
    unpack_positions,
)
from zbroker.queues import queue_state
from zbroker.queues.queue_state import STEP, Ages, QueueState, facts_of
from zbroker.queues.work.sets import span
from zbroker.queues.work.values import Arrivals, Outcome


def _packed(*positions: int) -> bytes:
    return pack_positions(BitMap64(positions))


def _filled(*configs: object, count: int = 4) -> tuple[Bench, QueueState, list[int]]:
    at = bench(*configs)  # type: ignore[arg-type]
    positions = at.publish(*[b'{"n": %d}' % number for number in range(count)])
    return at, at.one(), positions


# -- facts ------------------------------------------------------------------------------------


def test_facts_of_outcomes_are_as_few_as_can_be() -> None:
    outcomes = [
        Outcome(BitMap64([1]), "gone", "acked"),
        Outcome(BitMap64([2]), "failed", "cancelled"),
        Outcome(BitMap64([3]), "gone", "acked"),
        Outcome(BitMap64([4]), "gone", "purged"),
        Outcome(BitMap64([5]), "failed", "cancelled", 77),
        Outcome(BitMap64([6]), "failed", "cancelled", 77),
        Outcome(BitMap64([7]), "noted", "acked"),
        Outcome(BitMap64([8]), "noted", "acked"),
    ]
    assert facts_of(outcomes) == [
        MessagesGone(_packed(1, 3), "acked"),
        MessagesGone(_packed(4), "purged"),
        Failed(_packed(2), "cancelled"),
        Failed(_packed(5, 6), "cancelled", 77),
        Noted(_packed(7, 8)),
    ]
    assert facts_of([]) == []


OUTCOMES = st.lists(
    st.tuples(
        st.frozensets(st.integers(1, 50), min_size=1), st.sampled_from(["gone", "failed", "noted"]),
        st.sampled_from(["acked", "purged"]), st.sampled_from([0, 5]),
    )
)  # fmt: skip


@given(OUTCOMES)
def test_facts_say_the_same_as_their_outcomes(many: list[tuple[frozenset[int], str, str, int]]):
    outcomes = [Outcome(BitMap64(positions), *rest) for positions, *rest in many]
    wanted: dict[tuple[str, str, int], set[int]] = {}
    for one in outcomes:
        due = one.due_ns if one.fate == "failed" else 0
        why = one.why if one.fate != "noted" else ""
        wanted.setdefault((one.fate, why, due), set()).update(one.positions)
    found = {}
    for fact in facts_of(outcomes):
        fate = {MessagesGone: "gone", Failed: "failed", Noted: "noted"}[type(fact)]  # type: ignore[index]
        key = fate, getattr(fact, "why", ""), getattr(fact, "due_ns", 0)
        assert key not in found
        found[key] = set(unpack_positions(fact.where))  # type: ignore[union-attr]
    assert found == wanted


def test_what_is_gone_was_given_up_or_done() -> None:
    _, one, positions = _filled()
    one.apply(MessagesGone(_packed(positions[0]), "acked"))
    one.apply(MessagesGone(_packed(positions[1]), "rejected"))
    one.apply(MessagesGone(_packed(positions[2], 900), "max_deliveries"))
    assert list(one.queue.here) == positions[3:]
    assert list(one.dead) == positions[1:3]


def test_what_failed_and_what_came_back_is_here() -> None:
    at, one, positions = _filled()
    one.apply(Failed(_packed(positions[0]), "cancelled"))
    one.apply(Failed(_packed(positions[1]), "cancelled", at.now.wall_ns + 1_000_000))
    one.apply(MessagesGone(_packed(positions[2]), "rejected"))
    assert (at.state(positions[0]), at.state(positions[1])) == ("ready", "delayed")
    one.apply(Returned(_packed(positions[2])))
    assert at.state(positions[2]) == "ready"
    assert not one.dead


@pytest.mark.parametrize(("key", "numbers"), [("priority", "priorities"), ("group_key", "groups")])
def test_what_came_back_has_its_place(key: str, numbers: str) -> None:
    at, one, positions = _filled(work(**{key: "/n"}))
    one.apply(MessagesGone(_packed(*positions), "rejected"))
    one.apply(Returned(_packed(*positions[:2]), **{numbers: [1, 2]}))
    at.consume()
    assert sorted(at.got()) == positions[:2]


def test_a_delivered_barrier_is_gone() -> None:
    _, one, positions = _filled(work(barrier="/n = 1"))
    one.apply(BarrierDelivered(positions[1]))
    assert list(one.queue.here) == [positions[0], *positions[2:]]


def test_a_horizon_that_is_read_holds_and_never_goes_back() -> None:
    _, one, _ = _filled()
    one.horizon = 50
    one.apply(Horizon(100))
    one.apply(Horizon(80))
    assert one.horizon == 100


def test_a_replayable_queue_knows_acks_and_what_is_gone() -> None:
    at, one, positions = _filled(replayable())
    one.apply(Noted(_packed(positions[0])))
    one.apply(Failed(_packed(positions[1]), "cancelled"))
    one.apply(MessagesGone(_packed(positions[2]), "unreadable"))
    states = [at.state(position) for position in positions]
    assert states == ["acked", "kept", "gone", "kept"]


def test_a_fact_of_another_kind_changes_nothing() -> None:
    _, one, positions = _filled()
    one.apply(Noted(_packed(positions[0])))
    assert list(one.queue.here) == positions


# -- the log ----------------------------------------------------------------------------------


def test_what_it_needs_of_the_log_begins_with_its_oldest_message() -> None:
    at, one, positions = _filled()
    assert one.lowest == positions[0]
    assert one.oldest_ns is not None
    assert one.log_bytes > 0
    one.apply(MessagesGone(_packed(*positions), "acked"))
    assert one.lowest == one.folded == at.position
    assert (one.oldest_ns, one.log_bytes) == (None, 0)


def test_a_queue_is_ready_once_it_was_read_as_far_as_the_log_went() -> None:
    _, one, positions = _filled()
    one.ready, one.ready_at, one.horizon = False, one.folded + 10, positions[1]
    assert code_of(one.check_ready) == "not_ready"
    one.begin_to_offer()
    assert not one.ready
    one.ahead = one.ready_at
    one.begin_to_offer()
    one.check_ready()
    assert one.queue.deliveries_of(BitMap64(positions)) == [2, 1, 1, 1]


def test_a_replayable_queue_suspects_nothing() -> None:
    _, one, _ = _filled(replayable())
    one.ready, one.ready_at = False, one.folded
    one.begin_to_offer()
    assert one.ready


def test_of_a_batch_only_what_was_not_read_yet_enters() -> None:
    at = bench()
    at.reading = False
    positions = at.many(5)
    at.one().ahead = positions[2]
    at.reading = True
    at.run()
    assert at.here() == positions[2:]


@pytest.mark.parametrize("position", range(10, 18))
def test_messages_after_a_position_are_a_part(position: int) -> None:
    entered = Arrivals(
        BitMap64([10, 12, 14, 16]),
        array("Q", [1, 2, 3, 4]),
        array("q", [5, 6, 7, 8]),
        BitMap64([12, 16]),
        [(100, 10, 13), (200, 14, 17)],
    )
    found = entered.part(span(position, 100))
    kept = [i for i, at in enumerate((10, 12, 14, 16)) if at >= position]
    assert list(found.positions) == [(10, 12, 14, 16)[i] for i in kept]
    assert found.priorities == array("Q", [(1, 2, 3, 4)[i] for i in kept])
    assert found.groups == array("q", [(5, 6, 7, 8)[i] for i in kept])
    assert found.barriers == BitMap64([at for at in (12, 16) if at >= position])
    runs = [(ns, at) for ns, first, end in found.expires for at in range(first, end)]
    wanted = [(100, at) for at in (10, 11, 12)] + [(200, at) for at in (14, 15, 16)]
    assert runs == [(ns, at) for ns, at in wanted if kept and at >= found.positions.min()]


def test_of_what_has_no_columns_only_positions_are_left() -> None:
    assert Arrivals(BitMap64([1, 5])).part(span(3, 9)) == Arrivals(BitMap64([5]))


@pytest.mark.parametrize("config", [work(), work(priority="/n"), work(group_key="/n")])
def test_messages_that_were_read_again_enter_as_they_did(config: object) -> None:
    at, one, positions = _filled(config)
    wanted = BitMap64([positions[1], positions[3]])
    [found] = at._found(wanted)
    entered = one.entered_of(found)
    assert entered is not None
    assert entered.positions == wanted
    whole = one.entering(found.batch, lambda: found.block.unpacked(found.at))
    assert whole is not None
    for mine, all_of in ((entered.priorities, whole.priorities), (entered.groups, whole.groups)):
        assert mine == (None if all_of is None else array(all_of.typecode, [all_of[1], all_of[3]]))


def test_what_does_not_enter_any_more_is_nothing() -> None:
    at, _, positions = _filled(work(), work("other", "u"))
    [found] = at._found(BitMap64(positions[:1]))
    assert at.one("other").entered_of(found) is None


# -- who waits --------------------------------------------------------------------------------


def _waiting(one: QueueState, *positions: int) -> list[str]:
    reported: list[str] = []
    one.waiters.append((BitMap64(positions), reported.append))
    return reported


def test_who_waits_learns_when_none_is_going_any_more() -> None:
    at, one, positions = _filled()
    at.holding = True
    at.ack(*positions[:2], sid=None, queue="q")
    first, second = _waiting(one, positions[0], positions[2]), _waiting(one, positions[2])
    one.waited()
    assert (first, second) == ([], [""])
    at.land()
    assert first == [""]


def test_who_waits_for_what_was_refused_learns_that() -> None:
    _, one, positions = _filled()
    first, second = _waiting(one, *positions[:2]), _waiting(one, positions[2])
    one.refused(BitMap64(positions[1:2]), "too_large")
    assert (first, second) == (["too_large"], [])
    assert len(one.waiters) == 1


def test_who_waits_for_a_queue_that_is_over_is_informed() -> None:
    _, one, positions = _filled()
    reported: list[str] = []
    one.endings.append(reported.append)
    one.entries.append((Outcome(BitMap64(positions), "gone", "acked"), reported.append))
    one.entries.append((Outcome(BitMap64(positions), "gone", "acked"), None))
    one.waiters.append((BitMap64(positions), reported.append))
    one.abandon("unknown_queue")
    assert reported == ["unknown_queue"] * 3
    assert (one.endings, one.entries, one.waiters) == ([], [], [])


@pytest.mark.parametrize(
    ("noted", "deliveries"), [(None, [2, 2, 1, 1]), (0, [1, 1, 1, 1]), (9_999, [2, 2, 1, 1])]
)
def test_what_was_noted_narrows_what_is_flagged_and_never_widens_it(
    noted: int | None, deliveries: list[int]
) -> None:
    _, one, positions = _filled()
    one.ready, one.ready_at, one.horizon, one.noted = False, one.folded, positions[2], noted
    one.begin_to_offer()
    assert (one.queue.deliveries_of(BitMap64(positions)) or [1] * 4) == deliveries


def _ages(batches: int) -> Ages:
    made = Ages()
    for number in range(batches):
        made.add(1 + number * STEP, 10 * number, 100)
    return made


def test_a_position_has_the_time_of_the_mark_before_it() -> None:
    made = _ages(10)
    assert made.at(1) == (0, 0)
    assert made.at(STEP) == (0, 0)
    assert made.at(1 + 3 * STEP) == (30, 300)
    assert made.total == 1_000


def test_nothing_is_known_of_what_is_before_the_first_mark() -> None:
    assert _ages(3).at(0) == (None, 0)
    assert Ages().at(5) == (None, 0)


def test_marks_are_bounded() -> None:
    made = _ages(2 * queue_state.MARKS_MAX)
    assert len(made.dump()) < 8 * 3 * (queue_state.MARKS_MAX + 2)
    last = 2 * queue_state.MARKS_MAX - 1
    time_ns, size = made.at(1 + last * STEP)
    assert time_ns is not None
    assert 0 <= 10 * last - time_ns <= 40
    assert 0 <= 100 * last - size <= 400


def test_what_was_saved_is_loaded() -> None:
    made, other = _ages(10), Ages()
    other.load(made.dump())
    assert other.dump() == made.dump()
    assert other.at(1 + 3 * STEP) == made.at(1 + 3 * STEP)
