"""zbroker/server/ports.py: marks of the replication process, on real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from zbroker.engine.contract import Limit
from zbroker.engine.effects import FollowMark
from zbroker.paths import Paths
from zbroker.replication.effects import MarkSubscribed, PublishMark
from zbroker.replication.ports import MarkPort
from zbroker.server.ports import ReplicatedPort
from zbroker.wire.replicas import Replicated

LIMIT_MS = 10_000


class Wire:
    """A publisher, and one reader of it."""

    def __init__(self, directory: Path, *, every_change: bool) -> None:
        paths = Paths(directory, directory, directory, 1)
        paths.run.mkdir()
        paths.sockets_note.write_text(str(directory))
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._publisher, self._poller = zmq.Poller(), zmq.Poller()
        self.marks = MarkPort(self.context, paths.ipc("replicated"), self._publisher)
        self.port = ReplicatedPort(self.context, paths, self._poller, every_change=every_change)
        self.subscribed()

    def subscribed(self) -> None:
        """The publisher notices a reader."""
        for _ in range(LIMIT_MS // 100):
            ready = dict(self._publisher.poll(100))
            if MarkSubscribed() in self.marks.events(ready, Limit(1)):
                return
        pytest.fail("no reader came")

    def say(self, through: int, *, again: bool) -> None:
        """A mark is published."""
        self.marks.publish(PublishMark(Replicated(1, through, 1), again))

    def heard(self) -> int:
        """The next mark that comes."""
        ready = dict(self._poller.poll(LIMIT_MS))
        [said] = self.port.events(ready, Limit(1))
        return said.through


@pytest.fixture
def wire(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Wire]:
    made = Wire(tmp_path, every_change=getattr(request, "param", False))
    yield made
    made.context.destroy(linger=0)


def test_who_does_not_follow_hears_only_what_is_for_all(wire: Wire) -> None:
    wire.say(1, again=False)
    wire.say(2, again=True)
    assert wire.heard() == 2
    wire.say(3, again=False)
    wire.say(4, again=True)
    assert wire.heard() == 4


@pytest.mark.parametrize("wire", [True], indirect=True)
def test_who_follows_hears_each_change(wire: Wire) -> None:
    wire.say(1, again=False)
    assert wire.heard() == 1


def test_who_begins_to_follow_is_noticed_and_hears_each_change(wire: Wire) -> None:
    wire.port.follow(FollowMark(True))
    wire.subscribed()
    wire.say(1, again=True)
    assert wire.heard() == 1
    wire.say(2, again=False)
    assert wire.heard() == 2
    wire.port.follow(FollowMark(False))
    wire.subscribed()
    wire.say(3, again=False)
    wire.say(4, again=True)
    assert wire.heard() == 4
