"""zbroker/client/subscriber/transport.py: which turns a thread that reads has."""

from __future__ import annotations

from math import inf

import pytest

from tests.client.fakes import WAIT_S, wait_until
from zbroker.client.subscriber import transport


@pytest.fixture
def live(client):
    """A subscription that has caught up."""
    subscription = client.subscribe("a", since="epoch")
    subscription.wait_caught_up(WAIT_S)
    return subscription


@pytest.fixture
def whole_turns(live, monkeypatch):
    """One item for each whole turn that it has from now on."""
    turns, turn = [], live._port._turn

    def run(ready):
        turns.append(len(ready))
        return type(turn).run(turn, ready)

    monkeypatch.setattr(turn, "run", run)
    return turns


def test_messages_that_come_one_by_one_take_no_whole_turns(broker, live, whole_turns):
    live._port._whole_s = inf
    for number in range(20):
        broker.append("a", b"%d" % number)
        assert live.next(WAIT_S).data == b"%d" % number
    assert whole_turns == []


def test_a_whole_turn_is_had_in_time(broker, live, whole_turns):
    def read():
        broker.append("a", b"1")
        assert live.next(WAIT_S).data == b"1"
        return len(whole_turns) > 3

    wait_until(read)


def test_what_else_happens_on_the_connection_takes_a_whole_turn(live, whole_turns):
    port = live._port
    port._whole_s = inf
    port._turn_once({port._link.link.monitor: 1})
    assert whole_turns == [1]


def test_nothing_is_read_where_nothing_came(live, whole_turns):
    port = live._port
    port._whole_s = inf
    port._link.drained = True
    assert port._turn_once({}) == transport.PART_MS
    assert (whole_turns, port._link.took) == ([], False)
