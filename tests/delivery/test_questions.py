"""What the admin process asks a delivery worker, over its socket."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.delivery.world import MINE, World, ready
from zbroker import sockets
from zbroker.engine.contract import Now, TurnPlan
from zbroker.engine.effects import NoteDisconnected, Send, Tell
from zbroker.engine.turn import Turn
from zbroker.server.admin_endpoint import QUESTIONS_MAX, AdminEndpoint
from zbroker.server.process_loop import ONE
from zbroker.wire import codec
from zbroker.wire import surveys as s
from zbroker.wire.surveys import LISTENER_ANSWERS, AskSubscriptions

BOUND_MS = 10_000


class Bench:
    """The port, a core that answers, and a socket that asks."""

    def __init__(self, directory: Path) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.poller = zmq.Poller()
        endpoint = f"ipc://{directory}/desk"
        self.port = AdminEndpoint(
            self.context, endpoint, s.DELIVERY_QUESTIONS, self.poller, logging.getLogger("test")
        )
        self.asker = sockets.dealer(self.context, endpoint)
        self.world: World = ready()
        self.effects: list[Any] = []
        do = self.effects.append
        performers = dict.fromkeys(self.world.turn_plan.effects, do) | {
            Tell: self.port.tell, NoteDisconnected: self.port.note_disconnected,
        }  # fmt: skip
        plan = TurnPlan([(self.port, ONE)], self.world.turn_plan.effects)
        self.turn: Turn[Any, Any] = Turn(self.world.core, plan, performers, lambda: Now(0, 0))
        self.turn.run({})  # it says Hello to the journal
        self.effects.clear()

    def one_behind(self) -> None:
        """A subscription that is 60 positions behind."""
        for _ in range(99):
            self.world.publish("t", size=20)
        self.world.persisted = self.world.next_position
        self.world.say_watermarks()
        self.world.asleep = True
        self.world.subscribe("t", bookmark="1|39|")

    def run(self) -> None:
        """One turn with what waits."""
        assert self.poller.poll(BOUND_MS), "nothing came"
        self.turn.run(dict(self.poller.poll(0)))

    def answered(self, *frames: bytes) -> Any:
        """The answer to the last of these frames."""
        for frame in frames:
            self.asker.send(frame)
        self.run()
        found = sockets.receive(self.asker) if self.asker.poll(BOUND_MS) else None
        return LISTENER_ANSWERS.decode(found[0].buffer) if found else None


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.context.destroy(linger=0)


def test_a_question_is_answered_with_rows(bench: Bench) -> None:
    bench.one_behind()
    reported = bench.answered(codec.encode(AskSubscriptions(3, limit=10)))
    assert isinstance(reported, s.Subscriptions)
    assert (reported.cid, reported.incarnation, reported.persisted, reported.left_out) == (
        3,
        MINE,
        100,
        0,
    )
    assert [(row.client, row.lag) for row in reported.rows] == [("ann", 60)]


def test_what_is_no_question_is_ignored(bench: Bench) -> None:
    reported = bench.answered(b"", b"\x81\xa3cmd\xa4nope", codec.encode(AskSubscriptions(4)))
    while reported is None:
        reported = bench.answered()
    assert (reported.cid, reported.rows) == (4, [])


def test_questions_that_one_turn_leaves_wait_for_the_next(bench: Bench) -> None:
    count = 3 * QUESTIONS_MAX
    for cid in range(count):
        bench.asker.send(codec.encode(AskSubscriptions(cid)))
    reported: list[int] = []
    while len(reported) < count:
        bench.run()
        while bench.asker.poll(0) or (len(reported) < count and not bench.poller.poll(0)):
            assert bench.asker.poll(BOUND_MS), "a question was not answered"
            reported.append(LISTENER_ANSWERS.decode(bench.asker.recv()).cid)
    assert reported == list(range(count))


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (s.AskTopics(7), s.Topics(7, [s.TopicRow("t", False, 1)])),
        (s.Disconnect(8, "bob"), s.Disconnected(8, 0)),
        (s.Disconnect(9, "ann"), s.Disconnected(9, 1)),
    ],
)
def test_every_question_has_its_answer(bench: Bench, question: Any, answer: Any) -> None:
    bench.one_behind()
    assert bench.answered(codec.encode(question)) == answer
    sends = [effect for effect in bench.effects if isinstance(effect, Send)]
    assert len(sends) == getattr(answer, "count", 0)


def test_connections_are_reported(bench: Bench) -> None:
    bench.one_behind()
    reported = bench.answered(codec.encode(s.AskClients(5, limit=3)))
    assert isinstance(reported, s.Clients)
    assert ([row.client for row in reported.rows], reported.left_out) == (["ann"], 0)
