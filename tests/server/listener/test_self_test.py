"""zbroker/server/listener/self_test.py: what is noticed before a door serves, by planting it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from zbroker.clock import SystemClock
from zbroker.errors import ConfigError
from zbroker.server.listener import self_test
from zbroker.server.listener.self_test import SelfTestCase, prove


class Place:
    """Where a door may be; what is there without one lets everybody in, or says nothing."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.bind("tcp://127.0.0.1:*")
        self.endpoint = self.router.getsockopt_string(zmq.LAST_ENDPOINT)
        self.poller = zmq.Poller()
        self.poller.register(self.router, zmq.POLLIN)

    def prove(self, *cases: SelfTestCase) -> None:
        prove(self.context, self.endpoint, [*cases], self.poller.poll, SystemClock())


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.context.destroy(linger=0)


def test_who_may_come_in_does(place: Place) -> None:
    place.prove(SelfTestCase("anybody", None, enters=True))


def test_who_comes_in_without_leave_is_noticed(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"does not serve: a stranger came in") as caught:
        place.prove(
            SelfTestCase("a friend", None, enters=True),
            SelfTestCase("a stranger", None, enters=False),
        )
    assert caught.value.code == "bad_config"


def test_a_door_that_says_nothing_is_noticed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_test, "TRIAL_MS", 100)
    place.router.unbind(place.endpoint)
    place.endpoint = "tcp://127.0.0.1:1"
    with pytest.raises(ConfigError, match="a friend got no answer"):
        place.prove(SelfTestCase("a friend", None, enters=True))


def test_nothing_of_a_trial_is_left(place: Place) -> None:
    """Or the context would not end."""
    place.prove(SelfTestCase("anybody", None, enters=True))
    place.router.close(0)
    place.context.term()
