"""What a program wants its consumer to get: flow, stop, drain, acquire, over lost connections."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from tests.client.consumer.listener_model import QueueListener
from tests.client.consumer.wired import ACK, Wired, the
from zbroker.client.connection import Phase
from zbroker.client.consumer.message_credit import CreditChange
from zbroker.ids import Origin
from zbroker.wire import consumer_credit as v


def change(world, kind, messages=0):
    return world.core.flow.change(CreditChange(kind, messages))


def pick(world, *positions):
    return world.core.flow.pick(BitMap64(positions))


def credited(**wishes):
    """Begun in credit mode, with six messages published."""
    world = Wired(flow_mode="credit", **wishes)
    world.connect()
    world.talk()
    for _ in range(6):
        world.listener.publish()
    world.listener.commands.clear()
    return world


def come(world):
    """Everything that the listener may send comes; positions."""
    for _ in range(9):
        world.listener.offer()
        world.talk()
    return [message._at for batch in iter(world.out, []) for message in batch]


# -- credit mode ----------------------------------------------------------------------------------


def test_nothing_comes_before_it_was_asked_for():
    world = credited()
    assert come(world) == []
    change(world, "flow", 2)
    assert come(world) == [1, 2]
    assert (world.core.flow.left, come(world)) == (0, [])


def test_acknowledging_gives_no_credit():
    world = credited()
    change(world, "flow", 1)
    world.talk()
    world.listener.offer()
    world.talk()
    the(world.out()).ack()
    world.talk()
    assert (set(world.listener.gone), come(world)) == ({1}, [])


def test_what_was_asked_for_before_it_begins_is_in_the_first_command():
    world = Wired(flow_mode="credit")
    change(world, "flow", 3)
    change(world, "flow", 4)
    world.connect()
    world.talk()
    taker = the(world.listener.takers.values())
    assert (taker.command.flow_mode, taker.left) == ("credit", 7)


def test_a_new_connection_begins_with_the_credit_that_is_left():
    world = credited()
    change(world, "flow", 5)
    world.talk()
    world.listener.offer(2)
    world.talk()
    asked = world.again()
    assert (asked.flow_mode, asked.messages) == ("credit", 3)
    assert come(world) == [1, 2, 3, 4, 5], "those that wait are kept"


def test_what_was_on_its_way_comes_again_and_takes_credit_then():
    world = credited()
    change(world, "flow", 3)
    world.talk()
    world.listener.offer(2)  # it is lost with its connection
    assert world.again().messages == 3
    assert come(world) == [1, 2, 3]


def test_credit_that_was_wanted_without_a_connection_is_in_the_next_command():
    world = credited()
    world.lose()
    change(world, "flow", 2)
    world.connect()
    world.talk()
    assert come(world) == [1, 2]
    assert world.listener.commands[-1].__class__.__name__ != "ConsumerFlow"


def test_bytes_go_back_and_give_no_messages():
    world = credited(credit=8)
    change(world, "flow", 4)
    assert come(world) == [1, 2, 3, 4]
    world.talk()
    flows = [each for each in world.asked(v.ConsumerFlow) if each.bytes]
    assert flows
    assert all(each.messages == 0 for each in flows)
    assert come(world) == []


def test_a_broker_that_knows_no_credit_in_messages_ends_it():
    listener = QueueListener()
    listener.earlier = True
    world = Wired(listener, flow_mode="credit")
    world.connect()
    world.talk()
    assert (world.core.state, world.core.error.code) == (Phase.ENDED, "bad_command")


# -- stop -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["window", "credit"])
def test_a_stopped_consumer_gets_nothing_before_flow(mode):
    world = Wired(flow_mode=mode)
    change(world, "flow", 9 if mode == "credit" else 0)
    world.live(1)
    stopped = change(world, "stop")
    world.talk()
    assert stopped.done
    world.listener.publish()
    assert come(world) == [1], "what came before can be taken"
    change(world, "flow", 9 if mode == "credit" else 0)
    assert come(world) == [2]


def test_bytes_that_are_given_back_do_not_start_it():
    world = Wired(credit=8).live(2)
    change(world, "stop")
    world.send()  # it is not answered yet
    assert len(world.out()) == 2
    world.talk()
    assert world.asked(v.ConsumerFlow) == []
    world.listener.publish()
    assert come(world) == []


def test_one_that_starts_has_all_its_bytes_again():
    world = Wired(credit=40).live(2)
    taker = the(world.listener.takers.values())
    change(world, "stop")
    world.talk()
    assert taker.credit == 0
    change(world, "flow")
    world.talk()
    assert taker.credit == 40 - world.core.held.size > 0
    world.out()
    change(world, "stop")
    change(world, "flow")
    world.talk()
    assert (taker.credit, world.core._used) == (40, 0)


def test_a_stopped_consumer_is_stopped_on_a_new_connection():
    world = Wired(credit=40).live(1)
    change(world, "stop")
    world.talk()
    world.out()
    assert world.again().messages == 0
    world.listener.publish()
    assert come(world) == []
    change(world, "flow")
    assert come(world) == [2]
    taker = the(world.listener.takers.values())
    assert taker.credit + world.core._used == 40


def test_a_lost_connection_answers_a_stop():
    world = Wired().live()
    stopped = change(world, "stop")
    world.send()
    assert world.again().messages == 0
    assert stopped.done


def test_what_is_wanted_goes_in_its_order():
    world = credited()
    changes = [
        change(world, *each)
        for each in (("flow", 9), ("stop",), ("flow", 1), ("stop",), ("flow", 2))
    ]
    world.talk()
    kinds = [type(each) for each in world.listener.commands]
    assert kinds == [
        v.ConsumerFlow, v.StopConsumer, v.ConsumerFlow, v.StopConsumer, v.ConsumerFlow
    ]  # fmt: skip
    assert all(each.done for each in changes)
    assert (come(world), world.core.flow.left) == ([1, 2], 0)


def test_a_stop_that_is_refused_raises_there():
    world = Wired().live()
    world.listener.code = "bad_command"
    stopped = change(world, "stop")
    world.talk()
    assert (stopped.done, stopped.error.code) == (True, "bad_command")
    assert not world.core.flow.stopped
    assert world.core.live


# -- drain ----------------------------------------------------------------------------------------


def test_a_drain_brings_what_there_is():
    world = credited(backlog=4)
    change(world, "flow", 9)
    drained = change(world, "drain")
    world.talk()
    assert (drained.done, drained.sent, world.core.flow.stopped) == (True, 4, True)
    assert come(world) == [1, 2, 3, 4]


def test_a_drain_that_was_not_answered_is_sent_again():
    world = credited()
    change(world, "flow", 3)
    world.talk()
    drained = change(world, "drain")
    world.send()
    asked = world.again()
    assert asked.messages == 3
    world.talk()
    assert (drained.done, drained.sent) == (True, 3)
    assert world.again().messages == 0


# -- acquire --------------------------------------------------------------------------------------


def test_what_is_acquired_comes_and_takes_no_credit():
    world = credited()
    picked = pick(world, 2, 5, 99)
    world.talk()
    assert set(picked.got) == {2, 5}
    assert come(world) == [2, 5]
    change(world, "flow", 1)
    assert come(world) == [1]
    assert world.again().messages == 0


def test_what_is_acquired_beside_others_leaves_their_credit():
    world = credited()
    change(world, "flow", 2)
    pick(world, 4)
    world.talk()
    world.listener.offer(1)
    world.talk()
    assert world.core.flow.left == 1


def test_acquiring_goes_on_over_a_lost_connection():
    world = credited()
    picked = pick(world, 3)
    world.send()
    world.answer()  # the answer is lost, and the message
    world.again()
    world.talk()
    assert set(picked.got) == {3}
    assert come(world) == [3]


def test_positions_of_another_broker_are_not_acquired_there():
    world = credited()
    picked = pick(world, 3)
    world.listener.origin = Origin(0xCD, 1)
    world.again()
    assert picked.got == BitMap64()
    assert world.asked(v.AcquireMessages) == []


def test_acquiring_that_is_refused_raises_there():
    world = credited()
    world.listener.code = "bad_field"
    picked = pick(world, 3)
    world.talk()
    assert (picked.got, picked.error.code) == (None, "bad_field")
    assert world.core.live


def test_acked_and_acquired_again_is_nothing():
    world = credited()
    pick(world, 1)
    world.talk()
    world.core.settle(ACK, world.out(), 0)
    world.talk()
    again = pick(world, 1)
    world.talk()
    assert again.got == BitMap64()
