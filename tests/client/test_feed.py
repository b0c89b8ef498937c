"""The core of a subscription: what is asked, what is new, what is given back."""

from __future__ import annotations

from zbroker.client.effects import Connect, Connected, Lost, Send
from zbroker.client.feed import TOKENS_MAX, Feed, State
from zbroker.client.message import decode
from zbroker.ids import NOW, Origin
from zbroker.wire.bodies import pack
from zbroker.wire.messages import (
    Ack,
    DoorLogon,
    Error,
    Flow,
    Logoff,
    Msg,
    RangeList,
    Ranges,
    Subscribe,
)

HERE = Origin(0xAB, 1)
HERE_TEXT = "00000000000000ab.1."


def command_of(effects):
    (send,) = effects
    assert isinstance(send, Send)
    return send.command


def logged_on(bookmark=NOW, until=None, credit=1_000):
    """A feed whose logon was answered, and the command that it sent then."""
    feed = Feed(Subscribe("s", "t", bookmark=bookmark, until=until, credit=credit), lambda: 1.0)
    assert feed.use("token", HERE, 0) == [Connect()]
    return feed, log_on(feed, 0)


def log_on(feed, now):
    logon = command_of(feed.handle(Connected(), now))
    assert isinstance(logon, DoorLogon)
    return command_of(feed.handle(Ack("processed", logon.cid), now))


def live(position=1, **options):
    feed, subscribe = logged_on(**options)
    feed.handle(Ack("processed", subscribe.cid, sid="s", position=position), 0)
    assert feed.state is State.LIVE
    return feed


def batch(position, count, origin=None):
    message = Msg("s", 1, position, 0, count, position, topic="t", origin=origin)
    return decode(message, pack([b"x"] * count), HERE, 100)


def take(feed, position, count, size=1):
    messages, effects = feed.take(batch(position, count), size)
    return [m.position for m in messages], effects


def resumed_from(feed, now=5_000):
    """The bookmark with which it subscribes after a loss of the connection."""
    assert feed.handle(Lost(), now) == [Connect()]
    return log_on(feed, now).bookmark


def test_it_subscribes_as_it_was_told():
    _, subscribe = logged_on(bookmark="1|2|", until="3|4|", credit=7)
    assert (subscribe.bookmark, subscribe.until, subscribe.credit) == ("1|2|", "3|4|", 7)


def test_a_reconnect_goes_on_behind_what_was_seen():
    feed = live(bookmark="0")
    take(feed, 1, 5)
    assert resumed_from(feed) == HERE_TEXT + "5"


def test_a_reconnect_before_the_first_message_goes_on_where_now_was():
    assert resumed_from(live(position=40)) == HERE_TEXT + "39"


def test_a_reconnect_before_the_first_message_keeps_a_start_at_a_time():
    feed = live(position=40, bookmark="20990101T000000Z")
    feed.handle(Ack("completed", sid="s", vector=HERE_TEXT + "39"), 0)
    assert resumed_from(feed) == "20990101T000000Z"


def test_what_was_acknowledged_as_passed_is_not_asked_again():
    feed = live()
    feed.handle(Ack("persisted", sid="s", vector=HERE_TEXT + "77"), 0)
    assert resumed_from(feed) == HERE_TEXT + "77"


def test_what_comes_again_is_dropped():
    feed = live()
    assert take(feed, 1, 5)[0] == [1, 2, 3, 4, 5]
    assert take(feed, 1, 5)[0] == []
    assert take(feed, 4, 4)[0] == [6, 7]


def test_origins_have_positions_of_their_own():
    feed = live(position=10)
    take(feed, 10, 1)
    messages, _ = feed.take(batch(11, 2, origin=(7, 1, 3)), 1)
    assert [m.position for m in messages] == [3, 4]
    assert feed.seen == {HERE: 10, Origin(7, 1): 4}


def test_a_vector_to_start_from_is_what_was_seen():
    feed = live(bookmark=HERE_TEXT + "5", position=6)
    assert take(feed, 4, 3)[0] == [6]


def test_credit_goes_back_when_half_is_used():
    feed = live(credit=100)
    assert take(feed, 1, 1, size=49)[1] == []
    assert take(feed, 2, 1, size=2)[1] == [Send(Flow("s", 51))]
    assert take(feed, 3, 1, size=49)[1] == []


def test_now_as_an_end_stays_the_same_moment_after_a_reconnect():
    feed, ranges = logged_on(until="now")
    assert isinstance(ranges, Ranges)
    answer = RangeList(1, 0xAB, 1, 31, [], ranges.cid)
    subscribe = command_of(feed.handle(answer, 0))
    assert subscribe.until == HERE_TEXT + "30"
    feed.handle(Ack("processed", subscribe.cid, sid="s", position=1), 0)
    feed.handle(Lost(), 5_000)
    assert log_on(feed, 5_000).until == HERE_TEXT + "30"


def test_a_range_ends_when_it_is_completed():
    feed = live(until="1|2|")
    feed.handle(Ack("completed", sid="s"), 0)
    assert (feed.caught_up, feed.state, feed.error) == (True, State.ENDED, None)


def test_a_live_subscription_goes_on_when_it_has_caught_up():
    feed = live()
    feed.handle(Ack("completed", sid="s"), 0)
    assert (feed.caught_up, feed.state) == (True, State.LIVE)


def test_an_error_ends_it_with_the_brokers_code():
    feed = live()
    feed.handle(Error("gap", "positions 3 to 5", sid="s"), 0)
    assert feed.error.code == "gap"
    assert feed.handle(Lost(), 0) == []


def test_a_token_that_expired_is_replaced():
    feed = live()
    feed.handle(Lost(), 5_000)
    feed.handle(Connected(), 5_000)
    assert feed.handle(Error("auth_failed", "old"), 5_000) == []
    assert feed.state is State.NO_TOKEN
    assert feed.use("new", HERE, 5_001) == [Connect()]
    assert command_of(feed.handle(Connected(), 5_001)).token == "new"


def test_tokens_that_are_all_refused_are_an_error():
    feed, _ = logged_on()
    for _ in range(TOKENS_MAX):
        feed.handle(Error("auth_failed", "no"), 0)
        feed.use("new", HERE, 0)
        feed.handle(Connected(), 0)
    feed.handle(Error("auth_failed", "no"), 0)
    assert feed.error.code == "auth_failed"


def test_a_door_that_forgot_it_is_told_again():
    feed = live()
    take(feed, 1, 2)
    logon = command_of(feed.handle(Error("not_logged_on", "who"), 0))
    again = command_of(feed.handle(Ack("processed", logon.cid), 0))
    assert again.bookmark == HERE_TEXT + "2"


def test_a_door_that_is_not_ready_is_asked_again():
    feed, subscribe = logged_on()
    assert feed.handle(Error("not_ready", "journal", cid=subscribe.cid, sid="s"), 0) == []
    assert feed.tick(feed.next_wake_ms()) == [Connect()]


def test_a_door_that_does_not_answer_is_left():
    feed, _ = logged_on()
    feed.tick(feed.next_wake_ms())
    assert feed.tick(feed.next_wake_ms()) == [Connect()]


def test_messages_of_a_subscription_that_is_not_live_are_not_taken():
    feed, _ = logged_on()
    assert take(feed, 1, 2)[0] == []


def test_closing_tells_the_door():
    assert live().close() == [Send(Logoff())]
    assert Feed(Subscribe("s", "t"), lambda: 1.0).close() == []


def test_answers_to_older_questions_are_not_taken():
    feed, subscribe = logged_on()
    feed.handle(Ack("processed", "0"), 0)
    assert feed.state is State.SUBSCRIBED
    feed.handle(Ack("processed", subscribe.cid, sid="s", position=1), 0)
    feed.handle(Ack("completed", sid="another"), 0)
    feed.handle(Ack("processed", subscribe.cid, sid="another"), 0)
    feed.handle(RangeList(1, 1, 1, 1, []), 0)
    feed.handle(Connected(), 0)
    assert (feed.state, feed.caught_up) == (State.LIVE, False)


def test_the_door_knows_best_whose_positions_it_sends():
    feed = Feed(Subscribe("s", "t"), lambda: 1.0)
    feed.use("token", Origin(1, 1), 0)
    logon = command_of(feed.handle(Connected(), 0))
    feed.handle(Ack("processed", logon.cid, origin=(0xAB, 2)), 0)
    assert feed.own == Origin(0xAB, 2)


def test_a_log_that_cannot_be_read_ends_it():
    feed = live()
    feed.handle(Error("internal", "a disk", sid="s"), 0)
    assert feed.error.code == "internal"


def test_a_connection_that_does_not_come_about_is_begun_anew():
    feed = Feed(Subscribe("s", "t"), lambda: 1.0)
    feed.use("token", HERE, 0)
    assert feed.handle(Lost(), 0) == []
    assert feed.tick(feed.next_wake_ms() - 1) == []
    assert feed.tick(feed.next_wake_ms()) == [Connect()]


def test_unrecorded_messages_are_taken_as_they_come():
    feed = live(bookmark=None)
    assert take(feed, 0, 2)[0] == [0, 0]
    assert take(feed, 5, 1)[0] == [5]
    assert take(feed, 0, 1)[0] == [0]
    assert feed.seen == {HERE: 5}


def test_a_plain_subscription_is_resumed_as_one():
    feed = live(position=7, bookmark=None)
    (connect,) = feed.handle(Lost(), 5_000)
    assert connect == Connect()
    again = log_on(feed, 5_000)
    assert (again.bookmark, again.unrecorded) == (f"{HERE_TEXT}6", True)


def test_dropped_messages_are_counted_over_all_connections():
    feed = live(bookmark=None)
    feed.handle(Ack("dropped", sid="s", dropped=3), 0)
    feed.handle(Ack("dropped", sid="s", dropped=5), 0)
    assert feed.dropped == 5
    feed.handle(Lost(), 5_000)
    subscribe = log_on(feed, 5_000)
    feed.handle(Ack("processed", subscribe.cid, sid="s", position=1), 5_000)
    feed.handle(Ack("dropped", sid="s", dropped=2), 5_000)
    assert feed.dropped == 7
