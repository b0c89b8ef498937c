"""The socket at which a delivery worker tells of its subscriptions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.delivery.test_reports import World
from zbroker import sockets
from zbroker.delivery.admin_endpoint import Desk
from zbroker.server.admin_endpoint import QUESTIONS_MAX
from zbroker.wire import codec
from zbroker.wire import surveys as s
from zbroker.wire.surveys import FROM_DESK, AskSubscriptions

BOUND_MS = 10_000


class Bench:
    """A desk and somebody who asks."""

    def __init__(self, directory: Path) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.poller = zmq.Poller()
        endpoint = f"ipc://{directory}/desk"
        self.desk = Desk(self.context, endpoint, 7, self.poller, logging.getLogger("test"))
        self.asker = sockets.dealer(self.context, endpoint)
        self.world = World()

    def answered(self, *frames: bytes) -> Any:
        """The answer to the last of these frames."""
        for frame in frames:
            self.asker.send(frame)
        assert self.poller.poll(BOUND_MS), "nothing came"
        self.effects = self.desk.answer(self.world, 0)
        found = sockets.receive(self.asker) if self.asker.poll(BOUND_MS) else None
        return FROM_DESK.decode(found[0].buffer) if found else None


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.context.destroy(linger=0)


def test_a_question_is_answered_with_rows(bench: Bench) -> None:
    bench.world.add(40)
    told = bench.answered(codec.encode(AskSubscriptions(3, limit=10)))
    assert isinstance(told, s.Subscriptions)
    assert (told.cid, told.incarnation, told.persisted, told.left_out) == (3, 7, 100, 0)
    assert [(row.client, row.lag) for row in told.rows] == [("ann", 60)]


def test_what_is_no_question_is_ignored(bench: Bench) -> None:
    told = bench.answered(b"", b"\x81\xa3cmd\xa4nope", codec.encode(AskSubscriptions(4)))
    while told is None:
        told = bench.answered()
    assert (told.cid, told.rows) == (4, [])


def test_questions_that_one_turn_leaves_wait_for_the_next(bench: Bench) -> None:
    count = 3 * QUESTIONS_MAX
    for cid in range(count):
        bench.asker.send(codec.encode(AskSubscriptions(cid)))
    told: list[int] = []
    while len(told) < count:
        assert bench.poller.poll(BOUND_MS), "a question was forgotten"
        bench.desk.answer(bench.world, 0)
        while bench.asker.poll(0) or (len(told) < count and not bench.poller.poll(0)):
            assert bench.asker.poll(BOUND_MS), "a question was not answered"
            told.append(FROM_DESK.decode(bench.asker.recv()).cid)
    assert told == list(range(count))


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (s.AskTopics(7), s.Topics(7, [s.TopicRow("t", False, 1)])),
        (s.Disconnect(8, "bob"), s.Disconnected(8, 0)),
        (s.Disconnect(9, "ann"), s.Disconnected(9, 1)),
    ],
)
def test_every_question_has_its_answer(bench: Bench, question: Any, answer: Any) -> None:
    bench.world.add(40)
    assert bench.answered(codec.encode(question)) == answer
    assert len(bench.effects) == getattr(answer, "count", 0)


def test_connections_are_told(bench: Bench) -> None:
    bench.world.add(40)
    told = bench.answered(codec.encode(s.AskClients(5, limit=3)))
    assert isinstance(told, s.Clients)
    assert ([row.client for row in told.rows], told.left_out) == (["ann"], 0)
