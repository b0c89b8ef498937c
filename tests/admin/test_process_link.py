"""Questions to several processes, of which some do not answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from tests.admin.queue_rows import FakeQueues, row
from zbroker import sockets
from zbroker.admin import process_link
from zbroker.admin.process_link import CHANGE_MAX_MS, ProcessLink, QueueLink, ReplicationLink
from zbroker.clock import SystemClock
from zbroker.errors import ClientError
from zbroker.wire import codec
from zbroker.wire import queue_surveys as q
from zbroker.wire import replicas as r
from zbroker.wire.surveys import (
    DELIVERY_QUESTIONS,
    AskSubscriptions,
    Disconnect,
    Disconnected,
    Subscriptions,
)

BOUND_S = 10.0


class Workers:
    """Desks that answer what the test says."""

    def __init__(self, directory: Path, names: list[str]) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.endpoints = {name: f"ipc://{directory}/{name}" for name in names}
        self.asked: list[Any] = []
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []
        self.link = ProcessLink(self.context, self.endpoints, SystemClock())

    def serve(
        self,
        name: str,
        answers: Callable[[AskSubscriptions], list[Subscriptions]],
        questions: msgspec.msgpack.Decoder[Any] = DELIVERY_QUESTIONS,
    ) -> None:
        router = sockets.inner_router(self.context)
        router.bind(self.endpoints[name])

        def run() -> None:
            while not self.stop.is_set():
                if router.poll(5):
                    rid, frame = router.recv_multipart()
                    ask: Any = questions.decode(frame)
                    self.asked.append(ask)
                    for answer in answers(ask):
                        sockets.send_to(router, rid, codec.encode(answer))
            router.close(linger=0)

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def ask(self, question: AskSubscriptions) -> dict[str, Subscriptions | None]:
        return self.link.ask(Subscriptions, question, self.link.processes)

    def close(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(BOUND_S)
        self.context.destroy(linger=0)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path, ["delivery", "delivery-2"])
    yield made
    made.close()


def subscriptions(incarnation: int) -> Callable[[AskSubscriptions], list[Subscriptions]]:
    return lambda ask: [Subscriptions(ask.cid, incarnation, 1, [])]


def test_every_worker_is_asked(workers: Workers) -> None:
    workers.serve("delivery", subscriptions(1))
    workers.serve("delivery-2", subscriptions(2))
    found = workers.ask(AskSubscriptions(0, "ann", "t", 5))
    assert {name: one.incarnation for name, one in found.items() if one} == {
        "delivery": 1, "delivery-2": 2,
    }  # fmt: skip
    assert [(ask.client, ask.topic, ask.limit) for ask in workers.asked] == [("ann", "t", 5)] * 2


def test_one_that_does_not_answer_is_named(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_link, "ANSWER_MAX_MS", 200)
    workers.serve("delivery-2", subscriptions(2))
    found = workers.ask(AskSubscriptions(0))
    assert list(found) == ["delivery", "delivery-2"]
    assert found["delivery"] is None
    assert found["delivery-2"] is not None


def test_an_answer_to_another_question_is_not_taken(workers: Workers) -> None:
    workers.serve("delivery", subscriptions(1))

    def late(ask: AskSubscriptions) -> list[Subscriptions]:
        return [Subscriptions(ask.cid - 1, 8, 1, []), Subscriptions(ask.cid, 9, 1, [])]

    workers.serve("delivery-2", late)
    found = workers.ask(AskSubscriptions(0))
    assert found["delivery-2"] is not None
    assert found["delivery-2"].incarnation == 9


def test_a_stopping_admin_asks_no_one(workers: Workers) -> None:
    workers.link.close()
    with pytest.raises(ClientError, match="stopping"):
        workers.ask(AskSubscriptions(0))


def test_only_the_processes_that_are_meant_are_asked(workers: Workers) -> None:
    workers.serve("delivery-2", subscriptions(2))
    found = workers.link.ask(Subscriptions, AskSubscriptions(0), ["delivery-2"])
    assert list(found) == ["delivery-2"]
    assert found["delivery-2"] is not None


def test_an_answer_of_another_kind_is_not_taken(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_link, "ANSWER_MAX_MS", 200)
    workers.serve("delivery", subscriptions(1))
    found = workers.link.ask(Disconnected, Disconnect(0, "ann"), ["delivery"])
    assert found == {"delivery": None}


def test_a_silent_process_keeps_no_other_question_waiting(workers: Workers) -> None:
    workers.serve("delivery-2", subscriptions(2))
    answered = threading.Event()
    silent: list[object] = []

    def ask_the_silent_one() -> None:
        with suppress(ClientError):
            silent.append(workers.link.ask(Subscriptions, AskSubscriptions(0), ["delivery"]))
        answered.set()

    thread = threading.Thread(target=ask_the_silent_one)
    thread.start()
    try:
        found = workers.link.ask(Subscriptions, AskSubscriptions(0), ["delivery-2"])
        assert found["delivery-2"] is not None
        assert not answered.is_set()
    finally:
        workers.link.close()
        thread.join(BOUND_S)
    assert silent == [], "it was given up when the link was closed"


def test_the_queues_process_is_asked_in_its_own_words(tmp_path: Path) -> None:
    process = Workers(tmp_path, ["queues"])
    try:
        subscriptions: Any = lambda ask: [q.Changed(ask.cid, 4), q.Queues(ask.cid, 1, 90, [])]  # noqa: E731
        process.serve("queues", subscriptions, msgspec.msgpack.Decoder(q.QueuesQuestion))
        link = QueueLink(process.link)
        assert link.change(q.Purge(0, "work", before=7)).count == 4
        assert link.look(q.Queues, q.AskQueues(0)).persisted == 90
        assert isinstance(process.asked[0], q.Purge)
        assert (process.asked[0].queue, process.asked[0].before) == ("work", 7)
    finally:
        process.close()


def test_the_replication_process_is_asked_in_its_own_words(tmp_path: Path) -> None:
    process = Workers(tmp_path, ["replication"])
    try:
        links: Any = lambda ask: [r.LinkChanged(ask.cid, "done"), r.Links(ask.cid, [], 90)]  # noqa: E731
        process.serve("replication", links, codec.LINK_QUESTIONS)
        link = ReplicationLink(process.link, on=True)
        assert link.change(r.ChangeLink(0, "pause", "b")).text == "done"
        assert link.look().persisted == 90
        assert isinstance(process.asked[0], r.ChangeLink)
        assert (process.asked[0].what, process.asked[0].link) == ("pause", "b")
    finally:
        process.close()


def test_what_is_reported_is_given_on() -> None:
    process = FakeQueues(row("a"))
    assert [one.name for one in process.link.look(q.Queues, q.AskQueues(0)).rows] == ["a"]


def test_a_silent_process_is_not_ready() -> None:
    process = FakeQueues()
    process.silent = True
    with pytest.raises(ClientError, match="does not answer") as caught:
        process.link.look(q.Queues, q.AskQueues(0))
    assert caught.value.code == "not_ready"


def test_a_change_without_an_answer_may_have_been_made() -> None:
    process = FakeQueues()
    process.silent = True
    with pytest.raises(ClientError, match="may be done all the same") as caught:
        process.link.change(q.Purge(0, "a"))
    assert caught.value.code == "not_ready"


def test_a_change_is_waited_for_longer_than_a_look() -> None:
    process = FakeQueues()
    process.link.look(q.Queues, q.AskQueues(0))
    process.link.change(q.Purge(0, "a"))
    assert process.waits == [0, CHANGE_MAX_MS]
