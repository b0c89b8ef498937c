"""Who holds what, which segments may go, and when their files may."""

from __future__ import annotations

import random

import pytest

from zbroker.config import Config, reader_rooms
from zbroker.errors import ClientError
from zbroker.journal.retention import LEASES_MAX, Kept, LogStart, RemovalLimits, RemovalPlan
from zbroker.limits import U63_MAX
from zbroker.wire.internal import Holding, Holds

LOG = [Kept(serial, serial * 100, serial * 100 + 100, 10) for serial in range(1, 6)]
ALL = RemovalLimits(through=99, stated=5, open=5)
READERS = ("delivery",)


def holds(floor: int, lowest: int = U63_MAX, *holdings: Holding) -> Holds:
    return Holds(7, floor, lowest, list(holdings))


def heard(lowest: int = U63_MAX, *holdings: Holding) -> LogStart:
    floor = LogStart(100, READERS)
    floor.heard("delivery", holds(100, lowest, *holdings))
    return floor


def serials(plan: RemovalPlan) -> list[int]:
    return [one.serial for one in plan.segments]


def test_the_oldest_go_up_to_the_wanted_one() -> None:
    plan = heard().plan(LOG, ALL._replace(through=3))
    assert (serials(plan), plan.floor, plan.blocked, list(plan.held_by)) == ([1, 2, 3], 400, "", [])


def test_a_plan_without_a_queue_is_what_its_purge_would_make_removable() -> None:
    work, trades = Holding("queues", "work", 150, 0), Holding("queues", "trades", 350, 0)
    floor = LogStart(100, ("queues",))
    floor.heard("queues", holds(100, 150, work, trades))
    plan = floor.plan(LOG, ALL)
    assert (serials(plan), plan.held_by) == ([], [work])
    plan = floor.plan(LOG, ALL._replace(without="work"))
    assert (serials(plan), plan.held_by) == ([1, 2], [trades])
    assert plan.blocked == "segment 3 is still needed"
    floor.heard("queues", holds(100, 150, work))
    assert serials(floor.plan(LOG, ALL._replace(without="work"))) == [1, 2, 3, 4]


def test_a_plan_without_a_queue_leaves_others_of_that_name_out_of_it() -> None:
    """A reader that names no queue, a lease, or a process that did not say what it needs."""
    job = Holding("job", "work", 150, 0)
    floor = heard(150, job)
    assert floor.plan(LOG, ALL._replace(without="work")).held_by == [job]
    assert serials(heard(150).plan(LOG, ALL._replace(without="work"))) == []


def test_what_is_gone_already_is_no_reason_to_complain() -> None:
    plan = heard().plan(LOG[2:], ALL._replace(through=2))
    assert (serials(plan), plan.floor, plan.blocked) == ([], 100, "")


def test_the_open_segment_never_goes() -> None:
    plan = heard().plan(LOG, ALL._replace(stated=99))
    assert serials(plan) == [1, 2, 3, 4]
    assert plan.blocked == "segment 5 is the open one"


def test_the_segment_of_the_newest_snapshot_stays() -> None:
    plan = heard().plan(LOG, ALL._replace(stated=3))
    assert serials(plan) == [1, 2]
    assert "snapshot" in plan.blocked


def test_without_any_snapshot_everything_stays() -> None:
    assert serials(heard().plan(LOG, ALL._replace(stated=0))) == []


def test_a_reader_that_is_silent_holds_everything() -> None:
    plan = LogStart(100, READERS).plan(LOG, ALL)
    assert (serials(plan), plan.blocked) == ([], "delivery did not say yet what it needs")
    assert LogStart(100, READERS).silent == ["delivery"]


def test_a_reader_that_begins_anew_is_silent_again() -> None:
    floor = heard()
    floor.hello("delivery")
    assert serials(floor.plan(LOG, ALL)) == []


def test_removal_waits_for_every_reader() -> None:
    floor = LogStart(100, ("delivery", "delivery-2"))
    floor.heard("delivery", holds(100))
    assert floor.plan(LOG, ALL).blocked == "delivery-2 did not say yet what it needs"
    floor.heard("delivery-2", holds(100, 250))
    plan = floor.plan(LOG, ALL)
    assert (serials(plan), plan.held_by) == ([1], [Holding("delivery-2", "", 250, 0)])


def test_queues_hold_everything_until_they_say_what_they_need() -> None:
    floor = LogStart(100, reader_rooms(Config()))
    floor.heard("delivery", holds(100))
    assert (floor.plan(LOG, ALL).segments, floor.silent) == ([], ["queues"])
    needs = Holding("queue work", "orders", 250, 5)
    floor.heard("queues", holds(100, 250, needs))
    plan = floor.plan(LOG, ALL)
    assert (serials(plan), plan.held_by) == ([1], [needs])


def test_files_wait_for_the_slowest_reader() -> None:
    floor = LogStart(100, ("delivery", "delivery-2"))
    for room in floor.readers:
        floor.heard(room, holds(100))
    floor.raise_to(floor.plan(LOG, ALL._replace(through=2)))
    floor.heard("delivery", holds(300))
    assert (floor.due(), floor.silent) == ([], ["delivery-2"])
    floor.heard("delivery-2", holds(300))
    assert floor.due() == [1, 2]
    floor.hello("delivery-2")
    assert floor.due() == [], "one that begins anew is waited for, whatever the other says"


def test_a_room_that_reads_nothing_is_not_waited_for() -> None:
    floor = heard()
    floor.hello("ingest")
    floor.heard("ingest", holds(0, 1))
    assert serials(floor.plan(LOG, ALL)) == [1, 2, 3, 4]


@pytest.mark.seed("004-97")
@pytest.mark.parametrize(
    ("lowest", "expected"), [(100, []), (199, []), (200, [1]), (350, [1, 2]), (500, [1, 2, 3, 4])]
)
def test_what_a_reader_needs_stays(lowest: int, expected: list[int]) -> None:
    needs = Holding("a client", "orders", lowest, 5)
    plan = heard(lowest, needs).plan(LOG, ALL)
    assert serials(plan) == expected
    if expected != [1, 2, 3, 4]:
        assert plan.blocked == f"segment {len(expected) + 1} is still needed"
        assert plan.held_by == [needs]


def test_a_reader_that_names_nobody_is_named_itself() -> None:
    assert heard(150).plan(LOG, ALL).held_by == [Holding("delivery", "", 150, 0)]


def test_who_needs_only_newer_segments_is_not_to_blame() -> None:
    low, high = Holding("low", "", 150, 0), Holding("high", "", 450, 0)
    assert heard(150, high, low).plan(LOG, ALL).held_by == [low]


def test_a_lease_holds_until_it_ends() -> None:
    floor = heard()
    lease = Holding("backup", "export", 250, 0)
    floor.lease(lease, 1_000, now_ms=0)
    assert serials(floor.plan(LOG, ALL)) == [1]
    floor.tick(999)
    assert floor.plan(LOG, ALL).held_by == [lease]
    floor.tick(1_000)
    assert serials(floor.plan(LOG, ALL)) == [1, 2, 3, 4]


def test_a_lease_can_be_renewed_elsewhere() -> None:
    floor = heard()
    floor.lease(Holding("backup", "", 250, 0), 1_000, now_ms=0)
    floor.lease(Holding("backup", "", 350, 0), 1_000, now_ms=900)
    floor.tick(1_500)
    assert serials(floor.plan(LOG, ALL)) == [1, 2]


def test_a_lease_can_be_given_back() -> None:
    floor = heard()
    floor.lease(Holding("backup", "", 250, 0), 1_000, now_ms=0)
    floor.lease(Holding("backup", "", 0, 0), 0, now_ms=1)
    assert floor.holdings == []


def test_no_lease_is_given_below_the_floor() -> None:
    floor = heard()
    floor.raise_to(floor.plan(LOG, ALL._replace(through=1)))
    with pytest.raises(ClientError, match="bookmark_expired"):
        floor.lease(Holding("backup", "", 199, 0), 1_000, now_ms=0)
    floor.lease(Holding("backup", "", 200, 0), 1_000, now_ms=0)


def test_leases_are_bounded() -> None:
    floor = heard()
    for number in range(LEASES_MAX):
        floor.lease(Holding(str(number), "", 200, 0), 1_000, now_ms=0)
    with pytest.raises(ClientError, match="too_many"):
        floor.lease(Holding("one more", "", 200, 0), 1_000, now_ms=0)
    floor.lease(Holding("0", "", 300, 0), 1_000, now_ms=0)


@pytest.mark.parametrize(("share", "expected"), [(100, 4), (60, 3), (59, 2), (20, 1), (19, 0)])
def test_one_run_removes_a_share_of_the_bytes_at_most(share: int, expected: int) -> None:
    plan = heard().plan(LOG, ALL._replace(share_max=share))
    assert len(plan.segments) == expected
    if share < 100:
        assert f"{share} percent" in plan.blocked


def test_a_plan_changes_nothing() -> None:
    floor = heard()
    floor.plan(LOG, ALL)
    assert (floor.position, floor.going, floor.due()) == (100, [], [])


def test_files_wait_until_the_reader_knows_the_floor() -> None:
    floor = heard()
    floor.raise_to(floor.plan(LOG, ALL._replace(through=2)))
    assert (floor.position, floor.going, floor.due()) == (300, [1, 2], [])
    assert floor.silent == ["delivery"]
    floor.heard("delivery", holds(300))
    assert (floor.silent, floor.due()) == ([], [1, 2])


def test_a_cursor_below_a_raised_floor_pins_its_segment_and_the_newer_ones() -> None:
    floor = heard()
    floor.raise_to(floor.plan(LOG, ALL._replace(through=3)))
    floor.heard("delivery", holds(400, 250))  # it was opened before the floor was heard of
    assert floor.due() == [1]
    floor.gone(1)
    floor.heard("delivery", holds(400, 399))
    assert (floor.going, floor.due()) == ([2, 3], [2])
    floor.heard("delivery", holds(400, 400))
    assert floor.due() == [2, 3]


def test_a_reader_that_restarts_is_waited_for_again() -> None:
    floor = heard()
    floor.raise_to(floor.plan(LOG, ALL._replace(through=2)))
    floor.heard("delivery", holds(300))
    floor.hello("delivery")
    assert floor.due() == []


def test_a_second_removal_adds_to_the_first() -> None:
    floor = heard()
    floor.raise_to(floor.plan(LOG, ALL._replace(through=1)))
    floor.heard("delivery", holds(200))
    floor.raise_to(floor.plan(LOG[1:], ALL._replace(through=2)))
    assert (floor.going, floor.due()) == ([1, 2], [1])


def test_holders_are_told_lowest_first() -> None:
    floor = heard(300, Holding("b", "", 500, 0), Holding("a", "", 300, 0))
    floor.lease(Holding("c", "", 400, 0), 1, 0)
    assert [holding.who for holding in floor.holdings] == ["a", "c", "b"]


def test_nothing_that_anybody_needs_ever_goes() -> None:
    for seed in range(300):
        _history(random.Random(seed))


def _history(rng: random.Random) -> None:
    """A reader that opens cursors at or above the floor it knows, and a journal that removes."""
    floor, log, cursors, known, unlinked = LogStart(100, READERS), list(LOG), [100], 100, 0
    for _ in range(60):
        match rng.randrange(5):
            case 0:
                floor.heard("delivery", holds(known, min(cursors, default=U63_MAX)))
            case 1:
                known = floor.position
            case 2:
                cursors.append(rng.randint(known, 600))
            case 3 if cursors:
                at = rng.randrange(len(cursors))
                cursors[at] += rng.choice((0, 50, 1_000))
                cursors = [cursor for cursor in cursors if cursor < 600]
            case _:
                plan = floor.plan(log, ALL._replace(through=rng.randint(1, 5)))
                floor.raise_to(plan)
                log = [one for one in log if one not in plan.segments]
        due = floor.due()
        if due and rng.random() < 0.5:
            unlinked = due[-1]
            floor.gone(unlinked)
        floor.check()
        assert all(cursor >= unlinked * 100 + 100 for cursor in cursors if unlinked)
