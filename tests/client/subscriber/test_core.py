"""The core of a connection to delivery: when it connects, what it asks and is answered."""

from __future__ import annotations

import pytest

from tests.client.times import at
from tests.client.wired import HERE, HERE_TEXT, Wired, commands, subscribe, the, wired
from zbroker.client.connection import REFUSED_MS, TOKENS_MAX, Phase
from zbroker.client.effects import Connect, Connected, Lost, MessagesArrived, NewToken, SendCommand
from zbroker.client.subscriber.feed import Feed, FeedState
from zbroker.client.subscriber.requests import REQUESTS_MAX
from zbroker.errors import ZBrokerError
from zbroker.ids import NOW, Origin
from zbroker.limits import CREDIT_MAX_BYTES
from zbroker.wire.messages import (
    Ack,
    Error,
    Heartbeat,
    Logoff,
    Msg,
    Pause,
    RangeList,
    Ranges,
    Replace,
    Resume,
    Subscribe,
    Unsubscribe,
)


def test_it_subscribes_as_it_was_asked():
    _, asked = wired("1|2|", until="3|4|", credit=7, content="/a > 1")
    assert (asked.bookmark, asked.until, asked.credit) == ("1|2|", "3|4|", 7)
    assert (asked.filter, asked.options, asked.unrecorded) == ("/a > 1", None, False)


# -- reconnecting ---------------------------------------------------------------------------------


def test_a_reconnect_before_the_first_message_keeps_a_start_at_a_time():
    world, _ = wired("20990101T000000Z", position=40)
    world.handle(Ack("completed", sid="s1", vector=HERE_TEXT + "39"))
    assert world.lose()[0].bookmark == "20990101T000000Z"


def test_a_plain_subscription_is_resumed_as_one():
    world, asked = wired(None, position=7)
    assert (asked.bookmark, asked.unrecorded) == (None, True)
    (again,) = world.lose()
    assert (again.bookmark, again.unrecorded) == (HERE_TEXT + "6", True)


def test_now_as_an_end_stays_the_same_moment_after_a_reconnect():
    world = Wired(subscribe(until="now"))
    (ranges,) = world.log_on()
    assert isinstance(ranges, Ranges)
    assert ranges.bookmark == NOW
    asked = the(world.handle(RangeList(1, 0xAB, 1, 31, [], ranges.cid)))
    assert asked.until == HERE_TEXT + "30"
    world.accept(asked)
    assert world.lose()[0].until == HERE_TEXT + "30"


@pytest.mark.parametrize("end", ["now", "point:evening"])
@pytest.mark.parametrize("regex", [False, True])
def test_the_look_up_of_an_end_names_its_topic(end, regex):
    """Rights come first: else the answer would tell whether the point is there."""
    command = subscribe("0", until=end)
    command.topic, command.regex = "prices.*", regex
    (ranges,) = Wired(command).log_on()
    assert (ranges.topic, ranges.regex) == ("prices.*", regex)


def test_now_as_the_end_of_a_range_stays_the_same_moment_after_a_reconnect():
    world = Wired(subscribe(f"[0:{NOW})"))
    (ranges,) = world.log_on()
    asked = the(world.handle(RangeList(1, 0xAB, 1, 31, [], ranges.cid)))
    assert asked.bookmark == f"[0:{HERE_TEXT}30]"
    world.accept(asked)
    world.send(1, 5)
    assert world.lose()[0].bookmark == f"({HERE_TEXT}5:{HERE_TEXT}30]"


def test_options_are_asked_for_again():
    options = {"rate": "2X", "rate_max_gap_s": 3.0, "select": "-/,+/a", "wait_s": 5.0}
    world, asked = wired("0", content="/a", **options)
    (again,) = world.lose()
    assert (again.options, again.filter) == (asked.options, "/a")


@pytest.mark.parametrize("state", ["connecting", "logon", "subscribing"])
def test_a_listener_that_does_not_answer_is_left(state):
    world = Wired(subscribe())
    if state != "connecting":
        world.handle(Connected())
    if state == "subscribing":
        world.handle(Ack("processed", "1"))
    wake = world.connection.next_wake_ms()
    assert world.connection.tick(at(wake - 1), drained=True) == []
    effects = world.connection.tick(at(wake), drained=True)
    if not effects:  # not at once: it was not well for long
        effects = world.connection.tick(at(world.connection.next_wake_ms()), drained=True)
    assert effects == [Connect()]


def test_an_answer_may_take_as_long_as_a_bookmark_is_waited_for():
    short, long = (Wired(subscribe(wait_s=wait)) for wait in (0.0, 60.0))
    for world in (short, long):
        world.log_on()
    assert long.connection.next_wake_ms() == short.connection.next_wake_ms() + 60_000


def test_a_listener_that_is_not_ready_is_asked_again():
    world = Wired(subscribe())
    (asked,) = world.log_on()
    assert world.handle(Error("not_ready", "journal", cid=asked.cid, sid="s1")) == []
    assert world.connection.tick(at(world.connection.next_wake_ms()), drained=True) == [Connect()]


@pytest.mark.parametrize("what", ["logon", "subscription"])
def test_a_budget_that_its_lost_connection_may_use_is_waited_for(what):
    """The broker may take the old one for living until it misses heartbeats."""
    world, _ = wired()
    world.now += 5_000
    world.handle(Lost())
    pauses = []
    for _ in range(4):
        command = the(world.handle(Connected()))
        if what == "subscription":
            command = the(world.handle(Ack("processed", command.cid)))
        assert world.handle(Error("too_many", "full", cid=command.cid)) == []
        pauses.append((world.connection.next_wake_ms() or 0) - world.now)
        world.now += pauses[-1]
        assert world.connection.tick(at(world.now), drained=True) == [Connect()]
    assert pauses == [200, 400, 800, 1_600]
    world.live()
    assert world.feed.error is None


@pytest.mark.parametrize("code", ["too_many", "bookmark_pending"])
def test_what_is_refused_for_too_long_is_an_error(code):
    world, _ = wired()
    (asked,) = world.lose()
    world.now += REFUSED_MS
    world.handle(Error(code, "no", cid=asked.cid, sid=asked.sid))
    assert world.read() == [code]


def test_what_another_instance_does_not_have_yet_is_waited_for():
    """It saw messages that are still on their way there; a first subscription is told at once."""
    world, _ = wired()
    (asked,) = world.lose()
    assert world.handle(Error("bookmark_pending", "not yet", cid=asked.cid, sid=asked.sid)) == []
    assert world.feed.error is None
    world.now = world.connection.next_wake_ms()
    assert world.connection.tick(at(world.now), drained=True) == [Connect()]
    world.live()
    assert world.feed.error is None
    first = Wired(subscribe())
    (asked,) = first.log_on()
    first.handle(Error("bookmark_pending", "not yet", cid=asked.cid))
    assert first.read() == ["bookmark_pending"]


def test_a_budget_that_was_used_up_before_is_an_error_at_once():
    """Of a first subscription, and of one more on a connection that is there again."""
    first = Wired(subscribe())
    (asked,) = first.log_on()
    first.handle(Error("too_many", "full", cid=asked.cid))
    assert first.read() == ["too_many"]
    world, _ = wired()
    world.accept(world.lose()[0])
    more = Feed(subscribe())
    asked = the(world.connection.add(more, world.now, CREDIT_MAX_BYTES))
    world.handle(Error("too_many", "full", cid=asked.cid, sid=asked.sid))
    assert world.read(more) == ["too_many"]
    assert world.feed.state is FeedState.LIVE


def test_a_listener_that_forgot_it_is_informed_again():
    world, _ = wired()
    world.send(1, 2)
    logon = the(world.handle(Error("not_logged_on", "who")))
    assert world.handle(Error("not_logged_on", "who")) == [], "of a command sent before the logon"
    again = the(world.handle(Ack("processed", logon.cid)))
    assert again.bookmark == HERE_TEXT + "2"
    assert world.resubscribed == 0
    world.accept(again)
    assert world.resubscribed == 1, "though the loss of the connection was not seen"


def test_a_token_that_expired_is_replaced():
    world, _ = wired()
    world.handle(Lost())
    world.now = world.connection.next_wake_ms() or 0
    world.connection.tick(at(world.now), drained=True)
    world.handle(Connected())
    assert world.handle(Error("auth_failed", "old")) == []
    assert world.connection.state is Phase.NO_TOKEN
    assert world.handle(Lost()) == []
    assert world.handle(NewToken("new", HERE, 2)) == [Connect()]
    assert the(world.handle(Connected())).token == "new"


def test_tokens_that_are_all_refused_are_an_error():
    world = Wired(subscribe())
    for _ in range(TOKENS_MAX):
        world.handle(Connected())
        world.handle(Error("auth_failed", "no"))
        world.handle(NewToken("new", HERE, 2))
    world.handle(Connected())
    world.handle(Error("auth_failed", "no"))
    assert world.feed.error.code == "auth_failed"


def test_a_connection_that_does_not_come_about_is_begun_again():
    world = Wired(subscribe())
    assert world.handle(Lost()) == []
    assert world.connection.tick(at(world.connection.next_wake_ms()), drained=True) == [Connect()]


def test_the_listener_knows_best_whose_positions_it_sends():
    world = Wired(subscribe())
    logon = the(world.handle(Connected()))
    world.handle(Ack("processed", logon.cid, origin=(0xAB, 2)))
    assert world.connection.own == Origin(0xAB, 2)


# -- heartbeats -----------------------------------------------------------------------------------


def beating():
    """A connection that asked for an interval of a second; live."""
    world = Wired(subscribe(), heartbeat_s=1.0)
    world.live()
    world.connection.tick(at(0), drained=True)
    return world


def until_lost(world):
    """Time passes, the core is woken when it wants to be; when it gave the connection up."""
    while world.connection.tick(at(world.now), drained=True) != [Connect()]:
        world.now = world.connection.next_wake_ms()
        assert world.now <= 100_000
    return world.now


@pytest.mark.seed("002-43")
def test_the_listener_is_asked_for_heartbeats_and_promised_none():
    world = Wired(subscribe(), heartbeat_s=1.0)
    assert the(world.handle(Connected())).heartbeat_s == 1.0
    world = beating()
    for world.now in range(0, 60_000, 400):
        world.handle(Heartbeat())
        assert world.connection.tick(at(world.now), drained=True) == []
    assert the(Wired(subscribe()).handle(Connected())).heartbeat_s is None


def test_a_listener_that_is_silent_for_two_intervals_is_left():
    world = beating()
    world.now = 300
    world.handle(Heartbeat())
    assert until_lost(world) == 2_300


@pytest.mark.parametrize("said", ["message", "heartbeat"])
def test_silence_begins_after_whatever_came_last(said):
    world = beating()
    for world.now in range(0, 10_000, 500):
        if said == "message":
            world.send(world.now // 500 + 1, 1)
        else:
            world.handle(Heartbeat())
        assert world.connection.tick(at(world.now), drained=True) == []
    assert until_lost(world) == 9_500 + 2_000


def test_what_waits_is_read_before_a_silence_is_judged():
    """A handler was busy for minutes: no one looked meanwhile."""
    world = beating()
    world.now = 600_000
    assert world.connection.tick(at(world.now), drained=True) == []
    world.now += 1_999
    world.handle(Heartbeat())
    assert world.connection.tick(at(world.now), drained=True) == []


def test_a_listener_without_heartbeats_may_be_silent_for_ever():
    world, _ = wired()
    assert (world.connection.next_wake_ms(), world.connection.tick(at(10**7), drained=True)) == (
        None,
        [],
    )


def test_a_listener_that_hears_nothing_gets_a_new_connection():
    world = beating()
    world.send(1, 2)
    world.now = 5_000
    reported = Error("not_logged_on", "nothing was heard for two heartbeats")
    assert world.handle(reported) == [Connect()]
    (again,) = world.log_on()
    assert again.bookmark == HERE_TEXT + "2"


# -- answers --------------------------------------------------------------------------------------


def test_answers_to_older_questions_are_not_taken():
    world = Wired(subscribe())
    (asked,) = world.log_on()
    world.handle(Ack("processed", "0"))
    assert world.feed.state is FeedState.SUBSCRIBED
    world.accept(asked)
    world.handle(Ack("completed", sid="another"))
    world.handle(Ack("processed", asked.cid, sid="another"))
    world.handle(RangeList(1, 1, 1, 1, []))
    world.handle(Connected())
    world.handle(Heartbeat())
    world.handle(Error("unknown_sid", "gone", cid="77", sid="another"))
    assert (world.feed.state, world.read()) == (FeedState.LIVE, [])


def test_messages_of_a_subscription_that_is_not_accepted_are_not_taken():
    world = Wired(subscribe())
    world.log_on()
    world.send(1, 2)
    assert world.read() == []


def test_an_error_ends_it_after_what_came_before():
    world, _ = wired()
    world.send(1, 2)
    world.handle(Error("gap", "positions 3 to 5", sid="s1"))
    assert world.lose() == [], "what has ended is not asked for again"
    assert world.read() == [1, 2, "gap"]


def test_an_error_of_the_whole_connection_ends_all_of_it():
    world = Wired(subscribe(), subscribe())
    world.live()
    world.handle(Error("session_ended", "revoked"))
    assert [world.read(feed) for feed in world.feeds] == [["session_ended"], ["session_ended"]]


def test_a_damaged_batch_ends_it():
    world, _ = wired()
    (effect,) = world.send(1, 2, crc=1)
    assert effect == SendCommand(Unsubscribe("s1"))
    assert world.read() == ["bad_checksum"]
    assert world.send(1, 2) == []


def test_closing_tells_the_listener():
    world, _ = wired()
    assert world.connection.remove(world.feed) == [SendCommand(Logoff())]
    assert world.handle(Lost()) == []
    assert world.connection.remove(world.feed) == []
    fresh = Wired(subscribe())
    assert fresh.connection.remove(fresh.feed) == []


# -- pause, resume, replace -----------------------------------------------------------------------


def ask(world, command, *feeds):
    """The request, and what is sent for it now."""
    request, effects = world.connection.ask(command, list(feeds) or world.feeds)
    return request, commands(effects)


def test_what_is_paused_is_asked_for_paused_after_a_reconnect():
    world, _ = wired("0")
    request, (sent,) = ask(world, Pause([]))
    assert (sent.sids, request.done, world.feed.paused) == (["s1"], False, False)
    world.handle(Ack("processed", sent.cid))
    assert (request.done, world.feed.paused) == (True, True)
    (again,) = world.lose()
    assert (again.options.paused, again.unrecorded) == (True, False)
    world.accept(again)
    _, (sent,) = ask(world, Resume([]))
    world.handle(Ack("processed", sent.cid))
    assert world.lose()[0].options is None


def test_a_request_without_an_answer_is_sent_again_after_a_reconnect():
    world, _ = wired("0")
    request, (first,) = ask(world, Pause([]))
    (again,) = world.lose()
    assert again.options is None, "what is not answered does not hold"
    (second,) = world.accept(again)
    assert (second.sids, second.cid != first.cid) == (["s1"], True)
    world.handle(Ack("processed", first.cid))
    assert not request.done
    world.handle(Ack("processed", second.cid))
    assert request.done


def test_an_answer_of_a_lost_connection_does_not_hold():
    """The messages before it, read as late, are not taken either: they come again."""
    world, _ = wired("0")
    request, (sent,) = ask(world, Replace("", filter="/a"))
    world.handle(Lost())
    world.send(1, 2)
    world.handle(Ack("processed", sent.cid, position=3))
    assert (request.done, world.feed.seen) == (False, {HERE: 0})


def test_a_request_waits_until_its_subscription_is_accepted():
    world = Wired(subscribe())
    request, sent = ask(world, Pause([]))
    assert sent == []
    (asked,) = world.log_on()
    (pause,) = world.accept(asked)
    world.handle(Ack("processed", pause.cid))
    assert request.done


def test_what_was_replaced_is_asked_for_after_a_reconnect():
    world, _ = wired("0", content="/a")
    world.send(1, 2)
    _, (sent,) = ask(world, Replace("", topic="u.*", regex=True))
    assert (sent.sid, sent.topic, sent.filter) == ("s1", "u.*", None)
    world.handle(Ack("processed", sent.cid, position=10))
    (again,) = world.lose()
    assert (again.topic, again.regex, again.filter) == ("u.*", True, "/a")
    assert again.bookmark == HERE_TEXT + "9", "the old ones held before that, and it all came"
    world.accept(again, position=10)
    _, (sent,) = ask(world, Replace("", filter=""))
    world.handle(Ack("processed", sent.cid, position=10))
    assert world.lose()[0].filter is None


def test_a_refused_replace_changes_nothing():
    world, _ = wired("0", content="/a")
    request, (sent,) = ask(world, Replace("", filter="/a >"))
    world.handle(Error("bad_filter", "column 5", cid=sent.cid))
    assert request.error.code == "bad_filter"
    world.send(1, 2)
    assert (world.read(), world.lose()[0].filter) == ([1, 2], "/a")


def test_pausing_what_came_to_its_end_is_done():
    world, _ = wired("0", until="1|1|")
    request, (sent,) = ask(world, Pause([]))
    world.handle(Ack("completed", sid="s1"))
    world.handle(Error("unknown_sid", "gone", cid=sent.cid))
    assert (request.done, request.error) == (True, None)
    later, sent = ask(world, Resume([]))
    assert (later.done, later.error, sent) == (True, None, [])


@pytest.mark.parametrize("closed", [False, True])
def test_what_was_asked_about_one_that_is_over_is_done_when_the_connection_is_lost(closed):
    """Its answer was lost with it, and no one will be asked again."""
    world = Wired(subscribe("0", until="1|1|"), subscribe("0"))
    world.live()
    over, other = world.feeds
    request, (sent,) = ask(world, Pause([]), over)
    both, _ = ask(world, Pause([]))
    assert sent.sids == ["s1"]
    if closed:
        world.connection.remove(over)
    else:
        world.handle(Ack("completed", sid="s1"))
    assert not request.done
    (again,) = world.lose()
    assert request.done
    assert (request.error is not None) == closed
    (pause,) = world.accept(again)
    assert pause.sids == [other.sid]
    world.handle(Ack("processed", pause.cid))
    assert (both.done, both.error, other.paused) == (True, None, True)


def test_replacing_what_came_to_its_end_is_an_error():
    world, _ = wired("0", until="1|1|")
    world.handle(Ack("completed", sid="s1"))
    request, sent = ask(world, Replace("", filter="/a"))
    assert (request.error.code, sent) == ("closed", [])


def test_a_request_about_what_was_closed_is_refused():
    world = Wired(subscribe("0"))
    request, _ = ask(world, Pause([]))
    world.connection.remove(world.feed)
    assert request.error.code == "closed"


def test_requests_without_an_answer_are_bounded():
    world, _ = wired("0")
    for _ in range(REQUESTS_MAX):
        ask(world, Pause([]))
    with pytest.raises(ZBrokerError, match="too_many"):
        ask(world, Pause([]))


def test_the_others_are_asked_for_when_one_of_several_has_ended():
    world = Wired(subscribe(until="1|1|"), subscribe())
    world.live()
    request, (sent,) = ask(world, Pause([]))
    world.handle(Ack("completed", sid="s1"))
    again = the(world.handle(Error("unknown_sid", "s1", cid=sent.cid)))
    assert again.sids == ["s2"]
    world.handle(Ack("processed", again.cid))
    assert (request.error, world.feeds[1].paused) == (None, True)


# -- several on one connection --------------------------------------------------------------------


def together(*wanted):
    """Subscriptions that were resumed together, from one replay."""
    world = Wired(*wanted)
    world.live()
    _, (sent,) = ask(world, Resume([]))
    world.handle(Ack("processed", sent.cid, combined=sent.sids))
    return world


def paused(**options):
    return subscribe("0", paused=True, **options)


def test_each_gets_what_is_for_it():
    world = Wired(subscribe("0"), subscribe("0"))
    first, second = world.live()
    assert (first.sid, second.sid) == ("s1", "s2")
    one, other = world.feeds
    world.send(1, 2, feed=one)
    world.send(1, 1, feed=other)
    world.send(3, 1, feed=one)
    assert [world.read(feed) for feed in world.feeds] == [[1, 2, 3], [1]]


def test_what_was_resumed_together_is_again_after_a_reconnect():
    world = together(paused(), paused(), paused())
    one, other, third = world.feeds
    world.send(1, 4, feed=one)
    world.send(5, 1, feed=other)
    world.handle(Ack("persisted", sid=third.sid, vector=HERE_TEXT + "3"))
    asked = world.lose()
    assert [command.options.paused for command in asked] == [True] * 3
    assert {command.bookmark for command in asked} == {HERE_TEXT + "3"}, "the lowest of them"
    assert world.accept(asked[0]) == []
    assert world.accept(asked[1]) == []
    (resume,) = world.accept(asked[2])
    assert (type(resume), resume.sids) == (Resume, ["s1", "s2", "s3"])
    world.handle(Ack("processed", resume.cid, combined=resume.sids))
    world.send(4, 1, feed=one)
    world.send(5, 2, feed=other)
    assert [world.read(feed) for feed in world.feeds] == [[1, 2, 3, 4], [5, 6], []]
    assert [feed.paused for feed in world.feeds] == [False] * 3


def test_who_was_paused_alone_leaves_the_group():
    world = together(paused(), paused(), paused())
    _, (sent,) = ask(world, Pause([]), world.feeds[0])
    world.handle(Ack("processed", sent.cid))
    assert world.connection.requests.group_of(world.feeds[0]) == []
    assert world.connection.requests.group_of(world.feeds[1]) == world.feeds[1:]
    world.send(1, 2, feed=world.feeds[0])
    asked = world.lose()
    assert [command.bookmark for command in asked] == [HERE_TEXT + "2", *[HERE_TEXT + "0"] * 2]


def test_a_group_that_the_broker_combines_no_more_is_none():
    world = together(paused(), paused())
    asked = world.lose()
    world.accept(asked[0])
    (resume,) = world.accept(asked[1])
    world.handle(Ack("processed", resume.cid))
    assert world.connection.requests.groups == []
    assert [command.options for command in world.lose()] == [None, None]


def test_resuming_what_runs_changes_nothing():
    world = together(paused(), paused())
    _, (sent,) = ask(world, Resume([]))
    world.handle(Ack("processed", sent.cid))
    assert world.connection.requests.group_of(world.feeds[0]) == world.feeds


def test_a_group_that_is_paused_as_a_whole_stays_one():
    world = together(paused(), paused())
    world.send(1, 2, feed=world.feeds[0])
    _, (sent,) = ask(world, Pause([]))
    world.handle(Ack("processed", sent.cid))
    asked = world.lose()
    assert {command.bookmark for command in asked} == {HERE_TEXT + "0"}
    assert [world.accept(command) for command in asked] == [[], []], "it stays paused"


def test_who_does_not_share_a_replay_goes_on_where_it_was():
    world = Wired(paused(), paused(), paused())
    world.live()
    _, (sent,) = ask(world, Resume([]))
    world.handle(Ack("processed", sent.cid, combined=["s1", "s2"]))
    world.send(1, 2, feed=world.feeds[2])
    asked = world.lose()
    assert [command.bookmark for command in asked] == [HERE_TEXT + "0"] * 2 + [HERE_TEXT + "2"]
    assert asked[2].options is None


def test_the_rest_of_a_group_is_resumed_when_one_was_refused_after_a_reconnect():
    world = together(paused(), paused(), paused())
    first, second, third = world.lose()
    world.accept(first)
    world.accept(second)
    resume = the(world.handle(Error("bookmark_expired", "gone", cid=third.cid, sid="s3")))
    assert resume.sids == ["s1", "s2"]


def test_a_group_that_cannot_be_resumed_again_is_reported():
    world = together(paused(), paused())
    asked = world.lose()
    world.accept(asked[0])
    (resume,) = world.accept(asked[1])
    world.handle(Error("internal", "a bug", cid=resume.cid))
    assert [world.read(feed) for feed in world.feeds] == [["internal"], ["internal"]]


def test_one_that_leaves_is_unsubscribed():
    world = together(paused(), paused())
    one, other = world.feeds
    assert world.connection.remove(one) == [SendCommand(Unsubscribe("s1"))]
    assert world.handle(MessagesArrived(Msg("s1", 1, 1, 0, 1, 1), b"")) == [], "it was on its way"
    assert world.connection.requests.group_of(other) == []
    assert [command.sid for command in world.lose()] == ["s2"]


def test_one_that_has_ended_takes_what_waits_along():
    world, _ = wired("0", until="1|1|")
    world.send(1, 2)
    world.handle(Ack("completed", sid="s1"))
    world.connection.remove(world.feed)
    other = Wired(subscribe())
    other.live()
    assert other.connection.add(world.feed, 0, CREDIT_MAX_BYTES) == []
    assert world.connection.remove(world.feed) == [], "it is elsewhere"
    assert world.read() == [1, 2, "end"]


def test_one_that_comes_later_is_asked_for_at_once():
    world, _ = wired()
    late = Feed(subscribe("0", credit=CREDIT_MAX_BYTES))
    asked = the(world.connection.add(late, 0, 1_000))
    assert (type(asked), asked.sid, asked.credit) == (Subscribe, "s2", 1_000)


def test_one_that_moves_on_takes_its_place_along():
    world, _ = wired("0")
    world.send(1, 3)
    world.connection.remove(world.feed)
    other = Wired(subscribe())
    other.live()
    asked = the(other.connection.add(world.feed, 0, CREDIT_MAX_BYTES))
    assert (asked.sid, asked.bookmark) == ("s2", HERE_TEXT + "3")
    assert world.read() == [1, 2, 3]


def test_a_request_under_way_is_over_when_the_last_subscription_is_closed():
    world, _ = wired("0")
    request, effects = world.connection.ask(Pause([]), [world.feed])
    assert effects
    world.connection.remove(world.feed)
    assert request.done
    assert request.error.code == "closed"


def test_a_group_stays_one_if_it_is_paused_and_resumed_while_the_connection_is_lost():
    world = Wired(*(subscribe("0", paused=True) for _ in range(2)))
    world.live()
    feeds = list(world.feeds)
    _, (sent,) = world.connection.ask(Resume([]), feeds)
    world.handle(Ack("processed", sent.command.cid, combined=["s1", "s2"]))
    for command in (Pause([]), Resume([])):
        world.connection.ask(command, feeds)
    for asked in world.lose():
        effects = world.handle(Ack("processed", asked.cid, sid=asked.sid, position=1))
    kinds = [type(effect.command) for effect in effects]
    assert kinds == [Resume, Pause, Resume], "as it was confirmed, then what was asked since"
    for effect in effects:
        combined = ["s1", "s2"] if isinstance(effect.command, Resume) else None
        world.handle(Ack("processed", effect.command.cid, combined=combined))
    assert world.connection.requests.group_of(feeds[0]) == feeds
