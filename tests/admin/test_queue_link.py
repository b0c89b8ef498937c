"""zbroker/admin/queue_link.py: a room that does not answer, and how long it is waited for."""

from __future__ import annotations

import pytest

from tests.admin.queue_rows import Room, row
from zbroker.admin.queue_link import CHANGE_MAX_MS
from zbroker.errors import ClientError
from zbroker.wire import queue_surveys as q


def test_what_is_told_is_given_on() -> None:
    room = Room(row("a"))
    assert [one.name for one in room.desk.look(q.Queues, q.AskQueues(0)).rows] == ["a"]


def test_a_silent_room_is_not_ready() -> None:
    room = Room()
    room.silent = True
    with pytest.raises(ClientError, match="does not answer") as caught:
        room.desk.look(q.Queues, q.AskQueues(0))
    assert caught.value.code == "not_ready"


def test_a_change_without_an_answer_may_have_been_made() -> None:
    room = Room()
    room.silent = True
    with pytest.raises(ClientError, match="may be done all the same") as caught:
        room.desk.change(q.Purge(0, "a"))
    assert caught.value.code == "not_ready"


def test_a_change_is_waited_for_longer_than_a_look() -> None:
    room = Room()
    room.desk.look(q.Queues, q.AskQueues(0))
    room.desk.change(q.Purge(0, "a"))
    assert room.waits == [0, CHANGE_MAX_MS]
