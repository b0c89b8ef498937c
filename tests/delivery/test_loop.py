"""The delivery process with real sockets and a real log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.delivery.process import DEADLINE_S, INSTANCE, DeliveryProcess
from tests.waiting import Limit
from zbroker.ids import Origin, format_vector
from zbroker.wire import messages as m


@pytest.fixture
def delivery(tmp_path: Path) -> Iterator[DeliveryProcess]:
    made = DeliveryProcess(tmp_path)
    yield made
    made.close()


def numbered(count: int, first: int = 0, size: int = 20) -> list[bytes]:
    return [str(number).encode().ljust(size) for number in range(first, first + count)]


def test_a_replay_goes_over_into_live_messages(delivery: DeliveryProcess):
    for first in range(0, 1000, 100):
        delivery.journal.write("t", numbered(100, first))
    client = delivery.client()
    client.logon()
    client.send(m.Subscribe("s", "t", "c", bookmark="0"))
    assert client.until(m.Ack, type="processed").position == 1
    completed = client.until(m.Ack, type="completed")
    assert completed.vector == format_vector({Origin(INSTANCE, 1): 1000})
    delivery.journal.write("t", numbered(100, 1000))
    delivery.journal.say_watermarks()
    assert client.collect(1100) == numbered(1100)


def test_large_bodies_over_several_segments_arrive_unchanged(delivery: DeliveryProcess):
    data = numbered(40, size=200_000)
    for one in data:
        delivery.journal.write("t", [one])
    clients = [delivery.client(), delivery.client()]
    for client in clients:
        client.logon()
        client.send(m.Subscribe("s", "t", bookmark="0"))
    for client in clients:
        assert client.collect(len(data)) == data
    assert delivery.loop.stats()["read_cache_hits"]


def test_subscriptions_survive_a_restart_of_the_journal(delivery: DeliveryProcess):
    client = delivery.client()
    client.logon()
    client.send(m.Subscribe("s", "t", bookmark="0"))
    client.until(m.Ack, type="completed")
    for round_ in range(3):
        delivery.journal.write("t", numbered(10, 10 * round_))
        delivery.journal.say_watermarks()
        client.collect(10 * round_ + 10)
        delivery.restart_journal()
    client.send(m.Subscribe("again", "t", "c2", bookmark="0|1|"))
    client.until(m.Ack, cid="c2")
    assert client.data == numbered(30)


def test_a_client_that_left_is_forgotten(delivery: DeliveryProcess):
    client, other = delivery.client(), delivery.client()
    for one in (client, other):
        one.logon()
        one.send(m.Subscribe("s", "t", bookmark="0"))
        one.until(m.Ack, type="completed")
    client.socket.close(linger=0)
    limit = Limit(DEADLINE_S)
    while len(delivery.core.connections) > 1 and not limit.is_over:
        delivery.journal.write("t", [b"x"])
        delivery.journal.say_watermarks()
        other.until(m.Msg)
    assert len(delivery.core.connections) == 1


def test_frames_of_any_kind_leave_the_process_unharmed(delivery: DeliveryProcess):
    client = delivery.client()
    client.logon()
    before = delivery.loop.stats()["errors"]  # a logon may come too early, and is tried again
    client.socket.send_multipart([b"x"] * 9)
    assert client.until(m.Error).code == "bad_frame"
    client.socket.send_multipart([b"", b""])
    assert client.until(m.Error).code == "bad_frame"
    client.socket.send(b"\x81\xa3cmd\xa4nope")
    assert client.until(m.Error).code == "bad_command"
    client.send(m.Unsubscribe("nothing", "u"))
    assert client.until(m.Error).cid == "u"
    assert delivery.loop.stats()["errors"] - before == 4


def test_ranges_cover_the_log_without_overlap(delivery: DeliveryProcess):
    for first in range(0, 3000, 10):
        delivery.journal.write("t", numbered(10, first, size=1000))
    client = delivery.client()
    client.logon()
    client.send(m.Ranges("r", parts=7))
    answer = client.until(m.RangeList)
    assert len(answer.ranges) == 7
    assert (answer.ranges[0][0], answer.ranges[-1][1]) == (1, 3001)
    assert all(a[1] == b[0] for a, b in zip(answer.ranges, answer.ranges[1:], strict=False))
    sizes = [size for _, _, size in answer.ranges]
    assert max(sizes) - min(sizes) <= 2 * 10_200
    assert sum(sizes) >= 3000 * 1000
