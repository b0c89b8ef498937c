"""What other instances send, and that their connections have ended."""

from __future__ import annotations

from typing import Any
from unittest import mock

import zmq

from zbroker.engine.contract import Limit
from zbroker.engine.events import Gone
from zbroker.errors import ClientError
from zbroker.replication.ports import SourcesPort
from zbroker.replication.sources import BadFrame

SOURCE = b"\0a1"


class FakeListener:
    """A listener at which this many bad frames wait; one peer has left. It is its own socket."""

    def __init__(self, waiting: int) -> None:
        self.router, self.waiting, self.left = self, waiting, 1

    def receive(self, _frames_max: int) -> Any:
        if not self.waiting:
            return None
        self.waiting -= 1
        return SOURCE, [zmq.Frame(b"\xc1")], False, "", 1

    def take_left(self, count: int) -> list[bytes]:
        self.left -= count
        return [SOURCE] * count


def test_a_link_is_gone_once_all_that_came_over_it_was_read() -> None:
    port = SourcesPort(FakeListener(3), mock.Mock())  # type: ignore[arg-type]
    limit = Limit(2, bytes=100)
    assert port.next_wake_ms() == 0
    assert [type(each) for each in port.events({}, limit)] == [BadFrame] * 2
    assert (port.drained, port.next_wake_ms()) == (False, 0)
    bad, gone = port.events({}, limit)
    assert isinstance(bad, BadFrame)
    assert isinstance(bad.error, ClientError)
    assert gone == Gone(SOURCE)
    assert (port.drained, port.next_wake_ms()) == (True, None)
    assert list(port.events({}, limit)) == []
