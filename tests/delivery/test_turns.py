"""Many subscriptions, one read: what the members of a scan are sent, and when they leave it."""

from __future__ import annotations

import pytest

from tests.delivery.world import ANN, HERE, World, ready
from zbroker.blocks.read_request import BlockRead
from zbroker.delivery import scans
from zbroker.delivery.turns import STEP_BYTES_MAX
from zbroker.engine.events import Gone
from zbroker.ids import format_vector
from zbroker.wire import messages as m

PLENTY = 1 << 40
MANY = 120


def topics_of(world: World, count: int = MANY) -> list[str]:
    topics = [f"topic.{number}" for number in range(count)]
    for topic in topics:
        world.publish(topic)
    world.persist()
    return topics


def subscribed(world: World, topics: list[str], **more: object) -> None:
    """All of them at once, before anything is read."""
    more.setdefault("credit", PLENTY)
    world.asleep = True
    for number, topic in enumerate(topics):
        world.subscribe(topic, f"s{number}", **more)


def test_many_subscriptions_to_rare_topics_read_the_log_once():
    world = ready()
    topics = topics_of(world)
    world.steps_max = 10
    subscribed(world, topics)
    world.pump()
    for number, topic in enumerate(topics):
        assert world.got(f"s{number}") == world.wanted(topic)
    once = MANY // world.steps_max
    assert len(world.reads) <= 3 * once  # each for itself they take MANY times as many
    assert len(world.acks("completed")) == MANY


def test_those_who_begin_later_catch_up_with_the_others():
    world = ready()
    topics = topics_of(world)
    world.steps_max = 10
    subscribed(world, topics)
    for first in range(0, MANY, 20):
        world.pump(1)
        for topic in topics[first : first + 20]:
            world.subscribe(topic, f"late-{topic}", credit=PLENTY)
    world.pump()
    for topic in topics:
        assert world.got(f"late-{topic}") == world.wanted(topic)
    assert len(world.reads) <= 8 * (MANY // world.steps_max)


def test_live_messages_are_read_once_for_all_who_have_caught_up():
    world = ready()
    topics = topics_of(world)
    subscribed(world, topics)
    world.pump()
    world.asleep = False
    world.publish("topic.3")
    world.persist()  # they come from where they ended, and stay together from here on
    world.reads.clear()
    for number in range(5):
        world.publish(f"topic.{number}")
        world.persist()
    assert len(world.reads) == 5
    assert [len(world.got(f"s{number}")) for number in range(6)] == [2, 2, 2, 3, 2, 1]


def test_a_batch_with_more_takers_than_a_turn_serves_goes_to_all(monkeypatch):
    monkeypatch.setattr(scans, "SERVED_MAX", 4)
    world = ready()
    world.publish("other")
    for _ in range(3):
        world.publish("t", "u")
    world.persist()
    subscribed(world, ["t", "u"] * 15)
    world.pump()
    world.publish("u", "t")
    world.persist()
    for number, topic in enumerate(["t", "u"] * 15):
        assert world.got(f"s{number}") == world.wanted(topic)


def test_one_without_credit_does_not_keep_the_others_waiting():
    world = ready()
    topics = topics_of(world, 6)
    world.asleep = True
    for number, topic in enumerate(topics):
        world.subscribe(topic, f"s{number}", credit=1 if number == 2 else PLENTY)
    for topic in topics:
        world.publish(topic)
    world.persist()
    world.pump()
    assert [len(world.got(f"s{number}")) for number in range(6)] == [2, 2, 1, 2, 2, 2]
    world.send(m.Flow("s2", PLENTY))
    world.pump()
    assert world.got("s2") == world.wanted(topics[2])


def test_ends_inside_a_shared_block_are_kept():
    world = ready()
    for _ in range(3):
        world.publish("a", "b", "a")
    world.persist()
    world.asleep = True
    world.subscribe("a", "s0", credit=PLENTY, until=format_vector({HERE: 4}))
    world.subscribe("a", "s1", credit=PLENTY, options=m.Options(limit=3))
    world.subscribe("b", "s2", credit=PLENTY, until=format_vector({HERE: 1}))
    world.subscribe("x", "s3", credit=PLENTY, until=format_vector({HERE: 4}))
    world.pump()
    positions = [[seen.position for seen in world.got(f"s{at}")] for at in range(4)]
    assert positions == [[1, 3, 4], [1, 3, 4], [], []]
    assert [ack.ended for ack in world.acks("completed")] == [True] * 4
    vectors = {ack.sid: ack.vector for ack in world.acks("completed")}
    assert [vectors["s2"], vectors["s3"]] == [format_vector({HERE: at}) for at in (1, 4)]


def test_a_gap_ends_each_member():
    world = ready()
    topics = topics_of(world, 3)
    world.damage(2)
    world.persisted = world.next_position
    world.say_watermarks()
    subscribed(world, topics)
    world.pump()
    assert world.errors() == ["gap"] * 3
    assert [len(world.got(f"s{number}")) for number in range(3)] == [1, 1, 1]


def test_a_failed_read_is_tried_again_by_each_member():
    world = ready()
    topics = topics_of(world, 3)
    subscribed(world, topics)
    world.failing = 2
    world.pump()
    assert world.errors() == ["internal"]
    assert sum(len(world.got(f"s{number}")) for number in range(3)) == 2


def test_a_log_that_is_not_there_yet_is_waited_for():
    world = ready()
    topics = topics_of(world, 3)
    subscribed(world, topics)
    log, world.log = world.log, []
    world.pump()
    assert world.core.next_read() is None
    world.log = log
    world.say_watermarks()
    world.pump()
    assert [len(world.got(f"s{number}")) for number in range(3)] == [1, 1, 1]


def test_dear_filters_of_many_members_take_several_turns(monkeypatch):
    monkeypatch.setattr("zbroker.delivery.replay.STEP_BYTES_MAX", 1_000)
    monkeypatch.setattr("zbroker.delivery.turns.STEP_BYTES_MAX", 1_000)
    world = ready()
    for _ in range(4):
        world.publish("t", payloads=[b'{"x": "' + b"a" * 200 + b'"}'])
    world.persist()
    subscribed(world, ["t"] * 5, filter="/x LIKE '[ab]+'")
    world.pump(1)
    assert sum(len(world.got(f"s{number}")) for number in range(5)) < 20
    world.pump()
    assert [len(world.got(f"s{number}")) for number in range(5)] == [4] * 5
    assert STEP_BYTES_MAX > 1_000


def test_a_paused_member_leaves_its_scan():
    world = ready()
    topics = topics_of(world, 3)
    subscribed(world, topics)
    world.send(m.Pause(["s1"], "p"))
    world.pump()
    assert [len(world.got(f"s{number}")) for number in range(3)] == [1, 0, 1]
    world.send(m.Resume(["s1"], "r"))
    world.pump()
    assert world.got("s1") == world.wanted(topics[1])


def test_a_replaced_member_gets_what_it_wants_now():
    world = ready()
    topics = topics_of(world, 3)
    subscribed(world, topics)
    world.send(m.Replace("s1", "r", topics[2]))
    world.pump()
    assert world.got("s1") == world.wanted(topics[2])


def test_a_refused_replace_changes_nothing():
    world = ready()
    topics = topics_of(world, 3)
    subscribed(world, topics)
    world.send(m.Replace("s1", "r", "(", regex=True))
    world.pump()
    assert world.got("s1") == world.wanted(topics[1])


def test_the_end_of_a_member_is_the_end_of_it_alone():
    world = ready()
    topics = topics_of(world, 3)
    subscribed(world, topics)
    world.send(m.Unsubscribe("s1", "u"))
    world.pump()
    assert [len(world.got(f"s{number}")) for number in range(3)] == [1, 0, 1]
    world.hear(Gone(ANN))
    world.core.check()


def test_a_journal_that_was_started_again_finds_all_members():
    world = ready()
    topics = topics_of(world, 30)
    world.steps_max = 5
    subscribed(world, topics)
    world.pump(2)
    world.incarnation += 1
    world.say_watermarks()
    world.welcome()
    world.pump()
    for number, topic in enumerate(topics):
        assert world.got(f"s{number}") == world.wanted(topic)


def test_what_is_read_next_is_asked_for_again_when_the_journal_was_started_again():
    world = ready()
    topics = topics_of(world, 3)
    subscribed(world, topics)
    early = world.core.next_read()
    assert early is not None
    assert world.core.next_read() == early, "asking changes nothing"
    world.incarnation += 1
    world.say_watermarks()
    with pytest.raises(AssertionError, match="when it is asked for"):
        world.hear(BlockRead(early, world.read(early)))


def test_what_is_read_next_has_the_topics_of_those_who_joined_last():
    """A read that waits would pass over them."""
    world = ready()
    topics = topics_of(world, 3)
    subscribed(world, topics[:2])
    early = world.core.next_read()
    world.subscribe(topics[2], "joined", credit=PLENTY)
    read = world.core.next_read()
    assert early is not None
    assert read is not None
    assert [early.wants(topics[2]), read.wants(topics[2])] == [False, True]
    world.pump()
    assert world.got("joined") == world.wanted(topics[2])
