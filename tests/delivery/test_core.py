"""The delivery core: commands and their answers, without a socket, a log or a clock."""

from __future__ import annotations

import pytest

from tests.delivery.world import ANN, BOB, HERE, KEY, NOW_S, World, ready
from zbroker.delivery.contract import Planned
from zbroker.delivery.core import PLANS_MAX
from zbroker.delivery.journal_follower import HOLDS_MS
from zbroker.delivery.pending_lookups import PATIENCE_MS
from zbroker.delivery.replay import BLOCK_MAX_BYTES
from zbroker.engine.events import Gone, ReadFailed
from zbroker.errors import StorageError
from zbroker.ids import format_vector
from zbroker.limits import (
    CREDIT_MAX_BYTES,
    HEADER_MAX_BYTES,
    HEARTBEAT_MS,
    MIB,
    SUBSCRIPTIONS_MAX,
)
from zbroker.wire import codec, token
from zbroker.wire import messages as m
from zbroker.wire.internal import UnknownRequester
from zbroker.wire.surveys import Disconnect

# -- logon ------------------------------------------------------------------------------------


def test_a_logon_with_a_token_is_answered_processed():
    world = ready()
    ack = world.last()
    assert (ack.type, ack.cid, ack.version, ack.origin) == ("processed", "1", 1, tuple(HERE))
    assert ack.heartbeat_s == HEARTBEAT_MS / 1000


def test_a_routing_id_that_the_client_chose_is_refused():
    for rid in (b"ann", b"\1ann1", b"\0ann12"):
        world = ready(logon=False)
        world.logon(rid)
        assert world.last().code == "auth_failed"
        assert not world.core.connections


def test_a_token_of_another_key_is_refused():
    world = ready(logon=False)
    world.send(
        m.ListenerLogon(
            token.make(b"x" * 32, token.Token("ann", "ann", "i", 1, int(NOW_S) + 60)), "9"
        )
    )
    assert (world.last().code, world.last().cid) == ("auth_failed", "9")


def test_a_token_from_before_a_disconnect_by_an_operator_is_refused():
    world = ready()
    world.core.answer(b"", Disconnect(1, "ann", 1))
    world.logon()
    assert world.last().code == "auth_failed"
    after = token.Token("ann", "", "i", 2, int(NOW_S) + 60, "", disconnects=1)
    world.send(m.ListenerLogon(token.make(KEY, after), "9"))
    assert world.last().type == "processed"


def test_an_expired_token_is_refused():
    world = ready(logon=False)
    world.send(m.ListenerLogon(token.make(KEY, token.Token("ann", "ann", "i", 1, int(NOW_S))), "9"))
    assert world.last().code == "auth_failed"


def test_more_clients_than_the_limit_are_refused():
    world = World(clients_max=1)
    world.welcome()
    world.logon(ANN)
    world.logon(BOB)
    assert world.last().code == "too_many"
    world.logon(ANN)  # the same one again is no second client
    assert world.last().type == "processed"


def test_a_second_logon_ends_the_subscriptions_of_the_first():
    world = ready()
    world.subscribe()
    world.logon()
    world.subscribe()
    assert world.errors() == []


@pytest.mark.parametrize(
    "command",
    [
        m.Subscribe("s", "t"),
        m.Flow("s", 1),
        m.Unsubscribe("s"),
        m.Ranges(),
        m.Heartbeat(),
        m.Logoff(),
    ],
)
def test_a_command_without_a_logon_is_answered_not_logged_on(command):
    world = ready(logon=False)
    world.send(command)
    assert world.errors() == ["not_logged_on"]


def test_after_logoff_a_connection_is_not_logged_on():
    world = ready()
    world.subscribe()
    world.send(m.Logoff("bye"))
    assert (world.last().type, world.last().cid) == ("processed", "bye")
    world.send(m.Heartbeat())
    assert world.errors() == ["not_logged_on"]


# -- frames that are no commands ----------------------------------------------------------------


@pytest.mark.seed("004-100")
@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([b""], "bad_frame"),
        ([b"\xc1"], "bad_frame"),
        ([b"\x90"], "bad_frame"),
        ([b"\xff" * 100], "bad_frame"),
        ([codec.encode({"cmd": "nonsense", "cid": "7"})], "bad_command"),
        ([codec.encode({"cmd": "publish", "cid": "7", "seq": 1})], "bad_command"),
        ([codec.encode({"cmd": "subscribe", "cid": "7", "sid": "s"})], "bad_field"),
        ([codec.encode({"cmd": "subscribe", "cid": "7", "sid": 1, "topic": "t"})], "bad_field"),
        ([codec.encode({"cmd": "flow", "cid": "7", "sid": "s", "bytes": -1})], "bad_field"),
        ([codec.encode(m.Heartbeat()), b"body"], "bad_frame"),
        ([b"\x81\xa3cmd" + b"x" * HEADER_MAX_BYTES], "too_large"),
    ],
)
def test_bad_frames_are_answered_and_counted(frames, code):
    world = ready()
    world.frames(frames)
    assert world.errors() == [code]
    assert world.core.connections.errors == 1
    if frames[0][:1] in (b"\x83", b"\x84") and code != "bad_frame":
        assert world.last().cid == "7"


def test_too_many_frames_are_a_bad_frame():
    world = ready()
    world.frames([codec.encode(m.Heartbeat())] * 4, over=True)
    assert world.errors() == ["bad_frame"]


def test_no_frame_at_all_is_a_bad_frame():
    world = ready()
    world.frames([])
    assert world.errors() == ["bad_frame"]


# -- subscribe ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"rat": 5}, {"codecs": "zstd"}, {"delivery": "soon"}, {"limit": 0}, {"wait_s": -1}]
)
def test_options_that_are_none_are_refused_by_cid(options):
    world = ready()
    world.subscribe(options=options)
    assert (world.last().code, world.last().cid) == ("bad_field", "c-s")
    assert "options" in world.last().reason


@pytest.mark.seed("004-64")
@pytest.mark.seed("004-88")
@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic": ""}, "bad_topic"),
        ({"topic": "a\nb"}, "bad_topic"),
        ({"topic": "a(", "regex": True}, "bad_filter"),
        ({"filter": "/a = "}, "bad_filter"),
        ({"options": {"rate": 0}}, "bad_field"),
        ({"options": {"rate": "fast"}}, "bad_field"),
        ({"options": {"rate": 5, "rate_max_gap_s": 1}}, "bad_field"),
        ({"options": {"rate": 5, "delivery": "live"}}, "bad_field"),
        ({"options": {"paused": True, "delivery": "live"}}, "bad_field"),
        ({"options": {"conflation_key": ["/a"]}}, "bad_field"),
        ({"options": {"conflation_s": 1, "conflation_key": ["a"]}}, "bad_field"),
        ({"options": {"select": "a"}}, "bad_field"),
        ({"options": {"rate": 5}, "unrecorded": True}, "bad_field"),
        ({"bookmark": "nonsense"}, "bad_bookmark"),
        ({"bookmark": ""}, "bad_bookmark"),
        ({"bookmark": "now"}, "bad_bookmark"),
        ({"bookmark": "20209999T000000"}, "bad_bookmark"),
        ({"bookmark": "1|1|,20200101T000000"}, "bad_bookmark"),
        ({"bookmark": ",".join(["1|1|"] * 1001)}, "too_many"),
        ({"until": "1|1|,1|2|"}, "bad_bookmark"),
        ({"until": ""}, "bad_bookmark"),
        ({"bookmark": "5|5|"}, "bookmark_not_found"),
        ({"bookmark": "1|99|"}, "bookmark_pending"),
        ({"bookmark": "1|99|", "bookmark_not_found": "epoch"}, "bookmark_pending"),
        ({"until": "5|5|"}, "bookmark_not_found"),
        ({"bookmark": "00000000000000aa.1.1"}, "bookmark_not_found"),
        ({"bookmark": format_vector({HERE._replace(generation=0): 1})}, "bookmark_not_found"),
    ],
)
def test_a_subscribe_that_cannot_be_served_is_refused(more, code):
    world = ready()
    world.publish("t")
    world.persist()
    world.subscribe(**{"topic": "t", **more})
    answer = world.last()
    assert (answer.code, answer.cid, answer.sid) == (code, "c-s", "s")
    assert not world.acks("processed")
    world.subscribe()  # the sid is free again
    assert len(world.got()) == 1


def test_a_sid_in_use_is_refused_without_naming_it():
    world = ready()
    world.subscribe()
    world.subscribe()
    assert (world.last().code, world.last().sid, world.last().cid) == ("sid_in_use", None, "c-s")
    world.publish("t")
    world.persist()
    assert len(world.got()) == 1


def test_too_many_subscriptions_are_refused():
    world = ready()
    for number in range(SUBSCRIPTIONS_MAX + 1):
        world.subscribe(sid=str(number))
    assert world.errors() == ["too_many"]


@pytest.mark.seed("004-94")
def test_an_expired_bookmark_is_an_error_that_names_the_oldest():
    world = ready()
    for _ in range(3):
        world.publish("t")
    world.log_start = 3
    world.persist()
    for bookmark in ("1|1|", "1|1|,1|3|"):
        world.subscribe(bookmark=bookmark, bookmark_not_found="epoch")
        assert world.last().code == "bookmark_expired"
        assert format_vector({HERE: 2}) in world.last().reason


@pytest.mark.parametrize(("choice", "expected"), [("epoch", 2), ("now", 0)])
def test_a_bookmark_that_is_not_found_starts_where_the_client_chose(choice, expected):
    world = ready()
    world.publish("t", "t")
    world.persist()
    world.subscribe(bookmark="77|1|", bookmark_not_found=choice)
    assert len(world.got()) == expected
    world.publish("t")
    world.persist()
    assert len(world.got()) == expected + 1


def test_subscribing_is_answered_with_position_before_any_message():
    world = ready()
    world.publish("t", "t", "t")
    world.persist()
    world.subscribe(bookmark="1|1|", credit=1000)
    ack = world.acks("processed")[0]
    assert (ack.cid, ack.sid, ack.position, ack.credit) == ("c-s", "s", 2, 1000)
    assert world.got() == world.wanted(first=2)


@pytest.mark.seed("004-40")
def test_a_list_of_bookmarks_starts_after_the_oldest_that_is_found():
    world = ready()
    world.publish("t", "t", "t")
    world.publish("t", publisher=2)
    world.persist()
    world.subscribe(bookmark="2|1|,1|2|,9|9|")
    assert world.acks("processed")[0].position == 3


def test_a_subscription_to_now_is_completed_at_once():
    world = ready()
    world.publish("t")
    world.persist()
    world.subscribe(bookmark="0|1|")
    assert [ack.vector for ack in world.acks("completed")] == [format_vector({HERE: 1})]
    assert world.got() == []


@pytest.mark.seed("004-39")
def test_completed_comes_when_the_cursor_passes_what_was_persisted_at_subscribe_time():
    world = ready()
    world.publish("t", "t")
    world.publish("other")
    world.persist()
    world.subscribe(credit=0)
    world.publish("t")
    world.persist()
    assert not world.acks("completed")
    world.send(m.Flow("s", 1000))
    completed = world.acks("completed")
    assert [ack.sid for ack in completed] == ["s"]
    assert world.got() == world.wanted()


@pytest.mark.seed("004-53")
def test_a_time_later_than_the_log_waits_for_the_first_message_at_or_after_it():
    world = ready()
    world.publish("t")
    world.persist()
    world.subscribe(bookmark="19700101T000003")
    world.publish("t")  # second 2
    world.persist()
    assert world.got() == []
    world.publish("t")  # second 3
    world.publish("t")
    world.persist()
    assert world.got() == world.wanted(first=3)


# -- until --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("until", "last"),
    [("1|4|", 5), ("19700101T000003", 5), ("now", 8), (format_vector({HERE: 3}), 4), ("1|5|", 6)],
)
def test_a_range_ends_where_it_was_asked_to(until, last):
    world = ready()
    world.publish("t", "t")
    world.publish("t", "t")
    world.publish("t", "t", "t")
    world.persist()
    world.subscribe(until=until)
    world.publish("t")
    world.persist()
    assert world.got() == world.wanted(last=last)
    done = world.acks("completed")
    assert [ack.vector for ack in done] == [format_vector({HERE: last - 1})]
    assert done[0].bookmark == f"1|{last - 1}|"
    world.send(m.Flow("s", 10))
    assert world.errors() == [], "credit for a range that just ended is no mistake"


def test_a_range_whose_end_is_a_time_to_come_ends_at_the_first_message_of_that_time():
    world = ready()
    world.publish("t")
    world.persist()
    world.subscribe(until="19700101T000005")
    assert not world.acks("completed")
    world.publish("t", "t", "t", "t", times=[2, 3, 5_000_000_000, 6_000_000_000])
    world.persist()
    assert world.got() == world.wanted(last=4)
    assert len(world.acks("completed")) == 1


def test_an_empty_range_is_completed_at_once():
    world = ready()
    world.publish("t", "t", "t")
    world.persist()
    world.subscribe(bookmark="1|3|", until="1|1|")
    assert [answer.type for _, answer in world.answers[-2:]] == ["processed", "completed"]
    assert world.got() == []


# -- unsubscribe, credit --------------------------------------------------------------------------


def test_nothing_follows_the_answer_to_unsubscribe():
    world = ready()
    world.subscribe()
    world.send(m.Unsubscribe("s", "u"))
    assert (world.last().type, world.last().cid, world.last().sid) == ("processed", "u", "s")
    world.publish("t")
    world.persist()
    assert world.got() == []


@pytest.mark.parametrize("command", [m.Unsubscribe("x"), m.Flow("x", 5)])
def test_a_sid_that_never_was_is_unknown(command):
    world = ready()
    world.send(command)
    assert world.errors() == ["unknown_sid"]


def test_credit_is_cut_to_what_a_connection_may_have():
    world = ready()
    world.subscribe(sid="a", credit=CREDIT_MAX_BYTES * 5)
    world.subscribe(sid="b", credit=CREDIT_MAX_BYTES)
    first, second = world.acks("processed")
    assert first.credit == CREDIT_MAX_BYTES
    assert second.credit is not None
    assert 0 < second.credit < CREDIT_MAX_BYTES, "a little, so that it cannot stall"
    world.send(m.Flow("a", CREDIT_MAX_BYTES))
    a = world.core.connections[ANN].subscriptions["a"]
    assert a.credit == CREDIT_MAX_BYTES


def test_a_cursor_that_stopped_within_a_block_goes_on_there():
    world = ready()
    for _ in range(50):
        world.publish("t", "t")
    world.persist()
    world.subscribe(credit=60)
    for _ in range(100):
        world.send(m.Flow("s", 30))
    assert world.got() == world.wanted()


# -- peers and time -----------------------------------------------------------------------------


@pytest.mark.seed("004-41")
def test_a_peer_that_is_gone_is_forgotten_with_its_subscriptions():
    world = ready()
    world.logon(BOB)
    world.subscribe()
    world.subscribe(rid=BOB)
    world.unreachable.add(ANN)
    world.publish("t")
    world.persist()
    assert list(world.core.connections) == [BOB]
    assert world.got(rid=BOB) == world.wanted()


def test_two_heartbeats_are_sent_in_the_interval_that_was_asked_for():
    world = ready(logon=False)
    world.logon(ANN, heartbeat_s=1)
    world.logon(BOB)
    world.wake_until(1_000)
    beats = [rid for rid, answer in world.answers if isinstance(answer, m.Heartbeat)]
    assert beats == [ANN, ANN]
    world.pass_time(HEARTBEAT_MS)
    assert BOB in [rid for rid, answer in world.answers if isinstance(answer, m.Heartbeat)]


def test_two_silent_intervals_end_a_logon():
    world = ready(logon=False)
    world.logon(ANN, heartbeat_s=1)
    world.subscribe()
    world.wake_until(1_900)
    world.send(m.Heartbeat())
    world.wake_until(3_899)
    assert ANN in world.core.connections
    world.wake_until(3_900)
    assert ANN not in world.core.connections
    assert world.errors() == ["not_logged_on"]


@pytest.mark.seed("002-43")
def test_a_heartbeat_that_names_an_interval_begins_them():
    world = ready()
    world.wake_until(5_000)
    world.send(m.Heartbeat(1.0))
    world.wake_until(6_999)
    beats = [rid for rid, answer in world.answers if isinstance(answer, m.Heartbeat)]
    assert beats == [ANN] * 3
    assert ANN in world.core.connections
    world.wake_until(7_000)
    assert ANN not in world.core.connections


def test_a_heartbeat_that_names_none_ends_them():
    world = ready(logon=False)
    world.logon(ANN, heartbeat_s=1)
    world.send(m.Heartbeat(0))
    world.wake_until(HEARTBEAT_MS - 1)
    assert not [answer for _, answer in world.answers if isinstance(answer, m.Heartbeat)]
    world.wake_until(3 * HEARTBEAT_MS)
    assert ANN in world.core.connections


@pytest.mark.parametrize("interval", [-1, 3_601, "1"])
def test_an_interval_that_cannot_be_is_refused(interval):
    world = ready()
    world.frames([codec.encode({"cmd": "heartbeat", "heartbeat_s": interval})])
    assert world.errors() == ["bad_field"]


def test_a_client_that_asked_for_no_heartbeat_is_never_ended_for_silence():
    world = ready()
    for _ in range(10):
        world.pass_time(HEARTBEAT_MS * 10)
    assert ANN in world.core.connections


def test_a_peer_that_is_gone_is_noticed_by_its_heartbeat():
    world = ready()
    world.unreachable.add(ANN)
    world.pass_time(HEARTBEAT_MS)
    assert not world.core.connections


def test_the_core_sleeps_until_the_next_beat_when_no_one_is_connected():
    world = ready(logon=False)
    world.pass_time(10)
    assert world.core.next_wake_ms() == 10 + HOLDS_MS


# -- the journal --------------------------------------------------------------------------------


def test_before_the_journal_is_there_no_client_is_let_in():
    """It would take the origin of its connection before for that of what comes."""
    world = World()
    world.logon()
    assert world.errors() == ["not_ready"]
    assert not world.core.connections
    world.publish("t")
    world.persisted = world.next_position
    world.welcome()
    world.logon()
    assert world.last().origin == world.core.cursors.here
    world.subscribe()
    world.pump()
    assert world.got() == world.wanted()


def test_a_journal_that_does_not_answer_is_not_ready():
    world = ready()
    world.up = False
    world.subscribe()
    world.send(m.Ranges("r"))
    world.pass_time(PATIENCE_MS - 1)
    assert world.errors() == []
    world.pass_time(250)
    assert world.errors() == ["not_ready", "not_ready"]
    world.up = True
    world.subscribe()
    assert world.last().type == "completed"


def test_a_journal_that_died_is_asked_again():
    world = ready()
    world.up = False
    world.subscribe(bookmark="0|1|")
    world.up, world.incarnation = True, 8
    world.say_watermarks()
    assert not world.acks("processed"), "marks alone do not mean that it listens"
    world.welcome()
    assert len(world.acks("processed")) == 1


def test_a_journal_that_knows_it_no_more_is_asked_again():
    world = ready()
    world.up = False
    world.subscribe()
    world.up = True
    world.hear(UnknownRequester())
    assert not world.acks("processed"), "nothing is said before its Welcome"
    world.welcome()
    assert len(world.acks("processed")) == 1


def test_an_answer_for_a_subscription_that_is_gone_is_dropped():
    world = ready()
    world.up = False
    world.subscribe()
    world.send(m.Unsubscribe("s", "u"))
    world.up, world.incarnation = True, 8
    world.welcome()
    assert not world.acks("processed")[1:]


def test_a_cursor_after_the_new_end_of_the_log_goes_back_to_it():
    world = ready()
    for _ in range(3):
        world.publish("t")
    world.persist()
    world.subscribe()
    del world.log[1:], world.published[1:]
    world.next_position, world.sequences, world.incarnation = 2, {1: 1}, 8
    world.persist()
    assert [note.name for note in world.notes] == ["delivery.rewound"]
    world.publish("t")
    world.persist()
    assert [seen.position for seen in world.got()] == [1, 2, 3, 2]


def test_a_restart_of_the_journal_repeats_nothing():
    world = ready()
    world.subscribe()
    for incarnation in (7, 8, 9):
        world.incarnation = incarnation
        world.publish("t", "x", "t")
        world.persist()
        world.welcome()
    assert world.got() == world.wanted()
    assert world.notes == []


def test_marks_never_go_back_within_an_incarnation():
    world = ready()
    world.subscribe()
    world.publish("t")
    world.persist()
    world.persisted = 1
    world.say_watermarks()
    world.pump()
    assert len(world.got()) == 1


@pytest.mark.seed("004-46")
@pytest.mark.seed("004-81")
def test_what_is_not_durable_is_not_sent():
    world = ready()
    world.subscribe()
    world.publish("t")
    world.persist()
    world.publish("t")
    world.say_watermarks()
    world.pump()
    assert len(world.got()) == 1


# -- damage -------------------------------------------------------------------------------------


def test_a_damaged_range_is_reported_with_where_to_go_on():
    world = ready()
    world.publish("t")
    world.damage(5)
    world.publish("t")
    world.persist()
    world.subscribe()
    error = world.last()
    assert (error.code, error.sid) == ("gap", "s")
    assert "2 to 6" in error.reason
    behind = format_vector({HERE: 6})
    assert behind in error.hint
    assert [note.name for note in world.notes] == ["delivery.gap"]
    world.subscribe(bookmark=behind)
    assert [seen.position for seen in world.got()] == [1, 7]


def test_a_range_that_ends_before_the_damage_is_served():
    world = ready()
    world.publish("t")
    world.damage(5)
    world.persist()
    world.subscribe(until="1|1|")
    assert world.errors() == []
    assert len(world.acks("completed")) == 1


def test_positions_that_the_log_leaves_out_are_a_gap():
    world = ready()
    world.publish("t")
    world.next_position = 9
    world.publish("t")
    world.persist()
    world.subscribe()
    assert world.errors() == ["gap"]
    assert "2 to 8" in world.last().reason


def test_a_failed_read_ends_one_subscription_only():
    world = ready()
    world.publish("t")
    world.persist()
    world.subscribe("t|u", sid="a", regex=True, credit=0)
    world.subscribe("t|u", sid="b", regex=True, credit=0)
    for sid in ("a", "b"):
        one = world.core.connections[ANN].subscriptions[sid]
        one.credit = 1000
        world.core.cursors.wake(world.core.cursors.of[one.names.key])
    world.failing = 1
    world.pump()
    assert world.errors() == ["internal"]
    assert (len(world.got("a")), len(world.got("b"))) == (0, 1)


def test_an_empty_read_waits_for_the_next_marks():
    world = ready()
    world.publish("t")
    world.subscribe()
    world.persisted += 1
    hidden, world.log = world.log, []
    world.say_watermarks()
    world.pump()
    assert world.core.next_read() is None
    world.log = hidden
    world.say_watermarks()
    world.pump()
    assert len(world.got()) == 1


# -- ranges -------------------------------------------------------------------------------------


def test_ranges_are_planned_between_two_points():
    world = ready()
    world.publish("t", "t", "t")
    world.persist()
    world.send(m.Ranges("r", bookmark="1|1|", parts=4))
    [plan] = world.plans
    assert (plan.start.position, plan.end, plan.parts) == (2, 4, 4)
    world.hear(Planned(plan, [(2, 4, 99)]))
    answer = world.last()
    assert (answer.cid, answer.ranges, answer.instance) == ("r", [(2, 4, 99)], HERE.instance)
    assert (answer.log_start, answer.persisted, answer.generation) == (1, 4, HERE.generation)


def test_now_is_what_the_journal_says_even_if_its_marks_come_later():
    """Whoever was informed that a message is persisted finds it between epoch and now."""
    world = ready()
    world.publish("t")
    world.persist()
    world.publish("t")
    world.persisted = world.next_position
    world.send(m.Ranges("r"))
    (plan,) = world.plans
    assert (plan.end, plan.persisted) == (3, 3)
    world.hear(Planned(plan, [(1, 3, 99)]))
    assert world.last().persisted == 3


def test_ranges_of_points_that_are_not_there_are_refused():
    world = ready()
    world.send(m.Ranges("r", bookmark="4|4|"))
    world.send(m.Ranges("r", bookmark="x"))
    world.send(m.Ranges("r", topic="a(", regex=True))
    assert world.errors() == ["bookmark_not_found", "bad_bookmark", "bad_filter"]


def test_a_plan_that_failed_is_answered():
    world = ready()
    world.send(m.Ranges("r"))
    world.hear(ReadFailed(world.plans[0], StorageError("damaged", "EIO")))
    assert (world.last().code, world.last().cid) == ("internal", "r")
    assert "EIO" not in world.last().reason


def test_too_many_plans_at_a_time_are_refused():
    world = ready()
    for _ in range(PLANS_MAX + 1):
        world.send(m.Ranges("r"))
    assert world.errors() == ["too_many"]


def test_a_plan_whose_client_is_gone_is_dropped():
    world = ready()
    world.send(m.Ranges("r"))
    world.send(m.Ranges("q"))
    world.hear(Gone(ANN))
    before = len(world.answers)
    world.hear(Planned(world.plans[0], []))
    world.hear(ReadFailed(world.plans[1], StorageError("damaged", "EIO")))
    assert len(world.answers) == before
    assert world.notes == []


# -- fairness -----------------------------------------------------------------------------------


def test_a_live_subscription_waits_for_at_most_one_block_of_the_replays():
    world = ready()
    for _ in range(100):
        world.publish("t", size=50_000)
    world.persist()
    world.logon(BOB)
    world.subscribe(bookmark="0|1|", sid="live", rid=BOB)
    world.asleep = True
    for sid in "abc":
        world.subscribe(sid=sid)
    world.publish("t")
    world.persisted = world.next_position
    world.say_watermarks()
    world.pump(2)
    assert world.got("live", BOB) == world.wanted(first=101)


def test_replays_take_turns():
    world = ready()
    for _ in range(200):
        world.publish("t", size=50_000)
    world.persist()
    world.asleep = True
    for sid in "ab":
        world.subscribe("t|u", sid=sid, regex=True, credit=10 * MIB)
    world.pump()
    keys = [read.key for read in world.reads]
    assert keys[::2] == keys[:1] * len(keys[::2])
    assert max(read.max_bytes for read in world.reads) == BLOCK_MAX_BYTES
    assert world.got("a") == world.got("b") == world.wanted()


def test_live_subscriptions_do_not_keep_a_replay_waiting():
    world = ready()
    for _ in range(40):
        world.publish("t", size=50_000)
    world.persist()
    world.subscribe(bookmark="0|1|", sid="live", credit=10 * MIB)
    world.asleep = True
    world.subscribe(sid="replay", credit=10 * MIB)
    for _ in range(40):
        world.publish("t", size=50_000)
    world.persisted = world.next_position
    world.say_watermarks()
    world.pump(4)
    assert world.got("live")
    assert world.got("replay")


# -- a generation that begins while it runs ---------------------------------------------------


def test_a_subscription_begins_in_the_generation_that_has_begun_meanwhile():
    """A client takes positions for those of the logon's answer: `now` would lead back to where that
    generation ended."""
    world = ready()
    world.publish("t")
    world.persist()
    world.generation += 1
    world.say_watermarks()
    world.subscribe()
    [ack] = world.acks("processed")
    assert ack.origin == tuple(HERE._replace(generation=world.generation))
    assert world.core.origin() == HERE, "what all clients of this process were answered"


def test_an_older_welcome_does_not_take_a_generation_back():
    world = ready()
    world.generation += 1
    world.say_watermarks()
    world.generation -= 1
    world.say_watermarks()
    assert world.core.cursors.here == HERE._replace(generation=world.generation + 1)
