"""The core of one subscription: what is new, what waits for its reader, where it goes on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.times import at
from tests.client.wired import HERE, HERE_TEXT, Wired, commands, subscribe, wired
from zbroker.client.effects import SendCommand
from zbroker.client.message import decode
from zbroker.client.subscriber.feed import (
    PUBLISHERS_MAX,
    RETURN_MS,
    End,
    Ends,
    Feed,
    FeedBatch,
    FeedState,
    Passed,
    Repeats,
)
from zbroker.ids import NOW, Origin
from zbroker.limits import CREDIT_MAX_BYTES
from zbroker.wire.bodies import pack
from zbroker.wire.messages import Ack, Flow, Logoff, Msg, Pause, RangeList, Replace, Unsubscribe


def reported(kind, position, **more):
    vector = None if position is None else f"{HERE_TEXT}{position}"
    return Ack(kind, sid="s1", vector=vector, **more)


# -- what is new ----------------------------------------------------------------------------------


def test_what_comes_again_is_dropped():
    world, _ = wired()
    world.send(1, 5)
    world.send(1, 5)
    world.send(4, 4)
    assert world.read() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.seed("004-48")
def test_a_reconnect_goes_on_after_what_was_seen():
    world, _ = wired("0")
    world.send(1, 5)
    (again,) = world.lose()
    assert again.bookmark == HERE_TEXT + "5"
    world.accept(again, position=6)
    world.send(4, 4)
    assert world.read() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.seed("004-48")
def test_a_reconnect_before_the_first_message_goes_on_where_now_was():
    world, _ = wired(position=40)
    assert world.lose()[0].bookmark == HERE_TEXT + "39"


def test_origins_have_positions_of_their_own():
    world, _ = wired(position=10)
    world.send(10, 1)
    world.send(11, 2, origin=(7, 1, 3))
    assert world.read() == [10, 3, 4]
    assert world.feed.seen == {HERE: 10, Origin(7, 1): 4}


def test_a_vector_to_start_from_is_what_was_seen():
    world, _ = wired(HERE_TEXT + "5", position=6)
    world.send(4, 3)
    assert world.read() == [6]


def test_unrecorded_messages_are_taken_as_they_come():
    world, _ = wired(None)
    for position, count in ((0, 2), (5, 1), (0, 1)):
        world.send(position, count, seq=9)
    assert world.read() == [0, 0, 5, 0]
    assert world.feed.seen == {HERE: 5}


def test_dropped_messages_are_counted_over_all_connections():
    world, _ = wired(None)
    for count in (3, 5):
        world.handle(Ack("dropped", sid="s1", dropped=count))
    assert world.feed.dropped == 5
    world.accept(*world.lose())
    world.handle(Ack("dropped", sid="s1", dropped=2))
    assert world.feed.dropped == 7


# -- the inbox ------------------------------------------------------------------------------------


def test_what_the_broker_tells_of_the_way_waits_behind_what_came_before():
    world, _ = wired("0")
    feed = world.feed
    world.send(1, 2)
    world.handle(reported("completed", 4))
    world.send(5, 1)
    kinds = [type(item) for item in feed.inbox]
    assert kinds == [FeedBatch, Passed, FeedBatch]
    feed.hand_out()
    assert (feed.caught_up, feed.passed, feed.durable) == (False, {HERE: 0}, {HERE: 0})
    feed.hand_out()
    assert (feed.caught_up, feed.passed, feed.durable) == (True, {HERE: 4}, {HERE: 4})
    feed.hand_out()
    assert feed.passed == {HERE: 4}, "the batch in hand is not passed"


def test_a_reader_that_is_elsewhere_learns_how_far_not_each_step():
    world, _ = wired("0")
    for position in (3, 4, 5):
        world.handle(reported("persisted", position))
    assert list(world.feed.inbox) == [Passed({HERE: 5})]


def test_what_was_passed_is_not_asked_again():
    world, _ = wired()
    world.handle(reported("persisted", 77))
    assert world.lose()[0].bookmark == HERE_TEXT + "77"


def test_a_range_ends_when_it_is_completed():
    world, _ = wired("0", until="1|2|")
    world.send(1, 2)
    world.handle(reported("completed", None))
    assert world.read() == [1, 2, "end"]
    assert (world.feed.caught_up, world.feed.state) == (True, FeedState.ENDED)


def test_a_range_without_an_end_goes_on_when_it_has_caught_up():
    world, _ = wired(f"[{HERE_TEXT}5:)", position=5)
    world.handle(reported("completed", 7))
    assert (world.read(), world.feed.caught_up) == ([], True)
    assert world.feed.state is FeedState.LIVE


# -- credit ---------------------------------------------------------------------------------------


def hand_in(feed, position, size):
    """A batch of one message whose body counts as `size` bytes."""
    msg = Msg(feed.sid, 1, position, 0, 1, position, topic="t")
    return feed.receive(decode(msg, pack([b"x"]), HERE, 100), size, position)


def test_credit_goes_back_when_half_of_it_was_handled():
    """That is when the program asks for more."""
    world, _ = wired(credit=100)
    feed = world.feed
    for position, size in enumerate((49, 2, 49), 1):
        assert hand_in(feed, position, size) == []
    reported = [feed.hand_out()[1] for _ in range(3)]
    assert reported == [[], [], commands_of(Flow("s1", 51))]
    assert feed.asked(0) == [], "49 are less than half"


def test_what_is_handled_is_given_back_once_a_second():
    world, _ = wired(credit=1_000)
    feed, connection = world.feed, world.connection
    for position in (1, 2):
        hand_in(feed, position, 10)
    now_ms = 50_000
    connection.hand_out(feed, now_ms)
    assert feed.return_ms is None, "the program has it in hand"
    _, effects = connection.hand_out(feed, now_ms)
    assert effects == commands_of(Flow("s1", 10))
    assert connection.asked(feed, now_ms + 1) == [], "not at once again"
    assert connection.next_wake_ms() <= now_ms + RETURN_MS
    assert SendCommand(Flow("s1", 10)) not in connection.tick(
        at(now_ms + RETURN_MS - 1), drained=True
    )
    assert SendCommand(Flow("s1", 10)) in connection.tick(at(now_ms + RETURN_MS), drained=True)
    assert feed.return_ms is None


def test_the_time_gives_nothing_back_that_is_in_hand():
    world, _ = wired(credit=100)
    hand_in(world.feed, 1, 90)
    world.connection.hand_out(world.feed, 50_000)
    assert world.connection.tick(at(90_000), drained=True) == [] or world.feed.return_ms is None
    assert not world.feed._used


def commands_of(command):
    return [SendCommand(command)]


def test_what_is_dropped_gives_its_credit_back_at_once():
    world, _ = wired(credit=100)
    hand_in(world.feed, 1, 10)
    assert hand_in(world.feed, 1, 60) == commands_of(Flow("s1", 60))


def test_a_reconnect_asks_for_less_while_something_waits():
    world, _ = wired(credit=100)
    feed = world.feed
    for position in (1, 2):
        hand_in(feed, position, 30)
    feed.hand_out()
    feed.asked(0)  # else it is in hand
    (again,) = world.lose()
    assert (again.credit, again.bookmark) == (70, HERE_TEXT + "2")
    assert feed.hand_out()[1] == [], "not before it is accepted"
    assert world.accept(again, credit=70) == []
    hand_in(feed, 3, 20)
    assert feed.hand_out()[1] == []
    assert feed.asked(0) == commands_of(Flow("s1", 50))


def test_what_is_over_the_credit_is_no_less_than_nothing():
    world, _ = wired(credit=100)
    hand_in(world.feed, 1, 300)
    assert world.lose()[0].credit == 0


@given(st.lists(st.sampled_from([30, 30, 400, "out", "out", "lose", "repeat"]), max_size=60))
def test_credit_is_neither_lost_nor_made(steps):
    """What the broker may send, what waits and what is to be given back are the credit together."""
    world, asked = wired("0", credit=100)
    feed, last, may = world.feed, 0, asked.credit
    for step in steps:
        effects = []
        if step in (30, 400, "repeat") and may > 0:
            size = 30 if step == "repeat" else step
            last += step != "repeat" or not last
            may -= size
            effects = hand_in(feed, last, size)
        elif step == "out" and feed.inbox:
            effects = feed.hand_out()[1]
        elif step == "lose":
            (asked,) = world.lose()
            may = asked.credit
            accepted = Ack("processed", asked.cid, sid="s1", position=1, credit=asked.credit)
            effects = world.handle(accepted)
        may += sum(effect.command.bytes for effect in effects)
        waiting = feed._in_hand + sum(i.size for i in feed.inbox if isinstance(i, FeedBatch))
        assert may + waiting <= max(100, waiting), "one batch may go over it"
        assert waiting < 100 + 400
    while feed.inbox:
        may += sum(effect.command.bytes for effect in feed.hand_out()[1])
    may += sum(effect.command.bytes for effect in feed.asked(0))
    assert may >= 50, "it never runs dry"


# -- limit ----------------------------------------------------------------------------------------


def test_a_limit_ends_it():
    world, asked = wired("0", limit=3)
    assert asked.options.limit == 3
    world.send(1, 2)
    effects = world.send(3, 2)
    assert commands(effects) == [Unsubscribe("s1")]
    assert world.read() == [1, 2, 3, "end"]
    assert world.lose() == []


def test_what_is_left_of_a_limit_is_asked_for_after_a_reconnect():
    world, _ = wired("0", limit=5)
    world.send(1, 2)
    assert world.lose()[0].options.limit == 3


def test_a_limit_counts_no_message_twice():
    world, _ = wired("0", limit=5, conflation_s=1.0)
    world.send(1, 2)
    (again,) = world.lose()
    assert (again.bookmark, again.options.limit) == (HERE_TEXT + "0", None)
    world.accept(again)
    world.send(1, 2)
    world.send(3, 4)
    assert world.read() == [1, 2, 3, 4, 5, "end"]


# -- conflation -----------------------------------------------------------------------------------


def test_an_interval_comes_again_whole_after_a_reconnect():
    world, _ = wired("0", conflation_s=1.0)
    world.scattered([1, 4, 9])
    world.handle(reported("persisted", 20))
    world.scattered([21, 25])
    (again,) = world.lose()
    assert again.bookmark == HERE_TEXT + "20"
    world.accept(again, position=21)
    world.scattered([21, 25, 28])
    assert world.read() == [1, 4, 9, 21, 25, 28]


def test_a_replace_does_not_move_where_an_interval_begins():
    world, _ = wired("0", conflation_s=1.0)
    _, effects = world.connection.ask(Replace("", filter="/a"), world.feeds)
    (sent,) = commands(effects)
    world.handle(Ack("processed", sent.cid, position=9))
    world.scattered([4, 7])
    assert world.read() == [4, 7]


# -- live delivery --------------------------------------------------------------------------------


def live_delivery(position=1):
    world = Wired(subscribe("0", delivery="live"))
    world.live(position)
    return world


def handed_out(world):
    out = []
    while world.feed.inbox:
        item, _ = world.feed.hand_out()
        if isinstance(item, FeedBatch):
            out += [(m.publisher, m.sequence) for m in item.messages]
    return out


def test_live_delivery_goes_on_at_what_is_durable():
    world = live_delivery()
    world.send(1, 3)
    world.handle(reported("persisted", 2))
    world.send(4, 2)
    assert world.lose()[0].bookmark == HERE_TEXT + "2"


@pytest.mark.seed("004-86")
def test_a_lost_tail_is_neither_missed_nor_taken_twice():
    """Positions after what was durable are given to other messages after a power cut."""
    world = live_delivery()
    world.send(1, 2, seq=1, publisher=7)
    world.handle(reported("persisted", 2))
    world.send(3, 3, seq=3, publisher=7)
    world.accept(*world.lose(), position=3)
    world.send(3, 2, seq=100, publisher=8)
    world.send(5, 3, seq=3, publisher=7)
    world.send(8, 1, seq=6, publisher=7)
    assert handed_out(world) == [
        *[(7, 1), (7, 2), (7, 3), (7, 4), (7, 5)], *[(8, 100), (8, 101)], (7, 6),
    ]  # fmt: skip


def test_what_comes_again_of_live_delivery_is_dropped():
    world = live_delivery()
    world.send(1, 5)
    world.accept(*world.lose())
    world.send(1, 3)
    world.send(4, 4)
    assert world.read() == [1, 2, 3, 4, 5, 6, 7]


def test_as_many_publishers_as_can_be_connected_are_remembered():
    repeats = Repeats()

    def come(publisher):
        msg = Msg("s", publisher, 5, 0, 1, 1, topic="t")
        return len(repeats.fresh(decode(msg, pack([b"x"]), HERE, 100)))

    assert [come(0) for _ in range(2)] == [1, 0]
    assert sum(come(publisher) for publisher in range(1, PUBLISHERS_MAX)) == PUBLISHERS_MAX - 1
    assert come(0) == 0
    assert come(PUBLISHERS_MAX) == 1
    assert come(0) == 0, "it was heard of lately"
    assert come(1) == 1, "it was forgotten"


# -- others ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "plain"),
    [
        ({}, True), ({"limit": 3}, True), ({"select": "/a"}, True), ({"rate": 5}, False),
        ({"paused": True}, False), ({"conflation_s": 1.0}, True), ({"delivery": "live"}, True),
        ({"delivery": "fully_durable"}, False),
    ],
)  # fmt: skip
def test_only_what_needs_no_log_gets_what_is_not_recorded(options, plain):
    assert Wired(subscribe(None, **options)).log_on()[0].unrecorded is plain
    assert Wired(subscribe("0", **options)).log_on()[0].unrecorded is False


def test_what_was_said_of_unrecorded_messages_is_asked():
    command = subscribe("0")
    command.unrecorded = True
    assert Wired(command).log_on()[0].unrecorded is True


def test_what_has_ended_takes_nothing():
    world, _ = wired("0", until="1|1|")
    world.handle(reported("completed", 1))
    feed = world.feed
    feed.fail(ValueError())
    assert (world.read(), feed.error) == (["end"], None)
    assert world.connection.remove(feed) == [commands_of(Logoff())[0]]


def test_an_item_says_what_ended_it():
    feed = Feed(subscribe())
    feed.fail(ValueError("x"))
    item, effects = feed.hand_out()
    assert isinstance(item, End)
    assert (item.error is feed.error, effects) == (True, [])
    feed.moved("s9", CREDIT_MAX_BYTES)
    assert (feed.state, feed.sid) == (FeedState.ENDED, "s9")


@pytest.mark.seed("004-74")
def test_pausing_does_not_give_up_what_waits():
    world, _ = wired("0")
    world.send(1, 2)
    _, effects = world.connection.ask(Pause([]), world.feeds)
    (sent,) = commands(effects)
    world.send(3, 1)
    world.handle(Ack("processed", sent.cid))
    assert world.read() == [1, 2, 3]


SEEN = {HERE: 9}
NINE = HERE_TEXT + "9"


@pytest.mark.parametrize(
    ("bookmark", "until", "again"),
    [
        (None, None, (NINE, None)),
        ("0", None, (NINE, None)),
        ("5|1|", "5|7|", (NINE, "5|7|")),
        ("20260101T000000Z", "20270101T000000", (NINE, "20270101T000000")),
        ("[5|1|:5|7|)", None, (f"({NINE}:5|7|)", None)),
        ("(0:20270101T000000]", None, (f"({NINE}:20270101T000000]", None)),
        (f"[{HERE_TEXT}5:)", None, (f"({NINE}:)", None)),
    ],
)
def test_only_the_start_moves_on(bookmark, until, again):
    ends = Ends(bookmark, until)
    assert ends.asked({}) == (bookmark, until)
    assert ends.asked(SEEN) == again


@pytest.mark.parametrize(
    ("bookmark", "until", "bounded"),
    [("0", None, False), ("0", "5|7|", True), ("[0:)", None, False), ("[0:5|7|)", None, True)],
)
def test_what_has_an_end_is_bounded(bookmark, until, bounded):
    assert Ends(bookmark, until).bounded is bounded


@pytest.mark.parametrize(
    ("bookmark", "until", "resolved", "again"),
    [
        ("0", "now", ("0", NINE), (NINE, NINE)),
        (f"[0:{NOW})", None, (f"[0:{NINE}]", None), (f"({NINE}:{NINE}]", None)),
        ("0", "point:eod", ("0", NINE), (NINE, NINE)),
        ("[point:a:point:b)", None, (f"[point:a:{NINE}]", None), (f"({NINE}:{NINE}]", None)),
    ],
)
def test_an_end_that_may_move_becomes_a_moment(bookmark, until, resolved, again):
    ends = Ends(bookmark, until)
    assert ends.unfixed
    ends.resolve(NINE)
    assert not ends.unfixed
    assert (ends.asked({}), ends.asked(SEEN)) == (resolved, again)


@pytest.mark.parametrize(
    ("bookmark", "timed", "after"),
    [
        ("20260101T000000Z", True, {}), ("[20260101T000000Z:)", True, {}), ("0", False, {}),
        (NINE, False, SEEN), (f"({NINE}:)", False, SEEN), (f"[{NINE}:)", False, {}),
    ],
)  # fmt: skip
def test_a_vector_or_a_time_is_known_as_one(bookmark, timed, after):
    ends = Ends(bookmark, None)
    assert (ends.timed, ends.after) == (timed, after)


# -- several origins ------------------------------------------------------------------------------

OTHER_TEXT = "000000000000000b.1."


def test_the_answer_says_what_was_passed_before_it_began():
    """Of all origins: elsewhere nothing from before its start comes."""
    world = Wired(subscribe())
    (asked,) = world.log_on()
    vector = f"{OTHER_TEXT}7,{HERE_TEXT}30"
    world.handle(Ack("processed", asked.cid, sid=asked.sid, position=40, vector=vector))
    assert world.feed.passed == world.feed.seen == {Origin(0xB, 1): 7, HERE: 30}
    (again,) = world.lose()
    assert again.bookmark == vector


def test_the_answer_to_a_resume_changes_nothing():
    """What it had in hand is not handed out yet."""
    world, _ = wired("0")
    world.send(1, 5)
    (again,) = world.lose()
    vector = f"{OTHER_TEXT}7,{HERE_TEXT}5"
    world.handle(Ack("processed", again.cid, sid=again.sid, position=6, vector=vector))
    assert world.feed.passed == {HERE: 0}
    assert world.read() == [1, 2, 3, 4, 5]


def test_a_replaced_filter_holds_for_all_origins():
    world, _ = wired("0")
    request, (effect,) = world.connection.ask(Replace("s1", filter="/a = 1"), [world.feed])
    vector = f"{OTHER_TEXT}7,{HERE_TEXT}5"
    world.handle(Ack("processed", effect.command.cid, sid="s1", position=6, vector=vector))
    assert request.done
    assert world.feed.seen == {HERE: 5, Origin(0xB, 1): 7}


def test_an_end_that_is_now_is_the_same_moment_elsewhere():
    world = Wired(subscribe("0", until="now"))
    (asked,) = world.log_on()
    vector = f"{OTHER_TEXT}7,{HERE_TEXT}5"
    found = RangeList(1, HERE.instance, 1, 9, [], asked.cid, 9, vector)
    (again,) = commands(world.handle(found))
    assert again.until == vector
