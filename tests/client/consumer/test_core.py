"""The core of a consumer: what it asks, hands out, settles, and does after a loss."""

from __future__ import annotations

import pytest

from tests.client.consumer.listener_model import QueueListener
from tests.client.consumer.wired import ACK, EXTEND, HERE, Verb, Wired, ends, the
from tests.client.times import at
from zbroker.client.connection import ANSWER_MS, REFUSED_MS, Phase
from zbroker.client.consumer.settlement import AGAIN_MS, RUNS_MAX
from zbroker.client.effects import Connect, Lost, MessagesArrived
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin
from zbroker.wire import consumer_credit as v
from zbroker.wire import messages as m
from zbroker.wire import queue_messages as q


def positions(messages):
    return [message._at for message in messages]


# -- asking ---------------------------------------------------------------------------------------


def test_it_asks_what_it_was_given():
    world = Wired(backlog=5, filter="/a > 1", credit=77)
    world.connect()
    world.talk()
    asked = the(world.asked(q.Consume))
    assert (asked.queue, asked.backlog, asked.filter, asked.credit) == ("work", 5, "/a > 1", 77)
    assert (asked.holding, asked.generation, asked.since) == ([], None, None)
    assert (world.core.backlog, world.core.lease_ms) == (5, 1_000)


def test_messages_are_handed_out_as_they_came():
    world = Wired().live(3)
    assert positions(world.out(1)) == [1]
    assert positions(world.out()) == [2, 3]
    assert world.out() == []
    assert set(world.core.held.leased) == {1, 2, 3}


def test_a_refusal_ends_it():
    world = Wired()
    world.listener.code = "not_entitled"
    world.connect()
    world.talk()
    assert (world.core.error.code, world.core.state) == ("not_entitled", Phase.ENDED)
    with pytest.raises(ZBrokerError, match="not_entitled"):
        world.settle(ACK, [])


def test_a_listener_that_is_not_ready_is_asked_again():
    world = Wired()
    world.listener.code = "not_ready"
    world.connect()
    world.talk()
    assert world.core.error is None
    world.connect()
    world.talk()
    assert world.core.live


def test_an_error_with_its_sid_ends_it_with_what_waits():
    world = Wired().live(3)
    world.out(1)
    world.perform(world.core.handle(m.Error("internal", "gone", sid="c1"), at(0)))
    assert (world.core.error.code, world.core.ready, len(world.core.held)) == ("internal", False, 0)
    world.talk()
    assert not world.listener.takers


def test_an_error_about_something_else_is_nothing():
    world = Wired().live(1)
    world.core.handle(m.Error("unknown_sid", "?", cid="nobody"), at(0))
    world.core.handle(m.Error("internal", "?", sid="c99"), at(0))
    assert world.core.error is None


def test_a_batch_that_was_changed_on_its_way_ends_it():
    world = Wired().live()
    world.perform(
        world.core.handle(
            MessagesArrived(q.Job("c1", 1, 1, 0, 2, 1, topic="t"), b"\x91\xc4\x00"), at(0)
        )
    )
    assert world.core.error.code == "bad_frame"
    world.talk()
    assert not world.listener.takers


@pytest.mark.parametrize(
    "column", [{"deliveries": b"\x01"}, {"acked": b"\x01\x01"}, {"acked": b""}]
)
def test_columns_that_do_not_fit_are_a_bad_frame(column):
    world = Wired().live()
    job = q.Job("c1", 1, 1, 0, 1, 1, topic="t", **column)
    world.perform(world.core.handle(MessagesArrived(job, b"\x91\xc4\x00"), at(0)))
    assert world.core.error.code == "bad_frame"


def test_a_batch_for_another_sid_is_left():
    world = Wired().live()
    world.core.handle(
        MessagesArrived(q.Job("c9", 1, 1, 0, 1, 1, topic="t"), b"\x91\xc4\x00"), at(0)
    )
    assert not world.core.ready


# -- settling -------------------------------------------------------------------------------------


def test_acks_that_pile_up_go_as_one_command_of_runs():
    world = Wired().live(8)
    messages = world.out()
    for message in [*messages[:3], *messages[5:]]:
        message.ack()
    world.talk(commit=False)
    asked = the(world.asked(q.Settle))
    assert (asked.ends, asked.sid, asked.generation) == (ends((1, 4), (6, 9)), "c1", 1)
    assert asked.queue == "work", "so that it counts also when the consumer has ended there"
    assert len(world.core.settling) == 6
    world.talk()
    assert len(world.core.settling) == 0
    assert set(world.listener.gone) == {1, 2, 3, 6, 7, 8}


def test_what_is_acked_while_an_answer_is_awaited_goes_with_the_next_command():
    world = Wired().live(4)
    messages = world.out()
    messages[0].ack()
    world.talk(commit=False)
    messages[1].ack()
    messages[2].ack()
    world.talk(commit=False)
    assert [each.ends for each in world.asked(q.Settle)] == [[1, 2], [2, 4]]


def test_more_runs_than_a_header_holds_take_several_commands():
    count = 2 * (RUNS_MAX + 1)
    world = Wired(QueueListener(backlog=10_000), backlog=10_000, credit=1 << 20).live(count)
    world.core.settle(ACK, world.out()[::2], 0)
    world.talk()
    assert [len(each.ends) for each in world.asked(q.Settle)] == [2 * RUNS_MAX, 2]
    assert len(world.listener.gone) == count // 2


def test_a_message_is_settled_once():
    world = Wired().live(2)
    first, second = world.out()
    first.ack()
    first.ack()
    first.release()
    second.reject("bad")
    second.ack()
    world.talk()
    assert world.listener.gone == {1: "acked", 2: "rejected"}
    assert len(world.listener.commands) == 2


def test_a_release_brings_it_back_after_its_delay():
    world = Wired().live(1)
    the(world.out()).release("2s")
    world.talk()
    assert world.listener.released == [(1, 2_000)]
    world.listener.offer()
    world.talk()
    again = the(world.out())
    assert (again._at, again.deliveries, again.redelivered) == (1, 2, True)


def test_leaving_a_message_acks_it():
    world = Wired().live(1)
    with the(world.out()) as message:
        assert not message.redelivered
    world.talk()
    assert world.listener.gone == {1: "acked"}


def test_leaving_a_message_by_an_exception_releases_it():
    world = Wired().live(1)
    with pytest.raises(KeyError), the(world.out()):
        raise KeyError
    world.talk()
    assert world.listener.released == [(1, 0)]


def test_leaving_a_message_by_an_exception_of_a_consumer_that_ended_keeps_the_exception():
    world = Wired().live(1)
    message = the(world.out())
    world.core.leave(0)
    with pytest.raises(KeyError), message:
        raise KeyError
    with pytest.raises(ZBrokerError, match="closed"), message:
        pass


def test_a_barrier_needs_no_ack():
    world = Wired().live()
    job = q.Job("c1", 1, 1, 0, 1, 1, topic="t", barrier=True)
    world.core.handle(MessagesArrived(job, b"\x91\xc4\x00"), at(0))
    message = the(world.out())
    assert message.barrier
    message.ack()
    world.talk()
    assert world.listener.commands == []
    assert world.again().holding == []


def test_a_refusal_that_does_not_last_is_tried_again():
    world = Wired().live(1)
    world.listener.code = "disk_full"
    the(world.out()).ack()
    world.talk()
    assert world.core.settling
    assert world.core.error is None
    world.pass_time(AGAIN_MS)
    world.talk()
    assert world.listener.gone == {1: "acked"}


def test_a_final_refusal_is_kept_for_who_waits():
    world = Wired().live(1)
    world.listener.code = "not_entitled"
    the(world.out()).ack()
    world.talk()
    assert world.core.settling.refusal.code == "not_entitled"
    assert (world.core.error, len(world.core.settling)) == (None, 0)


def test_who_waits_waits_for_what_was_asked_before_only():
    world = Wired().live(2)
    settling = world.core.settling
    first, second = world.out()
    first.ack()
    number = settling.number
    world.talk(commit=False)
    second.ack()
    assert not settling.through(number)
    world.talk(commit=False)
    world.listener.commit()
    world.take()
    assert settling.through(number)
    assert not settling.through(settling.number)


# -- leases ---------------------------------------------------------------------------------------


def test_all_that_is_not_settled_is_extended_at_half_of_the_lease():
    world = Wired().live(4)
    first, *_ = world.out(2)
    first.ack()
    world.talk()
    assert world.core.next_wake_ms() == world.now + 500
    world.pass_time(499)
    world.talk()
    assert world.asked(q.Extend) == []
    world.pass_time(1)
    world.talk()
    extend = the(world.asked(q.Extend))
    assert (extend.ends, extend.lease_ms) == ([2, 5], 0)
    for _ in range(10):
        world.pass_time(400)
        world.talk()
    assert not any(lease.why for lease in world.listener.sent.values() if lease.position > 1)


def test_without_messages_nothing_is_extended():
    world = Wired().live(1)
    the(world.out()).ack()
    world.talk()
    world.pass_time(5_000)
    world.talk()
    assert world.asked(q.Extend) == []
    assert world.core.next_wake_ms() is None


def test_leases_that_last_for_ever_are_not_extended():
    world = Wired(QueueListener(lease_ms=0)).live(1)
    assert world.core.next_wake_ms() is None
    world.listener.now += 10**9
    assert positions(world.out()) == [1]


def test_a_lease_of_the_programs_own_is_not_made_shorter():
    world = Wired().live(2)
    first, second = world.out()
    first.extend("10s")
    world.talk()
    extend = the(world.asked(q.Extend))
    assert (extend.ends, extend.lease_ms) == ([1, 2], 10_000)
    for _ in range(8):
        world.pass_time(500)
        world.talk()
    assert all(each.ends == [2, 3] for each in world.asked(q.Extend)[1:])
    second.ack()
    for _ in range(20):
        world.pass_time(500)
        world.talk()
    assert world.asked(q.Extend)[-1].ends == [1, 2], "it goes on when its own is nearly over"
    assert not world.listener.takers[world.peer, "c1"].leases[1].why


def test_extending_by_hand_is_for_what_is_in_hand():
    world = Wired().live(2)
    first = the(world.out(1))
    first.ack()
    first.extend()
    world.talk()
    assert world.asked(q.Extend) == []


def test_what_waits_is_not_handed_out_when_its_lease_is_over():
    world = Wired().live(2)
    taken = world.out(1)
    world.listener.pass_time(1_000)  # the process was stopped: nothing was extended
    assert world.out() == []
    assert positions(taken) == [1]
    assert set(world.core.held.leased) == {1}
    world.listener.offer()
    world.talk()
    assert positions(world.out()) == [2], "1 has a lease again, and the program has it already"


def test_an_extension_counts_once_it_is_answered():
    world = Wired().live(1)
    world.pass_time(500)
    world.send()
    world.listener.pass_time(500)
    assert world.out() == []
    other = Wired().live(1)
    other.pass_time(500)
    other.talk()
    other.listener.pass_time(999)
    assert positions(other.out()) == [1]


def test_an_extension_without_an_answer_costs_the_connection():
    world = Wired().live(1)
    world.pass_time(500)
    world.send()
    world.listener.pass_time(ANSWER_MS)
    assert world.core.tick(at(world.now), drained=True) == [Connect()]


def test_an_ack_may_take_as_long_as_the_disk_is_full():
    world = Wired(QueueListener(lease_ms=0)).live(1)
    the(world.out()).ack()
    world.talk(commit=False)
    world.listener.pass_time(10 * ANSWER_MS)
    assert world.core.tick(at(world.now), drained=True) == []
    world.talk()
    assert world.listener.gone == {1: "acked"}


# -- reconnecting ---------------------------------------------------------------------------------


def test_after_a_loss_it_says_what_it_holds():
    world = Wired(backlog=7).live(4)
    world.out(2)[0].ack()
    asked = world.again()
    assert (asked.holding, asked.generation, asked.backlog) == ([1, 5], 1, 7)
    assert set(world.core.held.leased) == {2, 3, 4}
    assert world.listener.gone == {1: "acked"}
    assert world.reported == 1
    assert positions(world.out()) == [3, 4]


def test_what_waits_is_handed_out_only_when_the_broker_has_said_what_it_keeps():
    world = Wired().live(2)
    world.lose()
    assert world.out() == []
    world.connect()
    assert world.out() == []
    world.talk()
    assert positions(world.out()) == [1, 2]


def test_what_is_not_kept_is_dropped_unless_it_was_handed_out():
    world = Wired().live(4)
    first, second = world.out(2)
    world.lose()
    for lease in world.listener.orphans[1:3]:
        lease.why = "time"
    world.connect()
    world.talk()
    assert positions(world.out()) == [4]
    assert set(world.core.held.leased) == {1, 4}
    world.pass_time(500)
    world.talk()
    assert world.asked(q.Extend)[-1].ends == [1, 2, 4, 5]
    second.ack()
    first.ack()
    world.talk()
    assert world.listener.gone == {1: "acked", 2: "acked"}, "an ack counts whoever has the lease"


@pytest.mark.parametrize("verb", ["release", "reject"])
def test_what_is_not_kept_cannot_be_given_back(verb):
    world = Wired().live(1)
    message = the(world.out())
    world.lose()
    world.listener.orphans[0].why = "time"
    world.connect()
    world.talk()
    getattr(message, verb)()
    world.talk()
    assert (world.listener.released, world.listener.gone) == ([], {})


def test_an_ack_is_sent_again_until_it_is_settled():
    world = Wired().live(1)
    the(world.out()).ack()
    world.talk(commit=False)
    world.listener.pending.clear()  # it never got to the disk
    asked = world.again()
    assert asked.holding == [1, 2]
    assert world.listener.gone == {1: "acked"}


def test_a_release_is_sent_again_only_if_it_was_not_done():
    for done in (False, True):
        world = Wired().live(1)
        the(world.out()).release()
        world.talk(commit=False)
        if done:
            world.listener.commit()
        world.listener.pending.clear()
        world.again()
        assert world.listener.released == [(1, 0)], done


def test_a_message_that_comes_again_while_its_ack_is_under_way_is_not_handed_out():
    world = Wired().live(1)
    the(world.out()).ack()
    world.talk(commit=False)
    world.listener.pass_time(1_000)
    world.listener.offer()
    world.talk(commit=False)
    assert world.out() == []
    world.talk()
    assert world.listener.gone == {1: "acked"}


def test_a_message_that_comes_again_after_its_release_is_a_new_one():
    world = Wired().live(1)
    the(world.out()).release()
    world.send()
    world.answer()
    (peer, release), world.listener.pending = world.listener.pending[0], []
    world.listener._apply("release", peer, release, 1)
    world.listener.offer()
    world.talk(commit=False)
    assert positions(world.out()) == [1]
    world.again()
    assert world.listener.released == [(1, 0)]


def test_a_message_that_comes_again_while_it_waits_has_the_newer_counts():
    world = Wired().live(2)
    world.listener.pass_time(1_000)
    world.listener.offer()
    while world.listener.down:
        world.take()
    assert [message.deliveries for message in world.out()] == [2, 2]
    world.core.check()


def test_another_origin_makes_positions_mean_nothing():
    world = Wired().live(3)
    first, second = world.out(2)
    first.ack()
    world.talk(commit=False)
    world.listener.origin = Origin(0xAB, 2)
    asked = world.again()
    assert (asked.holding, asked.generation) == ([], None)
    assert world.core.settling.refusal.code == "stale_epoch"
    world.core.settling.refusal = None
    second.ack()
    assert world.core.settling.refusal.code == "stale_epoch"
    world.listener.commands.clear()
    world.talk()
    assert world.listener.commands == []


def test_credit_after_a_loss_is_what_does_not_wait():
    world = Wired(credit=100).live(4)
    size = world.core.held.size
    asked = world.again()
    assert asked.credit == 100 - size
    world.out()
    world.talk()
    assert world.core._credit == 100


def test_credit_goes_back_when_half_of_it_was_used():
    world = Wired(QueueListener(backlog=100), credit=40).live()
    for _ in range(6):
        world.listener.publish()
        world.listener.offer(1)
        world.talk()
        world.out()
        world.talk()
    flows = world.asked(v.ConsumerFlow)
    taker = world.listener.takers[world.peer, "c1"]
    assert taker.credit + world.core._used == 40, "nothing is counted twice"
    assert len(flows) == 1


def test_a_replayable_queue_that_has_this_consumer_still_is_waited_for():
    world = Wired(QueueListener(kind="replayable"), since="0").live(1)
    world.lose()
    world.listener.code = "resource_locked"
    world.connect()
    world.talk()
    assert world.core.error is None
    world.connect()
    world.talk()
    assert world.core.live


@pytest.mark.parametrize("what", ["logon", "consume"])
def test_a_budget_that_its_lost_connection_may_use_is_waited_for(what):
    world = Wired().live(1)
    world.lose()
    for _ in range(3):
        world.listener.code = "too_many"
        if what == "logon":
            world.listener.logon_code, world.listener.code = "too_many", ""
        world.connect()
        world.talk()
        assert (world.core.error, world.core.live) == (None, False)
    world.connect()
    world.talk()
    assert world.core.live


@pytest.mark.parametrize(
    ("code", "listener", "given"),
    [
        ("too_many", {}, {}),
        ("resource_locked", {"kind": "replayable"}, {"since": "0"}),
    ],
)
def test_a_refusal_is_an_error_once_no_lost_connection_can_be_the_reason(code, listener, given):
    first = Wired(QueueListener(**listener), **given)
    later = Wired(QueueListener(**listener), **given).live(1)
    later.lose()
    later.listener.now += REFUSED_MS
    for world in (first, later):
        world.listener.code = code
        world.connect()
        world.talk()
        assert world.core.error.code == code


@pytest.mark.parametrize("lasts", [True, False])
def test_a_consumer_waits_for_its_session_which_may_be_attached_later_than_it_is(lasts):
    world = Wired().live(1)
    world.core.session_lasts = lambda: lasts
    world.lose()
    world.listener.code = "session_fenced"
    world.connect()
    world.talk()
    assert (world.core.error is None) == lasts
    world.core.session_lasts = lambda: False
    world.listener.code = "session_fenced"
    world.connect()
    world.talk()
    assert world.core.error.code == "session_fenced"


# -- kinds of queues ------------------------------------------------------------------------------


def test_a_replayable_queue_goes_on_after_what_came_in():
    world = Wired(QueueListener(kind="replayable"), since="0", selector="/a = 1").live(4)
    assert positions(world.out(1)) == [1]
    asked = world.again()
    assert (asked.since, asked.selector, asked.holding) == ("00000000000000ab.1.4", None, [])
    world.listener.publish()
    world.listener.offer()
    world.talk()
    assert positions(world.out()) == [2, 3, 4]
    assert positions(world.out()) == [5]
    assert world.core.passed == {HERE: 5}


def test_a_queue_of_several_instances_goes_on_after_what_came_of_each():
    listener = QueueListener(kind="replayable")
    listener.vector = "00000000000000cd.1.6"
    world = Wired(listener, since="now").live()
    for position, origin in ((1, (0xCD, 1, 7)), (2, None), (3, (0xCD, 1, 8))):
        listener.origins[position] = origin
        listener.publish()
        listener.offer(1)
    world.talk()
    assert positions(world.out(1)) == [1]
    assert world.core.passed == {Origin(0xCD, 1): 7}
    asked = world.again()
    assert asked.since == "00000000000000ab.1.2,00000000000000cd.1.8"
    for _ in range(3):
        listener.offer(1)
    world.talk()
    assert [positions(world.out()) for _ in range(3)] == [[2], [3], []], "not once more"
    assert world.core.passed == {HERE: 2, Origin(0xCD, 1): 8}


def test_a_queue_of_several_instances_that_nothing_is_before_says_so():
    listener = QueueListener(kind="replayable")
    listener.vector = ""
    world = Wired(listener, since="0").live()
    assert (world.core.by_origin, world.core.seen, world.again().since) == (True, {}, "0")


def test_of_a_replayable_queue_acks_are_notes_and_nothing_is_held():
    world = Wired(QueueListener(kind="replayable"), since="0").live(2)
    first, second = world.out()
    assert (first.acked, len(world.core.held)) == (False, 0)
    first.ack()
    second.release()
    with pytest.raises(ZBrokerError, match="bad_field"):
        second.reject()
    world.talk()
    assert (world.listener.noted, world.asked(q.Release)) == ({1}, [])


def test_a_replayable_queue_ends_after_what_waits():
    world = Wired(QueueListener(kind="replayable"), since="0", until="now").live(2)
    world.perform(world.core.handle(m.Ack("completed", sid="c1", ended=True), at(0)))
    assert world.core.ended
    assert positions(world.out()) == [1, 2]


def test_what_is_sent_at_most_once_is_handed_out_also_after_a_loss():
    world = Wired(QueueListener(semantics="at-most-once")).live(3)
    first = the(world.out(1))
    world.lose()
    assert positions(world.out(1)) == [2]
    world.connect()
    world.talk()
    assert positions(world.out(1)) == [3]
    first.release()
    world.talk()
    assert world.asked(q.Release) == [], "it is gone: all that it has is a place in the backlog"
    assert world.asked(q.Settle)[-1].ends == [1, 2]


def test_what_is_sent_at_most_once_is_handed_out_also_after_an_error():
    world = Wired(QueueListener(semantics="at-most-once")).live(2)
    world.perform(world.core.handle(m.Error("internal", "gone", sid="c1"), at(0)))
    assert positions(world.out()) == [1, 2]


def test_a_replayable_queue_that_came_to_its_end_gives_no_more_after_a_loss():
    world = Wired(QueueListener(kind="replayable"), since="0", until="now").live(2)
    messages = world.out()
    world.core.handle(m.Ack("completed", sid="c1"), at(0))
    messages[0].ack()
    world.listener.publish()
    world.again()
    world.listener.offer()
    world.talk()
    assert (world.out(), world.listener.noted) == ([], {1})


def test_what_a_replayable_queue_sends_again_is_not_handed_out_again():
    world = Wired(QueueListener(kind="replayable"), since="0").live(3)
    (taker,) = world.listener.takers.values()
    taker.at = 2
    world.listener.publish()
    world.listener.offer()
    taker.at = 1
    world.listener.offer(2)
    world.talk()
    assert positions(world.out()) == [1, 2, 3]
    assert positions(world.out()) == [4]
    assert world.out() == []


@pytest.mark.parametrize("kind", [{"kind": "replayable"}, {"semantics": "at-most-once"}])
def test_of_another_origin_what_is_gone_or_never_left_is_handed_out(kind):
    world = Wired(QueueListener(**kind)).live(3)
    first = the(world.out(1))
    world.listener.origin = Origin(0xAB, 2)
    world.listener._place = lambda _command: 4
    world.again()
    assert positions(world.out()) == [2, 3]
    first.ack()
    reported = world.core.settling.refusal
    assert (reported.code if reported else "") == ("stale_epoch" if "kind" in kind else "")


def test_runs_that_are_none_are_a_bad_frame():
    world = Wired()
    world.connect()
    world.talk(commit=False)
    again = Wired()
    again.connect()
    again.send()
    again.answer()
    again.take()
    answer = q.Consuming("c1", 1, 0, "at-least-once", "work", 9, again.core._asked_cid, [1])
    again.core.handle(answer, at(0))
    assert again.core.error.code == "bad_frame"


def test_answers_that_no_one_waits_for_are_nothing():
    world = Wired().live(1)
    granted = world.core.granted
    for answer in (
        q.Settled("99"), q.Settled(None), m.Heartbeat(), q.Rows([]), m.Ack("processed", "99"),
        q.Consuming("c1", 1, 0, "at-least-once", "work", 9, world.core._asked_cid),
    ):  # fmt: skip
        assert world.core.handle(answer, at(0)) == []
    assert (world.core.granted, world.core.error) == (granted, None)


def test_positions_are_those_of_the_broker_whatever_the_origin_is():
    world = Wired().live()
    columns = m.Columns(offset=b"\x00\x00\x00\x00\x05\x00\x00\x00")
    job = q.Job("c1", 7, 1, 0, 2, 40, topic="t", origin=(0xCD, 3, 900), columns=columns)
    world.core.handle(MessagesArrived(job, b"\x92\xc4\x00\xc4\x00"), at(0))
    messages = world.out()
    assert [message.position for message in messages] == [900, 905]
    assert positions(messages) == [40, 45]
    world.core.settle(ACK, messages, 0)
    assert the(world.core.tick(at(0), drained=False)).command.ends == [40, 41, 45, 46]


# -- its end --------------------------------------------------------------------------------------


def test_leaving_sends_what_is_left_and_gives_back_the_rest():
    world = Wired().live(3)
    world.out(2)[0].ack()
    world.perform(world.core.leave(0))
    assert [type(each) for each in world.up] == [q.Settle, q.Cancel, m.Logoff]
    world.talk()
    assert world.listener.gone == {1: "acked"}
    assert [world.listener.sent[number].why for number in (2, 3)] == ["cancelled", "cancelled"]
    assert world.core.leave(0) == []


def test_a_cancelled_consumer_gets_nothing_more_once_the_broker_says_so():
    world = Wired().live(3)
    world.out(2)[0].ack()
    assert world.core.is_cancelled is False
    world.perform(world.core.cancel(0))
    assert [type(each) for each in world.up] == [q.Settle, q.Cancel]
    assert world.core.is_cancelled is False
    assert world.core.cancel(0) == []
    world.talk()
    assert world.core.is_cancelled
    assert [world.listener.sent[number].why for number in (2, 3)] == ["cancelled", "cancelled"]
    assert [type(each.command) for each in world.core.leave(0)] == [m.Logoff]


def test_a_consumer_that_is_being_cancelled_is_cancelled_when_its_connection_is_lost():
    world = Wired().live(1)
    world.perform(world.core.cancel(0))
    world.perform(world.core.handle(Lost(), at(0)))
    assert world.core.is_cancelled


def test_a_user_may_ask_for_an_extension_that_the_broker_refuses():
    world = Wired().live(1)
    message = the(world.out())
    world.core.settle(Verb(EXTEND.kind, 5), [message], 0)
    command = the(world.core.tick(at(0), drained=False)).command
    world.core.handle(m.Error("bad_field", "no", cid=command.cid), at(0))
    assert (world.core.error, world.core.settling.refusal) == (None, None)
