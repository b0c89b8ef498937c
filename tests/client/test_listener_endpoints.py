"""Where the delivery listener is, also while the broker does not know it yet."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from zbroker.client.endpoints import ListenerEndpoints
from zbroker.client.publisher.publisher import LogonResult
from zbroker.clock import SystemClock
from zbroker.engine.contract import Now
from zbroker.errors import ZBrokerError
from zbroker.wire.messages import Ack

URL = "tcp://127.0.0.1:9101"


class Logons:
    """A publisher whose logons were given these delivery listeners; `asked`: for one newer than."""

    heartbeat_s = None
    settings = SimpleNamespace(curve=None)

    def __init__(self, *listeners):
        self.clock = SystemClock()
        self.track = SimpleNamespace(error=None)
        self.asked = []
        self.number = 0
        self.session = None
        for listener in listeners:
            self.log_on(listener)

    def log_on(self, listener):
        self.number += 1
        reported = {"delivery": listener} if listener else {}
        self.session = LogonResult(self.number, URL, Ack("processed", endpoints=reported))

    def now(self):
        return Now(self.clock.mono_ms(), 0)

    def newer_session(self, than):
        if self.session is not None and self.session.number > than:
            return self.session
        self.asked.append(than)
        return None


def connected_to(listeners, monkeypatch):
    monkeypatch.setattr("zbroker.client.endpoints.ClientLink", lambda _context, url, *_others: url)
    return listeners.connect()


def test_a_session_without_a_delivery_listener_is_none_yet():
    publisher = Logons("")
    listeners = ListenerEndpoints(publisher)
    assert listeners.session() is None
    assert publisher.asked == [1]
    publisher.log_on("tcp://127.0.0.1:1")
    assert listeners.session().number == 2


def test_a_link_goes_to_the_last_known_listener_and_asks_for_the_new_one(monkeypatch):
    publisher = Logons("tcp://127.0.0.1:1")
    listeners = ListenerEndpoints(publisher)
    assert connected_to(listeners, monkeypatch) == "tcp://127.0.0.1:1"
    publisher.log_on("")
    assert connected_to(listeners, monkeypatch) == "tcp://127.0.0.1:1"
    assert publisher.asked == [2]
    publisher.log_on("tcp://127.0.0.1:3")
    assert connected_to(listeners, monkeypatch) == "tcp://127.0.0.1:3"


def test_with_no_listener_ever_known_there_is_none_to_connect_to():
    with pytest.raises(ZBrokerError, match="not_ready"):
        ListenerEndpoints(Logons("")).connect()
