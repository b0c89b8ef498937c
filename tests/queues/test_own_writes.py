"""zbroker/queues/own_writes.py: who was told that a message is gone does not find it again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.queues.bench import ANN, Bench, bench, replayable
from zbroker.wire import queue_messages as q


def declared(*configs: Any) -> Bench:
    """One with queue `new`, and with those of the config."""
    at = bench(*configs)
    at.say(q.DeclareQueue("new", "d", {"topic": "t"}), ANN)
    return at


def purged() -> Bench:
    """One whose queue had a message, and has not read yet that it was purged."""
    at = declared()
    at.many(1)
    at.reading = False
    assert purge(at).count == 1
    return at


def delete(at: Bench, **more: Any) -> Any:
    return at.say(q.DeleteQueue("new", "e", **{"if_empty": True, **more}), ANN)


def purge(at: Bench, queue: str = "new") -> Any:
    return at.say(q.PurgeQueue(queue, "p"), ANN)


def read(at: Bench) -> None:
    """The log is read again."""
    at.reading = True
    at.run()


def look(at: Bench, queue: str = "new") -> Any:
    return at.say(q.DeclareQueue(queue, "l", passive=True), ANN)


def test_a_queue_is_empty_once_its_purge_is_answered() -> None:
    at = purged()
    assert delete(at) is None, "it waits until it is read"
    read(at)
    assert at.last() == q.QueueChanged("new", 0, "e")


def test_a_queue_is_empty_once_its_messages_are_acknowledged() -> None:
    at = declared()
    [position] = at.many(1)
    at.consume("new")
    at.reading = False
    at.ack(position)
    assert delete(at) is None
    read(at)
    assert at.of(q.QueueChanged) == [q.QueueChanged("new", 0, "e")]


@pytest.mark.parametrize("queue", ["new", "q"])
def test_a_purge_that_is_answered_is_counted(queue: str) -> None:
    at = declared(replayable())
    at.many(2)
    assert look(at, queue).messages == 2
    at.reading = False
    assert purge(at, queue).count == 2
    assert look(at, queue) is None
    read(at)
    assert at.last().messages == 0


def test_what_came_meanwhile_is_there() -> None:
    at = purged()
    at.many(1)
    assert delete(at) is None
    read(at)
    assert at.codes() == ["queue_in_use"]


def test_a_queue_that_was_deleted_meanwhile_is_unknown() -> None:
    at = purged()
    assert delete(at) is None
    delete(at, if_empty=False)
    assert at.codes() == ["unknown_queue"]


def test_a_client_that_left_meanwhile_deletes_nothing() -> None:
    at = purged()
    assert delete(at) is None
    at.lose()
    read(at)
    assert "new" in at.manager.running


def test_a_queue_that_is_still_being_read_says_so() -> None:
    at = bench()
    at.many(1)
    at.reading = False
    at.say(q.DeclareQueue("new", "d", {"topic": "t"}), ANN)
    assert look(at).reading
