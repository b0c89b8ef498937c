"""Work queues with real processes: nothing lost, nothing done twice without a flag."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process import queue_checker
from tests.process.load import until, until_running
from tests.process.queue_checker import Found, depth, queue_row
from zbroker.client import Client, connect
from zbroker.client.consumer.message import QueueMessage
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

WAIT_S = 20.0
QUEUES: list[dict[str, Any]] = [
    {"name": "plain", "topic": "plain", "lease": "1s", "max_per_subscription": 200},
    {"name": "long", "topic": "long", "lease": "1h"},
    {"name": "letters", "topic": "letters", "dead_letter": "letters.dead", "max_deliveries": 2},
    {"name": "barriers", "topic": "barriers", "barrier": "/end = true"},
    {"name": "ranked", "topic": "ranked", "priority": "/urgency"},
    {"name": "grouped", "topic": "grouped", "group_key": "/customer"},
    {"name": "pattern", "topic": "east\\..*", "regex": True, "filter": "/price > 10"},
    {"name": "once", "topic": "once", "semantics": "at-most-once"},
]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(settings={"queue": QUEUES}) as running:
        yield running


@pytest.fixture
def client(broker: LocalBroker, request: pytest.FixtureRequest) -> Iterator[Client]:
    with connect(broker.url, name=f"test-{request.node.name[:100]}") as connected:
        yield connected


def _publish(client: Client, topic: str, payloads: list[bytes]) -> None:
    client.publish_many(topic, payloads)
    client.flush(timeout=WAIT_S)


def _fetch(consumer: Any, count: int) -> list[QueueMessage]:
    """That many messages, as long as they come."""
    found: list[QueueMessage] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.fetch(count - len(found), timeout=1)
    return found


def _kill(broker: LocalBroker) -> None:
    pid = until_running(broker, "queues", 0)
    os.kill(pid, signal.SIGKILL)
    until_running(broker, "queues", pid)


# -- everything at once ---------------------------------------------------------------------------


def _check(found: Found) -> None:
    assert found.lost == []
    assert found.unexpected == []
    assert found.unflagged == []


@pytest.mark.seed("000-05")
@pytest.mark.seed("003-16")
@pytest.mark.seed("004-01")
def test_twenty_thousand_messages_under_kills_and_freezes(tmp_path: Path) -> None:
    found = queue_checker.run(tmp_path, messages=20_000, seed=1)
    _check(found)
    assert sum(found.kills.values()) >= 3


def test_at_most_once_delivers_nothing_twice_under_kills(tmp_path: Path) -> None:
    found = queue_checker.run(tmp_path, messages=20_000, seed=2, semantics="at-most-once")
    assert found.again == 0
    assert found.unexpected == []


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_two_hundred_thousand_messages_under_kills_and_freezes(tmp_path: Path, seed: int) -> None:
    found = queue_checker.run(tmp_path, messages=200_000, seed=100 + seed, harms=60)
    sys.stdout.write(f"{found}\n")  # for -s
    _check(found)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_hundred_thousand_messages_at_most_once(tmp_path: Path) -> None:
    found = queue_checker.run(
        tmp_path, messages=200_000, seed=200, semantics="at-most-once", harms=60
    )
    sys.stdout.write(f"{found}\n")  # for -s
    assert found.again == 0
    assert found.unexpected == []


# -- restarts -------------------------------------------------------------------------------------


@pytest.mark.seed("000-04")
@pytest.mark.seed("001-45")
@pytest.mark.seed("004-14")
def test_a_restart_loses_no_ack_and_flags_what_was_leased(
    broker: LocalBroker, client: Client
) -> None:
    _publish(client, "long", [b"%d" % n for n in range(10)])
    consumer = client.consume("long", backlog=10)
    taken = _fetch(consumer, 10)
    consumer.ack(taken[:4])
    taken[4].release()
    consumer.flush(timeout=WAIT_S)
    again = _fetch(consumer, 1)
    assert [(m.data, m.deliveries) for m in again] == [(b"4", 2)]
    _kill(broker)
    with connect(broker.url, name="another") as other, other.consume("long") as late:
        consumer.close(flush=False)
        rest = sorted(_fetch(late, 6), key=lambda m: m.position)
        assert [m.data for m in rest] == [b"%d" % n for n in range(4, 10)]
        assert all(m.redelivered for m in rest)
        assert rest[0].deliveries >= 3, "the release was counted, and is remembered"
        late.ack(rest)
        late.flush(timeout=WAIT_S)
    until(lambda: depth(broker, "long") == 0, "nothing is left")


def test_the_tables_may_be_deleted(tmp_path: Path) -> None:
    settings = {"queue": [{"name": "work", "topic": "jobs", "lease": "1h"}]}
    data = tmp_path / "data"
    with LocalBroker(data, settings=settings) as broker, connect(broker.url, name="c") as client:
        _publish(client, "jobs", [b"%d" % n for n in range(1_000)])
        with client.consume("work", backlog=64) as consumer:
            acked = 0
            while acked < 500:
                batch = _fetch(consumer, min(64, 500 - acked))
                consumer.ack(batch[::2])
                for message in batch[1::2]:
                    message.release()
                acked += len(batch[::2])
            consumer.flush(timeout=WAIT_S)
        before = queue_row(broker, "work")["depth"]
    shutil.rmtree(data / "queues")
    with LocalBroker(data, settings=settings) as broker:
        row = queue_row(broker, "work")
        assert row["depth"] == before == 1_000 - acked
        assert row["life"] == 1


@pytest.mark.seed("004-98")
@pytest.mark.seed("001-26")
def test_a_segment_with_what_is_not_acknowledged_is_not_removed(tmp_path: Path) -> None:
    settings = {
        "queue": [{"name": "work", "topic": "jobs"}],
        "journal": {"segment_size": "1MiB"},
    }
    with LocalBroker(tmp_path / "d", settings=settings) as broker:
        with connect(broker.url, name="c") as client:
            _publish(client, "jobs", [b"keep me"])
            for _ in range(4):
                _publish(client, "other", [bytes(1_000)] * 1_000)
            first = queue_row(broker, "work")["first"]
            until(lambda: ("work", first) in _held(broker), "the queue says what it holds")
            with client.consume("work") as consumer:
                consumer.ack(_fetch(consumer, 1))
                consumer.flush(timeout=WAIT_S)
        until(lambda: _held(broker)[0][1] > 4_000, "the queue lets go of what was acknowledged")


def _held(broker: LocalBroker) -> list[tuple[str, int]]:
    """What the queues need of the log."""
    holders = broker.ask("/holders")["holders"]
    return [(each["what"], each["position"]) for each in holders if each["who"] == "queues"]


# -- what a queue can do --------------------------------------------------------------------------


@pytest.mark.seed("000-01")
@pytest.mark.seed("003-14")
def test_a_queue_takes_nothing_from_a_subscription(client: Client) -> None:
    _publish(client, "plain", [b"%d" % n for n in range(100)])
    with client.consume("plain") as consumer:
        work = _fetch(consumer, 100)
        consumer.ack(work)
        consumer.flush(timeout=WAIT_S)
    log = list(client.subscribe("plain", since="epoch", until="now"))
    assert [m.bookmark for m in work] == [m.bookmark for m in log]


@pytest.mark.seed("003-12")
def test_redelivery_of_a_released_message_is_flagged(client: Client) -> None:
    _publish(client, "plain", [b"late"])
    with client.consume("plain") as first:
        (message,) = _fetch(first, 1)
        assert not message.redelivered
        message.release()
        (again,) = _fetch(first, 1)
        assert again.redelivered
        again.ack()
        first.flush(timeout=WAIT_S)


@pytest.mark.seed("000-07")
def test_a_barrier_waits_for_all_before_it_and_goes_to_everybody(broker: LocalBroker) -> None:
    with (
        connect(broker.url, name="barrier-1") as one,
        connect(broker.url, name="barrier-2") as two,
        one.consume("barriers", backlog=2) as left,
        two.consume("barriers", backlog=2) as right,
    ):
        _publish(one, "barriers", [b'{"n": 1}', b'{"n": 2}', b'{"end": true}', b'{"n": 3}'])
        before = _fetch(left, 1) + _fetch(right, 1)
        assert sorted(m.data for m in before) == [b'{"n": 1}', b'{"n": 2}']
        assert not left.fetch(timeout=0.3)
        before[0].ack()
        assert not right.fetch(timeout=0.3), "one before it is not acknowledged yet"
        before[1].ack()
        for consumer in (left, right):
            (barrier,) = _fetch(consumer, 1)
            assert barrier.barrier
            assert barrier.data == b'{"end": true}'
        behind = left.fetch(timeout=5) or right.fetch(timeout=5)
        assert [m.data for m in behind] == [b'{"n": 3}']
        behind[0].ack()


def test_higher_priority_comes_first(client: Client) -> None:
    order = [3, 1, 9, 1, 9, 0]
    _publish(client, "ranked", [b'{"urgency": %d, "n": %d}' % (u, n) for n, u in enumerate(order)])
    with client.consume("ranked", backlog=1) as consumer:
        found = []
        for _ in order:
            (message,) = _fetch(consumer, 1)
            found.append(message.data)
            message.ack()
        wanted = sorted(enumerate(order), key=lambda pair: (-pair[1], pair[0]))
        assert found == [b'{"urgency": %d, "n": %d}' % (u, n) for n, u in wanted]


def test_one_of_a_group_is_under_way_at_a_time(client: Client) -> None:
    _publish(client, "grouped", [b'{"customer": "a"}'] * 2 + [b'{"customer": "b"}'] * 2)
    with client.consume("grouped", backlog=10) as consumer:
        first = _fetch(consumer, 2)
        assert sorted(m.data for m in first) == [b'{"customer": "a"}', b'{"customer": "b"}']
        assert not consumer.fetch(timeout=0.3)
        consumer.ack(first)
        consumer.ack(_fetch(consumer, 2))
        consumer.flush(timeout=WAIT_S)


@pytest.mark.seed("000-02")
@pytest.mark.seed("000-03")
def test_a_pattern_and_a_filter_say_what_enters(client: Client) -> None:
    for topic, price in (("east.a", 11), ("east.b", 9), ("west.a", 50), ("east.b", 12)):
        _publish(client, topic, [b'{"price": %d}' % price])
    with client.consume("pattern") as consumer:
        found = _fetch(consumer, 2)
        assert [(m.topic, m.data) for m in found] == [
            ("east.a", b'{"price": 11}'), ("east.b", b'{"price": 12}'),
        ]  # fmt: skip
        assert not consumer.fetch(timeout=0.2)
        consumer.ack(found)


def test_dead_letters_say_why_and_can_be_brought_back(broker: LocalBroker, client: Client) -> None:
    client.publish("letters", b"bad", key=b"k", headers={"color": "red"}).wait(timeout=WAIT_S)
    client.publish("letters", b"worse").wait(timeout=WAIT_S)
    with client.consume("letters") as consumer:
        bad, worse = _fetch(consumer, 2)
        bad.reject(reason="no such thing")
        worse.release()
        (worse,) = _fetch(consumer, 1)
        worse.release()
        consumer.flush(timeout=WAIT_S)
        until(lambda: depth(broker, "letters") == 0, "both were given up")
        first, second = client.subscribe("letters.dead", since="epoch", until="now")
        assert (first.data, first.key, second.data) == (b"bad", b"k", b"worse")
        assert first.headers is not None
        assert first.headers["color"] == "red"
        assert first.headers["zb-reason"] == "rejected"
        assert first.headers["zb-text"] == "no such thing"
        assert first.headers["zb-bookmark"] == bad.bookmark
        assert second.headers is not None
        assert second.headers["zb-reason"] == "max_deliveries"
        assert second.headers["zb-deliveries"] == 2
        reported = broker.ask("/queues/letters/requeue", {"limit": 10})
        assert reported["count"] == 2
        back = _fetch(consumer, 2)
        assert [(m.data, m.deliveries) for m in back] == [(b"bad", 1), (b"worse", 1)]
        consumer.ack(back[:1])
        consumer.flush(timeout=WAIT_S)
        forced = {"all": True, "leased": True, "dead_letters": True}
        assert broker.ask("/queues/letters/purge", forced)["count"] == 1
        *_, last = client.subscribe("letters.dead", since="epoch", until="now")
        assert last.headers is not None
        assert (last.data, last.headers["zb-reason"]) == (b"worse", "forced")


def test_a_filter_of_a_consumer_leaves_the_rest_to_others(client: Client) -> None:
    _publish(client, "long", [b'{"n": %d}' % n for n in range(20)])
    with client.consume("long", filter="/n >= 15", backlog=20) as picky:
        mine = _fetch(picky, 5)
        assert [m.data for m in mine] == [b'{"n": %d}' % n for n in range(15, 20)]
        assert not picky.fetch(timeout=0.2)
        with client.consume("long", backlog=20) as other:
            rest = _fetch(other, 15)
            assert len(rest) == 15
            other.ack(rest)
        picky.ack(mine)
        picky.flush(timeout=WAIT_S)


def test_a_worker_works_while_its_leases_are_extended(broker: LocalBroker, client: Client) -> None:
    _publish(client, "plain", [b"%d" % n for n in range(8)])
    done: list[tuple[bytes, bool]] = []
    lock = threading.Lock()

    def handle(message: QueueMessage) -> None:
        time.sleep(1.5)  # longer than the lease
        with lock:
            done.append((message.data, message.redelivered))

    with client.worker("plain", handle, concurrency=8):
        until(lambda: len(done) == 8, "everything is done")
        until(lambda: depth(broker, "plain") == 0, "everything is acknowledged")
    assert sorted(done) == [(b"%d" % n, False) for n in range(8)]


# -- operating ------------------------------------------------------------------------------------


def test_a_queue_made_at_run_time_survives_a_restart(broker: LocalBroker, client: Client) -> None:
    _publish(client, "made", [b"before"])
    made = {"definition": {"topic": "made", "recovery_point": "now"}}
    broker.ask("/queues/made/create", made)
    _publish(client, "made", [b"after"])
    _kill(broker)
    with client.consume("made") as consumer:
        (message,) = _fetch(consumer, 1)
        assert message.data == b"after"
        message.ack()
    broker.ask("/queues/made/alter", {"definition": {"lease": "5s"}})
    assert broker.ask("/queues/made")["definition"]["lease"] == 5_000
    broker.ask("/queues/made/delete", {})
    assert "made" not in [row["name"] for row in broker.ask("/queues")["queues"]]


def test_explain_says_why_nothing_is_delivered(broker: LocalBroker, client: Client) -> None:
    _publish(client, "long", [b"1", b"2"])
    assert "it has no consumer" in broker.ask("/queues/long/explain")["lines"][0]
    with client.consume("long", backlog=1) as consumer:
        (message,) = _fetch(consumer, 1)
        reported = broker.ask(f"/queues/long/explain?position={message.position}")
        assert reported["state"] == "leased"
        message.ack()
        consumer.ack(_fetch(consumer, 1))
        consumer.flush(timeout=WAIT_S)
