"""A fully durable subscription gets only what enough synchronous destinations have, too."""

from __future__ import annotations

import pytest

from tests.delivery.world import ANN, World
from zbroker.engine.effects import FollowMark
from zbroker.limits import U63_MAX
from zbroker.wire.messages import Options, Pause, Resume
from zbroker.wire.replicas import Replicated

FULLY = Options(delivery="fully_durable")


def world(*, replicated: bool = True) -> World:
    made = World(replicated=replicated)
    made.welcome()
    made.logon()
    return made


def mark(world: World, through: int, needed: int = 1, journal: int = 0) -> None:
    """The replication process says how far enough destinations are."""
    world.hear(Replicated(journal or world.incarnation, through, needed))
    world.pump()


def positions(world: World, sid: str = "s") -> list[int]:
    return [seen.position for seen in world.seen.get((ANN, sid), [])]


def published(world: World, count: int = 3) -> None:
    for _ in range(count):
        world.publish("t")
    world.persist()


@pytest.mark.seed("004-83")
@pytest.mark.seed("004-84")
def test_a_replay_waits_for_the_mark() -> None:
    one = world()
    published(one)
    one.subscribe(options=FULLY)
    assert positions(one) == []
    mark(one, 3)
    assert positions(one) == [1, 2]
    mark(one, 4)
    assert positions(one) == [1, 2, 3]


@pytest.mark.seed("004-84")
def test_live_messages_wait_for_the_mark() -> None:
    one = world()
    mark(one, 1)
    one.subscribe(options=FULLY, bookmark=None)
    one.subscribe(sid="plain", bookmark=None)
    published(one)
    assert (positions(one), positions(one, "plain")) == ([], [1, 2, 3])
    mark(one, 4)
    assert positions(one) == [1, 2, 3]


def test_a_mark_beyond_what_is_durable_here_lets_nothing_out() -> None:
    one = world()
    mark(one, U63_MAX, 0)
    one.subscribe(options=FULLY)
    one.publish("t")
    one.write()
    assert positions(one) == []
    one.persist()
    assert positions(one) == [1]


def test_a_downgrade_lets_out_what_is_durable_here() -> None:
    one = world()
    one.subscribe(options=FULLY)
    published(one)
    mark(one, 1)
    assert positions(one) == []
    mark(one, U63_MAX, 0)
    assert positions(one) == [1, 2, 3]


def test_an_upgrade_holds_what_comes_next_and_repeats_nothing() -> None:
    one = world()
    one.subscribe(options=FULLY)
    mark(one, U63_MAX, 0)
    published(one)
    mark(one, 2)
    published(one)
    assert positions(one) == [1, 2, 3]
    mark(one, 5)
    assert positions(one) == [1, 2, 3, 4]


def test_without_synchronous_destinations_it_is_durable_here() -> None:
    one = world(replicated=False)
    published(one)
    one.subscribe(options=FULLY)
    assert positions(one) == [1, 2, 3]


def test_a_mark_of_another_journal_lets_nothing_out() -> None:
    one = world()
    published(one)
    one.subscribe(options=FULLY)
    mark(one, 4, journal=one.incarnation + 1)
    assert positions(one) == []


def test_another_journal_begins_with_nothing_replicated() -> None:
    one = world()
    mark(one, U63_MAX, 0)
    one.subscribe(options=FULLY)
    published(one, 2)
    one.incarnation += 1
    one.say_watermarks()
    one.welcome()
    published(one, 1)
    assert positions(one) == [1, 2]
    mark(one, 4)
    assert positions(one) == [1, 2, 3]


def test_a_mark_that_comes_before_the_watermarks_of_its_journal_counts_from_then_on() -> None:
    one = world()
    one.subscribe(options=FULLY)
    published(one, 2)
    mark(one, 3, journal=one.incarnation + 1)
    assert positions(one) == []
    one.incarnation += 1
    one.persist()
    assert positions(one) == [1, 2]


def test_its_resume_point_is_not_beyond_what_it_was_sent() -> None:
    one = world()
    one.subscribe(options=FULLY)
    published(one)
    mark(one, 2)
    one.wake_until(3_000)
    vectors = [each.vector for _, each in one.answers if getattr(each, "sid", "") == "s"]
    assert vectors[-1].endswith(".1")


def test_it_is_complete_once_destinations_have_all() -> None:
    one = world()
    published(one)
    one.subscribe(options=FULLY, until="now")
    kinds = [each.type for _, each in one.answers if getattr(each, "sid", "") == "s"]
    assert "completed" not in kinds
    mark(one, 4)
    kinds = [each.type for _, each in one.answers if getattr(each, "sid", "") == "s"]
    assert (positions(one), kinds[-1]) == ([1, 2, 3], "completed")


def test_many_of_them_wait_beside_others_on_the_same_topics() -> None:
    """Others at the same position share one read of the log, up to what is durable here."""
    one = world()
    for n in range(3):
        one.subscribe(sid=f"f{n}", options=FULLY, bookmark=None)
        one.subscribe(sid=f"p{n}", bookmark=None)
    published(one)
    for n in range(3):
        assert (positions(one, f"f{n}"), positions(one, f"p{n}")) == ([], [1, 2, 3])
    mark(one, 3)
    assert [positions(one, f"f{n}") for n in range(3)] == [[1, 2]] * 3


def test_it_shares_no_replay_with_one_that_does_not_wait() -> None:
    one = world()
    published(one)
    for sid, delivery in (("a", "persisted"), ("b", "fully_durable")):
        one.subscribe(sid=sid, options=Options(delivery=delivery, paused=True))
    one.send(Resume(["a", "b"], "resume"))
    assert (positions(one, "a"), positions(one, "b")) == ([1, 2, 3], [])
    one.send(Pause(["b"], "pause"))
    mark(one, 4)
    assert positions(one, "b") == []


def test_each_mark_is_followed_as_long_as_such_a_subscription_is_there() -> None:
    one = world()
    one.subscribe(sid="plain", bookmark=None)
    assert FollowMark(True) not in one.done
    one.subscribe(options=FULLY)
    assert FollowMark(True) in one.done
    alone = world(replicated=False)
    alone.subscribe(options=FULLY)
    assert FollowMark(True) not in alone.done
