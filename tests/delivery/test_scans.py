"""Who waits with whom, whose turn it is, and what a scan makes of a block."""

from __future__ import annotations

from itertools import count

import pytest

from tests.delivery.world import World, ready
from zbroker.blocks.frame_builder import Block
from zbroker.delivery import scans
from zbroker.delivery.points import Point
from zbroker.delivery.replay import Replay
from zbroker.delivery.scans import SharedScan, WaitingScans
from zbroker.limits import MIB, U63_MAX
from zbroker.log.reader import Gap
from zbroker.wire import messages as m

PLENTY = 1 << 40


def replay(key: int, position: int, topic: str = "t", until: int = U63_MAX) -> Replay:
    """One that waits at a position."""
    world = ready()
    world.subscribe(topic, "s", credit=PLENTY)
    (one,) = world.core.subscriptions.values()
    one.until, one.target, one.caught_up = until, 1_000, False
    made = Replay(key, [one], running=True, queued=True)
    made.go_to(Point(position))
    return made


def waiting(*, lowest_first: bool = True) -> WaitingScans:
    return WaitingScans(count(-1, -1), lowest_first=lowest_first)


def taken(many: WaitingScans) -> tuple[Replay | SharedScan, int]:
    """Whose turn it is, and what that is taken for."""
    one, limit = many.first()
    assert many.first() == (one, limit), "asking changes nothing"
    many.check()
    assert many.take() is one
    return one, limit


def block_of(world: World, first: int = 0, last: int | None = None) -> Block:
    return Block(world._cursor(first), world.log[first:last], world._cursor(last or len(world.log)))


def test_replays_at_one_position_become_one_scan():
    many = waiting()
    replays = [replay(key, 5) for key in (1, 2, 3)]
    for one in replays:
        many.add(one)
    scan, limit = taken(many)
    assert isinstance(scan, SharedScan)
    assert (set(scan.members), limit, bool(many.queue)) == ({1, 2, 3}, U63_MAX, False)


def test_a_replay_alone_reads_for_itself():
    many = waiting()
    one = replay(1, 5)
    many.add(one)
    assert taken(many) == (one, U63_MAX)


def test_a_scan_whose_others_have_left_is_a_replay_alone():
    many = waiting()
    one, other = replay(1, 5), replay(2, 5)
    many.add(one)
    many.add(other)
    assert many.discard(other)
    many.check()
    assert taken(many) == (one, U63_MAX)
    assert not many.discard(one)


def test_turns_alternate_between_the_lowest_and_who_waited_longest():
    many = waiting()
    high, middle, low = (replay(key, at) for key, at in ((1, 90), (2, 50), (3, 10)))
    for one in (high, middle, low):
        many.add(one)
    assert taken(many) == (low, 50)
    low.position = 20
    many.add(low)
    assert taken(many) == (high, U63_MAX)
    assert taken(many) == (low, 50)


def test_those_that_have_caught_up_take_turns_by_age_only():
    many = waiting(lowest_first=False)
    for key, at in ((1, 90), (2, 50)):
        many.add(replay(key, at))
    assert [taken(many)[0].position for _ in range(2)] == [90, 50]


def test_scans_that_meet_become_one():
    many = waiting()
    for key, at in ((1, 5), (2, 5), (3, 5), (4, 9), (5, 9)):
        many.add(replay(key, at))
    low, _ = taken(many)
    assert isinstance(low, SharedScan)
    low.position = 9
    for one in low.members.values():
        one.position = 9
    many.put_back(low)
    many.check()
    scan, _ = taken(many)
    assert isinstance(scan, SharedScan)
    assert set(scan.members) == {1, 2, 3, 4, 5}


def test_a_scan_takes_in_who_waits_alone_at_its_position():
    many = waiting()
    for key in (1, 2):
        many.add(replay(key, 5))
    scan, _ = taken(many)
    many.add(replay(3, 5))
    many.put_back(scan)
    many.check()
    assert set(scan.members) == {1, 2, 3}


def test_a_scan_at_rest_waits_for_a_longer_log():
    many = waiting(lowest_first=False)
    for key in (1, 2):
        many.add(replay(key, 5))
    scan, _ = taken(many)
    many.rest(scan)
    many.wake(5)
    assert not many.queue
    many.wake(6)
    assert many.queue
    many.check()


def test_positions_that_no_one_waits_at_are_forgotten():
    many = waiting()
    many.add(replay(1, 10**9))
    one = replay(2, 0)
    for at in range(500):
        one.position = at
        many.add(one)
        many.discard(one)
    assert len(many._lowest) < 100


def test_clearing_says_who_waited():
    many = waiting()
    replays = [replay(key, at) for key, at in ((1, 5), (2, 5), (3, 9))]
    for one in replays:
        many.add(one)
    many.first()
    assert {one.key for one in many.clear()} == {1, 2, 3}
    assert not many.queue
    many.check()


@pytest.fixture
def world() -> World:
    made = ready()
    made.publish("a")
    made.publish("b", "c")
    made.control()
    made.publish("a")
    made.persist()
    return made


def scan_of(*topics: str, position: int = 1) -> SharedScan:
    replays = [replay(key, position, topic) for key, topic in enumerate(topics, 1)]
    scan = SharedScan(-1, replays[0])
    for one in replays:
        scan.add(one)
    return scan


def test_a_block_is_for_those_whose_topics_it_holds(world):
    found = scan_of("a", "c", "x").find(block_of(world), world.persisted)
    assert found.wanted == {1: [0, 3], 2: [1]}
    assert (found.end, found.dense, found.gap) == (6, [], False)


def test_what_was_passed_of_a_block_is_not_wanted_again(world):
    found = scan_of("a", "c", position=4).find(block_of(world), world.persisted)
    assert found.wanted == {1: [3]}


def test_a_turn_ends_before_a_gap(world):
    world.damage(2)
    block = block_of(world)
    assert scan_of("a").find(block, 8).end == 6
    assert scan_of("a", position=6).find(block, 8).gap
    hole = Block(block.start, [world.log[0], world.log[3]], block.next)
    assert scan_of("a").find(hole, 8).end == 2
    assert scan_of("a", position=2).find(hole, 8).gap
    assert isinstance(world.log[-1], Gap)


def test_a_turn_ends_when_enough_are_served(world, monkeypatch):
    monkeypatch.setattr(scans, "SERVED_MAX", 1)
    found = scan_of("a", "b", "c").find(block_of(world), world.persisted)
    assert (found.wanted, found.end) == ({1: [0]}, 2)


def test_more_takers_of_a_batch_than_a_turn_serves_are_left_before_it(world, monkeypatch):
    monkeypatch.setattr(scans, "SERVED_MAX", 1)
    found = scan_of("c", "b", "b", position=2).find(block_of(world), world.persisted)
    assert (len(found.wanted), found.end) == (1, 2)


def test_who_wants_every_fourth_batch_reads_for_himself():
    world = ready()
    for at in range(16):
        world.publish("a" if at % 4 == 0 else "b" if at == 1 else "c")
    found = scan_of("a", "b").find(block_of(world), 17)
    assert [one.key for one in found.dense] == [1]
    assert found.wanted == {2: [1]}


def test_members_get_the_newest_bookmark_that_a_block_passed(world):
    scan = scan_of("x")
    (one,) = scan.members.values()
    scan.move(block_of(world), 5)
    assert (scan.position, one.position, one.sequence) == (5, 5, 3)
    scan.move(block_of(world), 6)
    assert (one.position, one.sequence) == (6, 4)


def test_blocks_grow_while_they_hold_little():
    world = ready()
    world.publish("a", size=60_000)
    world.publish("a", size=60_000)
    scan = scan_of("a")
    block = block_of(world)
    block.size = MIB
    for _ in range(9):
        scan.move(block, 3)
    assert scan.read(9).max_bytes == MIB
    block.items = list(block.items) * 200
    scan.move(block, 3)
    assert scan.read(9).max_bytes == MIB // 2


def test_a_joiner_changes_what_is_read():
    scan = scan_of("a")
    before = scan.read(9)
    assert before.wants is not None
    assert (before.wants("a"), before.wants("b"), scan.read(9).wants_key) == (
        True, False, before.wants_key,
    )  # fmt: skip
    scan.add(replay(9, 1, "b"))
    after = scan.read(9)
    assert after.wants is not None
    assert after.wants("b")
    assert after.wants_key != before.wants_key


def test_a_joiner_that_knows_where_it_is_spares_a_search():
    scan = scan_of("a")
    assert scan.read(9).seek
    known = replay(9, 1, "b")
    known.seek = False
    scan.add(known)
    assert not scan.read(9).seek


def test_those_that_came_to_an_end_are_named():
    scan = scan_of("a", "b")
    scan.members[2].members[0].until = 4
    scan.forget_goals()
    assert scan.reached(3) == []
    assert [one.key for one in scan.reached(4)] == [2]


def test_an_option_that_needs_each_batch_keeps_a_replay_out_of_scans():
    world = ready()
    world.publish("t")
    world.persist()
    world.asleep = True
    for sid, more in {
        "a": {}, "b": {"regex": True}, "c": {"options": m.Options(rate=5)},
        "d": {"options": m.Options(conflation_s=1.0)}, "e": {"options": m.Options(delivery="live")},
        "f": {"until": "20270101T000000"},
    }.items():  # fmt: skip
        world.subscribe("t", sid, credit=PLENTY, **more)
    one_by_sid = {one.names.sid: one for one in world.core.subscriptions.values()}
    shares = {sid: world.core.cursors.of[one.names.key].shares for sid, one in one_by_sid.items()}
    assert shares == {"a": True, "b": False, "c": False, "d": False, "e": False, "f": False}
