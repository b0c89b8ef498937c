"""The publishing link's core, step by step. The histories no one thought of: test_histories.py."""

from __future__ import annotations

import pytest

from tests.client.times import at
from zbroker.client import connection
from zbroker.client.connection import Phase
from zbroker.client.effects import (
    Connect,
    Connected,
    ConnectionLost,
    Ended,
    LogonAccepted,
    Lost,
    MessagesRefused,
    SendCommand,
)
from zbroker.client.publisher import core as c
from zbroker.client.publisher import send_window
from zbroker.client.publisher.core import PublisherCore
from zbroker.client.publisher.packer import PackedBatch
from zbroker.client.publisher.send_window import SendWindow
from zbroker.client.publisher.store import MemoryStore
from zbroker.errors import Unavailable
from zbroker.wire.messages import Ack, Error, Heartbeat, Logoff, Logon, Publish

START = 1_000


def make(heartbeat_s=None):
    return PublisherCore(Logon("me", "i", heartbeat_s=heartbeat_s), START, lambda: 1.0)


def batch(count=1, size=10):
    return PackedBatch(count, b"x" * size, 7, "t", None, None)


def logon_of(effects):
    (send,) = effects
    assert isinstance(send.command, Logon)
    return send.command.cid


def accept(core, cid, now, seq=0, acked=0, window=1_000):
    return core.handle(
        Ack("processed", cid, seq=seq, acked=acked, window_bytes=window, origin=(1, 1)), at(now)
    )


def live(now=0, seq=0, acked=0, window=1_000, heartbeat_s=None):
    core = make(heartbeat_s)
    assert core.tick(at(now), drained=True) == [Connect()]
    cid = logon_of(core.handle(Connected(), at(now)))
    effects = accept(core, cid, now, seq, acked, window)
    assert isinstance(effects[0], LogonAccepted)
    assert core.state is Phase.LIVE
    return core


def relogged(core, now, seq, acked=0):
    """The link is lost and comes back; what is sent then."""
    assert core.handle(Lost(), at(now)) == [ConnectionLost(), Connect()]
    cid = logon_of(core.handle(Connected(), at(now)))
    return accept(core, cid, now, seq, acked)


def sent(effects):
    """(first sequence, prev, round) of each publish among `effects`."""
    publishes = [e.command for e in effects if isinstance(e, SendCommand)]
    return [(p.seq, p.prev, int(p.cid)) for p in publishes if isinstance(p, Publish)]


def refuse(code, seq, cid, high=None):
    return Error(code, "why", seq=seq, cid=str(cid), high=high)


def persisted(seq):
    return Ack("persisted", seq=seq)


def resent(effects):
    """Of each publish whether it says that a broker may have it."""
    publishes = [e.command for e in effects if isinstance(e, SendCommand)]
    return [p.resent for p in publishes if isinstance(p, Publish)]


# -- logon and numbering ----------------------------------------------------------------------


def test_a_fresh_store_numbers_from_the_clock():
    core = live(seq=5)
    assert sent(core.add(batch(3), 0)) == [(START, 5, 1)]
    assert sent(core.add(batch(), 0)) == [(START + 3, START + 2, 1)]


@pytest.mark.seed("002-12")
def test_a_fresh_store_numbers_above_what_the_journal_holds():
    core = live(seq=5_000, acked=5_000)
    assert sent(core.add(batch(), 0)) == [(5_001, 5_000, 1)]


@pytest.mark.seed("002-09")
@pytest.mark.seed("004-16")
def test_a_publish_says_all_that_the_broker_needs():
    core = live()
    (send,) = core.add(batch(), 0)
    publish = send.command
    assert (publish.count, publish.crc, publish.ack, publish.topic) == (1, 7, ["persisted"], "t")
    assert send.body == b"x" * 10


def test_nothing_is_sent_before_the_logon_is_answered():
    core = make()
    assert core.add(batch(), 0) == []
    core.tick(at(0), drained=True)
    core.handle(Connected(), at(0))
    assert core.add(batch(), 0) == []


def test_a_new_session_says_of_what_was_sent_that_a_broker_may_have_it():
    core = live(window=15)
    assert resent(core.add(batch(), 0)) == [False]
    assert resent(core.add(batch(), 0)) == [], "the window is used up"
    assert resent(relogged(core, 5_000, seq=0)) == [True, False]
    again = core.handle(refuse("disk_full", START, 2), at(5_000)) + core.tick(
        at(5_050), drained=True
    )
    assert resent(again) == [True], "a refusal for now changes nothing"


def test_what_another_process_left_in_a_store_may_be_at_a_broker():
    store = MemoryStore()
    store.next_sequence = START
    before = SendWindow(store, START, lambda: 1.0)
    before.add(batch())
    core = PublisherCore(Logon("me", "i"), START, lambda: 1.0, store)
    core.tick(at(0), drained=True)
    cid = logon_of(core.handle(Connected(), at(0)))
    assert resent(accept(core, cid, 0)) == [True]
    assert resent(core.add(batch(), 0)) == [False]


def test_a_message_that_a_full_queue_refused_is_not_sent_again():
    core = live()
    core.add(batch(), 0)
    effects = core.handle(refuse("queue_full", START, 1), at(0))
    assert [(e.first, e.error.code) for e in effects if isinstance(e, MessagesRefused)] == [
        (START, "queue_full")
    ]
    assert isinstance(effects[0].error, Unavailable)
    assert sent(core.add(batch(), 0)) == [(START + 1, 0, 2)]


@pytest.mark.seed("002-06")
def test_a_new_logon_discards_what_is_acked():
    core = live()
    core.add(batch(2), 0)
    core.add(batch(2), 0)
    assert sent(relogged(core, 5_000, seq=START + 3, acked=START + 1)) == [
        (START + 2, START + 1, 2)
    ]
    assert core.settled == START + 1


@pytest.mark.seed("002-16")
def test_the_first_batch_of_a_session_follows_what_the_journal_holds():
    core = live()
    core.add(batch(), 0)
    core.add(batch(), 0)
    core.handle(persisted(START), at(0))
    assert sent(relogged(core, 5_000, seq=START))[0] == (START + 1, START, 2)


def test_a_name_that_was_used_elsewhere_meanwhile_is_numbered_on():
    core = live()
    core.add(batch(), 0)
    core.handle(persisted(START), at(0))
    relogged(core, 5_000, seq=9_000, acked=9_000)
    assert sent(core.add(batch(), 5_000)) == [(9_001, START, 2)]


@pytest.mark.seed("002-23")
def test_a_name_that_was_used_elsewhere_with_messages_waiting_ends_the_client():
    core = live()
    core.add(batch(), 0)
    (effect,) = relogged(core, 5_000, seq=9_000)
    assert isinstance(effect, Ended)
    assert effect.error.code == "session_ended"
    assert "9000" in effect.error.reason


def test_a_broker_that_lost_acknowledged_messages_is_a_loud_error():
    core = live()
    core.add(batch(), 0)
    core.handle(persisted(START), at(0))
    (effect,) = relogged(core, 5_000, seq=START - 1)
    assert effect.error.code == "broker_behind"
    assert str(START) in effect.error.reason
    assert str(START - 1) in effect.error.reason
    assert core.state is Phase.ENDED


def test_a_refused_logon_ends_the_client():
    core = make()
    core.tick(at(0), drained=True)
    cid = logon_of(core.handle(Connected(), at(0)))
    (effect,) = core.handle(Error("name_in_use", "taken", cid=cid), at(0))
    assert effect.error.code == "name_in_use"


def test_a_broker_that_is_not_ready_is_asked_again():
    core = make()
    core.tick(at(0), drained=True)
    cid = logon_of(core.handle(Connected(), at(0)))
    assert core.handle(Error("not_ready", "starting", cid=cid), at(0)) == []
    assert core.next_wake_ms() == 200
    assert core.tick(at(200), drained=True) == [Connect()]
    assert core.refusal.code == "not_ready"


def test_an_answer_to_an_older_logon_is_not_taken():
    core = make()
    core.tick(at(0), drained=True)
    old = logon_of(core.handle(Connected(), at(0)))
    core.tick(at(c.ANSWER_MS), drained=True)
    core.tick(at(c.ANSWER_MS + 200), drained=True)
    core.handle(Connected(), at(3_000))
    assert accept(core, old, 3_000) == []
    assert core.state is Phase.LOGON_SENT


# -- connecting again -------------------------------------------------------------------------


def test_a_link_that_was_good_is_connected_again_at_once():
    core = live()
    assert core.handle(Lost(), at(connection.SETTLED_MS)) == [ConnectionLost(), Connect()]


def test_a_link_that_keeps_failing_is_tried_more_and_more_rarely():
    core = live()
    now, delays = 0, []
    core.handle(Lost(), at(now))
    for _ in range(9):
        delays.append(core.next_wake_ms() - now)
        now = core.next_wake_ms()
        assert core.tick(at(now), drained=True) == [Connect()]
        core.handle(Connected(), at(now))
        now += c.ANSWER_MS
        core.tick(at(now), drained=True)
    assert delays == [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 20_000, 20_000]


def test_a_connection_that_does_not_come_about_is_begun_again():
    core = make()
    core.tick(at(0), drained=True)
    assert core.tick(at(connection.CONNECT_MS - 1), drained=True) == []
    assert core.tick(at(connection.CONNECT_MS), drained=True) == [Connect()]


def test_a_connection_that_the_broker_does_not_know_logs_on_again_on_the_same_socket():
    core = live()
    core.add(batch(), 0)
    cid = logon_of(core.handle(Error("not_logged_on", "who?"), at(1)))
    assert sent(accept(core, cid, 2)) == [(START, 0, 2)]


def test_a_replaced_session_does_not_come_back_by_itself():
    core = live()
    (effect,) = core.handle(Error("session_ended", "taken over"), at(0))
    assert effect.error.code == "session_ended"
    assert core.handle(Lost(), at(0)) == []
    assert core.next_wake_ms() is None


def test_logging_on_again_for_a_token_sends_what_is_not_acked():
    core = live()
    core.add(batch(), 0)
    cid = logon_of(core.log_on_again(5))
    assert sent(accept(core, cid, 6, seq=START)) == [(START, 0, 2)]


def test_logging_off_frees_the_name():
    core = live()
    assert core.log_off() == [SendCommand(Logoff())]
    assert make().log_off() == []


# -- window and acks --------------------------------------------------------------------------


@pytest.mark.seed("004-20")
def test_the_window_bounds_what_is_under_way():
    core = live(window=25)
    assert [len(sent(core.add(batch(), 0))) for _ in range(4)] == [1, 1, 0, 0]
    assert not core.can_send
    assert sent(core.handle(persisted(START), at(0))) == [(START + 2, START + 1, 1)]
    assert sent(core.handle(persisted(START + 2), at(0))) == [(START + 3, START + 2, 1)]


def test_a_batch_that_is_not_full_waits_while_one_is_unacknowledged():
    core = live()
    assert core.can_send
    core.add(batch(), 0)
    assert not core.can_send
    assert sent(core.add(batch(), 0)) == [(START + 1, START, 1)], "a full one goes all the same"
    core.handle(persisted(START), at(0))
    assert not core.can_send
    core.handle(persisted(START + 1), at(0))
    assert core.can_send


def test_a_distant_broker_gets_a_batch_each_ms_of_its_round_trip():
    core = live()
    core.add(batch(), 0)
    core.handle(persisted(START), at(50))
    for number in range(51):
        assert core.can_send, number
        core.add(batch(), 50)
    assert not core.can_send


def test_the_quickest_ack_counts_for_a_while():
    quickest = send_window.QuickestAck()
    assert quickest.ms == 0
    quickest.note(50, 0)
    quickest.note(5, 1)
    quickest.note(70, 2)
    assert quickest.ms == 5
    quickest.note(60, send_window.QUICKEST_MS)
    assert quickest.ms == 5, "the seconds before count too"
    quickest.note(80, 2 * send_window.QUICKEST_MS)
    assert quickest.ms == 60


def test_a_batch_larger_than_the_window_goes_alone():
    core = live(window=25)
    assert len(sent(core.add(batch(size=100), 0))) == 1
    assert sent(core.add(batch(), 0)) == []
    assert len(sent(core.handle(persisted(START), at(0)))) == 1


@pytest.mark.seed("002-01")
@pytest.mark.seed("002-24")
@pytest.mark.seed("004-19")
@pytest.mark.seed("004-21")
def test_an_ack_settles_everything_up_to_it():
    core = live()
    for _ in range(3):
        core.add(batch(2), 0)
    core.handle(persisted(START + 3), at(0))
    assert (core.settled, len(core.store.batches)) == (START + 3, 1)


@pytest.mark.seed("004-21")
def test_an_ack_into_the_middle_of_a_batch_keeps_it():
    core = live()
    core.add(batch(4), 0)
    core.handle(persisted(START + 1), at(0))
    assert core.settled == START - 1


# -- refusals ---------------------------------------------------------------------------------


def three():
    core = live()
    for _ in range(3):
        core.add(batch(), 0)
    return core


def test_a_gap_goes_back_to_what_the_journal_lacks():
    core = three()
    assert sent(core.handle(refuse("sequence_gap", START + 2, 1, high=START), at(0))) == [
        (START + 1, START, 2),
        (START + 2, START + 1, 2),
    ]


def test_one_refusal_starts_one_new_round():
    core = three()
    core.handle(refuse("sequence_gap", START + 1, 1, high=START), at(0))
    assert core.handle(refuse("sequence_gap", START + 2, 1, high=START), at(0)) == []


def test_going_back_in_vain_waits_before_the_next_time():
    core = three()
    core.handle(refuse("sequence_gap", START + 1, 1, high=START), at(0))
    assert core.handle(refuse("sequence_gap", START + 1, 2, high=START), at(0)) == []
    assert core.next_wake_ms() == 50
    assert sent(core.tick(at(50), drained=True)) == [(START + 1, START, 3)]


def test_a_gap_below_what_was_acked_is_a_loud_error():
    core = three()
    core.handle(persisted(START), at(0))
    (effect,) = core.handle(refuse("sequence_gap", START + 1, 1, high=START - 1), at(0))
    assert effect.error.code == "broker_behind"


@pytest.mark.parametrize("code", ["disk_full", "not_ready", "window_full"])
def test_after_a_temporary_refusal_the_same_sequence_comes_again(code):
    core = three()
    assert core.handle(refuse(code, START + 1, 1), at(0)) == []
    assert core.handle(refuse("sequence_gap", START + 2, 1, high=START), at(0)) == []
    assert core.add(batch(), 0) == []
    assert sent(core.tick(at(50), drained=True)) == [(START + 1, START, 2)]
    assert sent(core.handle(persisted(START + 1), at(60))) == [
        (START + 2, START + 1, 2),
        (START + 3, START + 2, 2),
    ]


def test_while_the_disk_is_full_one_batch_asks_again_and_nothing_is_sent_after_it():
    core = three()
    now, asked = 0, []
    for round_ in range(1, 30):
        assert core.handle(refuse("disk_full", START, round_), at(now)) == []
        assert core.add(batch(), now) == []
        assert not core.can_send
        now = core.next_wake_ms()
        asked += sent(core.tick(at(now), drained=True))
        assert core.settled == START - 1
    assert asked == [(START, 0, round_) for round_ in range(2, 31)]
    assert now == 50 + 100 + 200 + 400 + 800 + 24 * 1_000
    assert [first for first, _, _ in sent(core.handle(persisted(START), at(now)))] == list(
        range(START + 1, START + 32)
    )


def test_temporary_refusals_are_tried_more_rarely():
    core = three()
    now, delays = 0, []
    for attempt in range(7):
        core.handle(refuse("disk_full", START, attempt + 1), at(now))
        delays.append(core.next_wake_ms() - now)
        now += delays[-1]
        core.tick(at(now), drained=True)
    assert delays == [50, 100, 200, 400, 800, 1_000, 1_000]


@pytest.mark.seed("002-31")
def test_a_final_refusal_gives_up_that_batch_only():
    core = three()
    refused, *rest = core.handle(refuse("bad_topic", START + 1, 1), at(0))
    assert isinstance(refused, MessagesRefused)
    assert (refused.first, refused.last, refused.error.code) == (START + 1, START + 1, "bad_topic")
    assert sent(rest) == [(START + 2, START, 2)]


@pytest.mark.seed("002-08")
@pytest.mark.seed("004-16")
def test_a_finally_refused_sequence_is_never_used_again():
    core = live()
    core.add(batch(), 0)
    core.add(batch(), 0)
    core.handle(refuse("too_large", START + 1, 1), at(0))
    assert sent(core.add(batch(), 0)) == [(START + 2, START, 2)]


def test_a_refusal_of_what_went_before_is_heard_after_one_of_what_came_later():
    core = three()
    core.handle(refuse("bad_topic", START + 2, 1), at(0))
    assert core.handle(refuse("disk_full", START, 1), at(0)) == []
    assert sent(core.tick(at(50), drained=True)) == [(START, 0, 3)]
    assert sent(core.handle(persisted(START), at(60))) == [(START + 1, START, 3)]


def test_a_refusal_without_a_sequence_starts_again_from_the_oldest():
    core = three()
    core.handle(Error("internal", "oops", cid="1"), at(0))
    assert sent(core.tick(at(50), drained=True)) == [(START, 0, 2)]


def test_a_refusal_of_what_is_not_kept_any_more_is_skipped():
    core = three()
    core.handle(persisted(START + 2), at(0))
    assert core.handle(refuse("bad_topic", START, 1), at(0)) == []


def test_a_refusal_that_names_no_send_and_nothing_kept_is_skipped():
    core = three()
    core.handle(persisted(START), at(0))
    assert core.handle(Error("bad_topic", "why", seq=START), at(0)) == []


def test_an_ack_is_heard_while_sending_waits():
    core = three()
    core.handle(refuse("disk_full", START, 1), at(0))
    core.handle(persisted(START + 1), at(0))
    assert sent(core.tick(at(50), drained=True)) == [(START + 2, START + 1, 2)]


def test_a_gap_when_nothing_is_left_to_send_changes_nothing():
    core = three()
    assert core.handle(refuse("sequence_gap", START + 2, 1, high=START + 2), at(0)) == []
    assert len(core.store.batches) == 3


# -- time -------------------------------------------------------------------------------------


def test_a_heartbeat_goes_out_while_something_is_unacknowledged():
    core = live()
    assert core.next_wake_ms() is None
    core.add(batch(), 0)
    assert core.tick(at(core.next_wake_ms()), drained=True) == [SendCommand(Heartbeat())]
    core.handle(persisted(START), at(1_500))
    assert core.next_wake_ms() is None


def test_an_idle_client_that_promised_heartbeats_sends_them_in_time():
    core = live(heartbeat_s=4)
    assert core.next_wake_ms() == 2_000
    assert core.tick(at(2_000), drained=True) == [SendCommand(Heartbeat())]


def until_lost(core, now):
    """Ticks when it wants to be woken; when it gave the broker up."""
    while Connect() not in core.tick(at(now), drained=True):
        now = core.next_wake_ms()
        assert now <= 100_000
    return now


def test_a_broker_that_is_silent_for_two_intervals_is_left():
    core = live(heartbeat_s=1)
    core.tick(at(0), drained=True)
    core.handle(Heartbeat(), at(400))
    assert until_lost(core, 400) == 2_400


def test_a_client_that_was_stopped_first_hears_what_came_meanwhile():
    core = live(heartbeat_s=1)
    core.tick(at(0), drained=True)
    assert Connect() not in core.tick(at(60_000), drained=True)
    assert until_lost(core, 60_000) == 62_000


def test_without_heartbeats_a_broker_may_be_silent_for_ever():
    core = live()
    core.tick(at(0), drained=True)
    assert (core.next_wake_ms(), core.tick(at(10_000_000), drained=True)) == (None, [])


def test_a_broker_that_hears_nothing_gets_a_new_connection():
    core = live(heartbeat_s=1, now=0)
    reported = Error("not_logged_on", "nothing was heard for two heartbeats")
    assert core.handle(reported, at(5_000)) == [ConnectionLost(), Connect()]


def test_without_progress_the_newest_sent_batch_has_its_answer_given_again():
    core = three()
    assert sent(core.tick(at(send_window.PROBE_MS - 1), drained=True)) == []
    assert sent(core.tick(at(send_window.PROBE_MS), drained=True)) == [(START + 2, START + 1, 1)]
    assert sent(core.tick(at(send_window.PROBE_MS + 1), drained=True)) == []


# -- topics that are not recorded -------------------------------------------------------------


def unrecorded(seq, *topics):
    return Ack("processed", seq=seq, unrecorded=list(topics))


def test_what_is_not_recorded_is_settled_by_its_own_ack():
    core = three()
    core.handle(persisted(START), at(0))
    core.handle(unrecorded(START + 2, "t"), at(0))
    assert (core.settled, len(core.store.batches)) == (START + 2, 0)
    assert core.unrecorded.topics == {"t"}


def test_an_answer_that_a_publish_was_checked_settles_nothing():
    core = three()
    core.handle(Ack("processed", "1", seq=START + 2), at(0))
    assert core.settled == START - 1


def test_a_log_that_does_not_hold_unrecorded_messages_has_lost_nothing():
    core = live()
    core.add(batch(), 0)
    core.handle(persisted(START), at(0))
    core.add(batch(5), 0)
    core.handle(unrecorded(START + 5, "t"), at(0))
    relogged(core, 5_000, seq=START, acked=START)
    assert core.state is Phase.LIVE
    assert sent(core.add(batch(), 5_000)) == [(START + 6, START, 2)]
    assert relogged(core, 9_000, seq=START - 1)[0].error.code == "broker_behind"


def test_a_gap_below_unrecorded_messages_goes_back_to_what_is_kept():
    core = three()
    core.handle(unrecorded(START, "t"), at(0))
    assert sent(core.handle(refuse("sequence_gap", START + 1, 1, high=5), at(0))) == [
        (START + 1, 5, 2),
        (START + 2, START + 1, 2),
    ]


def test_where_not_everything_is_recorded_a_new_session_sends_all_that_has_no_answer():
    core = live()
    core.add(batch(), 0)
    core.add(batch(), 0)
    assert core.handle(Lost(), at(5_000)) == [ConnectionLost(), Connect()]
    cid = logon_of(core.handle(Connected(), at(5_000)))
    answer = Ack("processed", cid, seq=START + 1, acked=START + 1, recording="some")
    assert sent(core.handle(answer, at(5_000))) == [(START, 0, 2), (START + 1, START, 2)]


def test_a_topic_that_is_recorded_after_a_restart_of_the_broker_is_known_again():
    core = live()
    core.add(batch(), 0)
    core.handle(unrecorded(START, "t", "u"), at(0))
    relogged(core, 5_000, seq=0)
    core.add(batch(), 5_000)
    assert core.unrecorded.topics == {"t", "u"}, "nothing new is known"
    core.handle(persisted(START + 1), at(5_000))
    assert core.unrecorded.topics == {"u"}
