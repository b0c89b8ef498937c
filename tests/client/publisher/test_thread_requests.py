"""zbroker/client/publisher/thread_requests.py: what threads ask, and when they stop waiting."""

from __future__ import annotations

import pytest

from zbroker.client.publisher.receipt import AckTracker
from zbroker.client.publisher.thread_requests import ThreadRequests
from zbroker.errors import ZBrokerError

CLOSED = ZBrokerError("closed", "it is over")


def requests(wake=lambda _requests: None):
    """Of a client that did not end; `wake` is called with them at each request."""
    made = ThreadRequests(AckTracker(1), lambda: wake(made))
    return made


def test_an_asker_gets_what_the_work_returned():
    assert requests(ThreadRequests.serve).ask(lambda: 7, None) == 7


def test_requests_are_served_in_their_order():
    asked, done = requests(), []
    for number in range(3):
        asked.add(lambda number=number: done.append(number))
    assert asked
    asked.serve()
    assert (done, bool(asked)) == ([0, 1, 2], False)


def test_an_asker_waits_no_longer_than_its_timeout():
    with pytest.raises(ZBrokerError) as caught:
        requests().ask(lambda: 7, 0)
    assert caught.value.code == "timeout"


def test_an_asker_hears_what_ended_the_client_meanwhile():
    def end(asked):
        asked._track.error = CLOSED
        asked.give_up()

    with pytest.raises(ZBrokerError) as caught:
        requests(end).ask(lambda: 7, None)
    assert caught.value is CLOSED


def test_a_client_that_has_ended_is_not_waited_for():
    asked = requests()
    asked._track.error = CLOSED
    with pytest.raises(ZBrokerError) as caught:
        asked.ask(lambda: 7, None)
    assert caught.value is CLOSED


def test_requests_that_are_given_up_end_their_waits_without_being_served():
    asked, done = requests(), []
    request = asked.add(lambda: done.append(1))
    asked.give_up()
    assert (request.done.is_set(), done, bool(asked)) == (True, [], False)
