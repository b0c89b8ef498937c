"""The link, the calls of the program and the waking poller that all ports are made of."""

from __future__ import annotations

import threading

import pytest

from zbroker.client.connection import TOKEN_WAIT_MS, Phase
from zbroker.client.effects import (
    Connect,
    Connected,
    GetToken,
    MessagesArrived,
    NewToken,
    SendCommand,
)
from zbroker.client.ports import (
    ONE,
    READ_LIMIT,
    Calls,
    LinkEvents,
    LinkPort,
    PolledLink,
    WakingPoller,
    turn_of,
)
from zbroker.client.subscriber.core import SubscriberCore
from zbroker.engine.contract import Limit, Now
from zbroker.errors import ZBrokerError
from zbroker.ids import Origin
from zbroker.wire.messages import Ack, Heartbeat, ListenerLogon, Msg

LIMIT_S = 10.0
ACK = (Ack("processed"), b"")
BATCH = (Msg("s", 1, 1, 0, 1), b"x" * 10_000)


class FakeLink:
    """answers: what comes on it, before it has nothing more."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.happened = []
        self.sent = []
        self.closed = False
        self.socket, self.monitor = object(), object()

    def receive(self):
        assert not self.closed
        return self.answers.pop(0) if self.answers else None

    def has_more(self):
        return bool(self.answers)

    def events(self):
        happened, self.happened = self.happened, []
        return happened

    def send(self, command, _body=None):
        assert not self.closed
        self.sent.append(command)

    def close(self, _linger_ms=0):
        self.closed = True


class FakeListeners:
    """error: what ended the client; given: the token of a session."""

    error = given = None
    now_ms = 0

    def now(self):
        return Now(self.now_ms, 0)

    def token(self, _effect):
        if self.error is not None:
            raise self.error
        return self.given


def port_of(*answers):
    links = [FakeLink(*answers), FakeLink()]
    made = iter(links)
    calls = Calls()
    port = LinkPort(lambda: next(made), calls)
    port.connect(Connect())
    return port, calls, links


def test_answers_of_one_turn_are_limited_by_their_number():
    port, _, (link, _) = port_of(*[ACK] * 20)
    assert len(list(port.events({}, READ_LIMIT))) == READ_LIMIT.count
    assert (port.drained, port.next_wake_ms()) == (False, 0)
    assert len(list(port.events({}, READ_LIMIT))) == 20 - READ_LIMIT.count
    assert (port.drained, port.next_wake_ms(), link.answers) == (True, None, [])


def test_answers_of_one_turn_are_limited_by_their_bytes():
    port, _, _ = port_of(BATCH, BATCH, BATCH)
    first, second = port.events({}, READ_LIMIT)
    assert isinstance(first, MessagesArrived)
    assert len(second.body) == 10_000
    assert not port.drained


def test_what_came_on_a_replaced_link_is_not_read():
    port, _, (first, second) = port_of(ACK, ACK)
    for _ in port.events({}, READ_LIMIT):
        port.connect(Connect())
    assert first.closed
    assert first.answers == [ACK]
    assert port.link is second


def test_calls_for_a_connection_that_is_over_go_with_it():
    port, calls, _ = port_of()
    calls.add([SendCommand(Heartbeat())])
    port.connect(Connect())
    assert calls.next_wake_ms() is None
    assert calls.take() == []


def test_calls_are_one_event_in_their_order():
    calls = Calls()
    calls.add([SendCommand(Heartbeat(1))])
    calls.add([SendCommand(Heartbeat(2))])
    assert calls.next_wake_ms() == 0
    (called,) = calls.events({}, ONE)
    assert [effect.command.heartbeat_s for effect in called.effects] == [1, 2]


def test_events_of_a_link_end_when_it_is_replaced():
    port, _, (link, _) = port_of()
    link.happened = [Connected(), Connected()]
    events = LinkEvents(port)
    assert list(events.events({}, Limit(1))) == []
    seen = []
    for event in events.events({link.monitor: 1}, Limit(1)):
        seen.append(event)
        port.connect(Connect())
    assert seen == [Connected()]


def test_a_turn_looks_for_a_token_until_there_is_one():
    listeners, (port, calls, links) = FakeListeners(), port_of()
    core = SubscriberCore(lambda: 1.0)
    turn = turn_of(core, port, calls, listeners.now, {GetToken: listeners.token})
    assert turn.run({}) == TOKEN_WAIT_MS
    assert core.state is Phase.NO_TOKEN
    listeners.given = NewToken("token", Origin(1, 1), 7)
    listeners.now_ms = TOKEN_WAIT_MS
    turn.run({})
    assert core.state is Phase.CONNECTING
    links[1].happened = [Connected()]
    turn.run({links[1].monitor: 1})
    (logon,) = links[1].sent
    assert (type(logon), logon.token) == (ListenerLogon, "token")


def test_what_ended_the_client_ends_the_turn():
    listeners, (port, calls, _) = FakeListeners(), port_of()
    listeners.error = ZBrokerError("closed", "the client was closed")
    turn = turn_of(
        SubscriberCore(lambda: 1.0), port, calls, listeners.now, {GetToken: listeners.token}
    )
    with pytest.raises(ZBrokerError, match="closed"):
        turn.run({})


def test_a_wait_ends_when_another_thread_wakes_it():
    poller, lock = WakingPoller(), threading.Condition()
    asleep = threading.Event()

    def wake():
        asleep.wait(LIMIT_S)
        with lock:  # the poller has let go of it once it is asleep
            poller.wake()

    thread = threading.Thread(target=wake)
    thread.start()
    with lock:
        asleep.set()
        assert poller.poll(int(LIMIT_S * 1_000), lock) == {}
        assert poller.poll(0, lock) == {}, "it is woken once"
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_an_interrupt_ends_the_next_wait():
    poller = WakingPoller()
    poller.interrupt()
    assert poller.poll(int(LIMIT_S * 1_000)) == {}


def test_a_polled_link_is_read_if_the_poller_saw_something():
    link = FakeLink(ACK)
    port = PolledLink(lambda: link, Calls())
    port.connect(Connect())
    assert list(port.events({}, READ_LIMIT)) == []
    assert len(list(port.events({link.socket: 1}, READ_LIMIT))) == 1


def test_a_polled_link_is_read_on_if_not_all_was_read():
    link = FakeLink(BATCH, BATCH, BATCH)
    port = PolledLink(lambda: link, Calls())
    port.connect(Connect())
    assert len(list(port.events({link.socket: 1}, READ_LIMIT))) == 2
    assert len(list(port.events({}, READ_LIMIT))) == 1
