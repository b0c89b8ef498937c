"""A replayable queue with real processes: read from any place, as often as wanted."""

from __future__ import annotations

import itertools
import json
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.process.load import until
from tests.process.queue_checker import queue_row
from zbroker.client import Client, connect
from zbroker.client.consumer.message import QueueMessage
from zbroker.errors import ZBrokerError
from zbroker.local import LocalBroker

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

WAIT_S = 20.0
TRADES = 50
SETTINGS: dict[str, Any] = {
    "queue": [
        {"name": "trades", "topic": "trades", "kind": "replayable"},
        {"name": "purged", "topic": "trades", "kind": "replayable"},
        {"name": "small", "topic": "trades", "kind": "replayable", "size_alarm": "1KiB"},
        {"name": "work", "topic": "trades"},
    ]
}


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(settings=SETTINGS) as running:
        with connect(running.url, name="desk") as trader:
            for number in range(TRADES):
                row = json.dumps({"trade_id": f"FFS{number:03d}"}).encode()
                trader.publish("trades", row, headers={"book": f"b{number // 10}"})
                if number == 24:
                    trader.flush(timeout=WAIT_S)
                    running.ask("/points", {"name": "noon"})
                    time.sleep(0.02)  # so that a time tells the two halves apart
            trader.flush(timeout=WAIT_S)
        yield running


@pytest.fixture
def client(broker: LocalBroker, request: pytest.FixtureRequest) -> Iterator[Client]:
    with connect(broker.url, name=f"test-{request.node.name[:100]}") as connected:
        yield connected


def _all(client: Client, **place: Any) -> list[QueueMessage]:
    """Everything from a place on, of a queue that no one else reads."""
    with client.consume("trades", until="now", **place) as consumer:
        return list(consumer)


def _ids(messages: list[QueueMessage]) -> list[str]:
    return [json.loads(message.data)["trade_id"] for message in messages]


def _expected(first: int) -> list[str]:
    return [f"FFS{number:03d}" for number in range(first, TRADES)]


@pytest.mark.seed("003-06")
@pytest.mark.seed("003-19")
@pytest.mark.seed("003-21")
@pytest.mark.seed("003-28")
def test_it_can_be_read_again_and_again_in_the_same_order(client: Client) -> None:
    first, second = _all(client, since="epoch"), _all(client, since="epoch")
    assert _ids(first) == _ids(second) == _expected(0)
    log = list(client.subscribe("trades", since="epoch", until="now"))
    assert [m.bookmark for m in first] == [m.bookmark for m in log]


@pytest.mark.seed("003-01")
def test_it_is_read_from_after_a_message(client: Client) -> None:
    bookmark = _all(client, since="epoch")[30].bookmark
    assert _ids(_all(client, since=bookmark)) == _expected(31)


@pytest.mark.seed("003-03")
@pytest.mark.seed("003-23")
def test_it_is_read_from_the_first_message_with_a_value(client: Client) -> None:
    assert _ids(_all(client, selector="/trade_id = 'FFS017'")) == _expected(17)
    assert _ids(_all(client, since="point:noon", selector="/trade_id > 'FFS003'")) == _expected(25)
    with pytest.raises(ZBrokerError) as caught:
        _all(client, selector="/trade_id = 'none'")
    assert caught.value.code == "bookmark_not_found"


@pytest.mark.seed("003-02")
def test_it_is_read_from_the_first_message_with_a_header(client: Client) -> None:
    assert _ids(_all(client, selector="HEADER('book') = 'b3'")) == _expected(30)
    mixed = "HEADER('book') > 'b0' AND /trade_id ENDS WITH '5'"
    assert _ids(_all(client, selector=mixed)) == _expected(15)
    with pytest.raises(ZBrokerError) as caught:
        _all(client, selector="HEADER('desk') = 'b3'")
    assert caught.value.code == "bookmark_not_found"
    with pytest.raises(ZBrokerError) as caught:
        _all(client, selector="HEADER(book) = 'b3'")
    assert caught.value.code == "bad_filter"


@pytest.mark.seed("003-04")
def test_it_is_read_from_a_time(client: Client) -> None:
    messages = _all(client, since="epoch")
    noon = messages[25].time
    assert isinstance(noon, datetime)
    assert noon.astimezone(UTC) == noon
    assert _ids(_all(client, since=noon)) == _expected(25)


@pytest.mark.seed("003-07")
@pytest.mark.seed("003-24")
@pytest.mark.seed("003-26")
def test_it_is_read_from_a_point_that_was_set(broker: LocalBroker, client: Client) -> None:
    assert _ids(_all(client, since="point:noon")) == _expected(25)
    assert "noon" in [row["name"] for row in broker.ask("/points")["points"]]
    with pytest.raises(ZBrokerError) as caught:
        _all(client, since="point:midnight")
    assert caught.value.code == "unknown_point"


@pytest.mark.seed("003-22")
def test_who_opens_it_says_where(client: Client) -> None:
    with pytest.raises(ZBrokerError) as caught:
        client.consume("trades")
    assert caught.value.code == "bad_field"


@pytest.mark.seed("003-17")
def test_a_queue_is_not_replayable_by_default(client: Client) -> None:
    with pytest.raises(ZBrokerError) as caught:
        client.consume("work", since="epoch")
    assert caught.value.code == "bad_field"


@pytest.mark.seed("003-18")
def test_a_second_consumer_is_refused(broker: LocalBroker, client: Client) -> None:
    with client.consume("trades", since="epoch") as first:
        assert first.fetch(timeout=5)
        with connect(broker.url, name="other") as other:
            with pytest.raises(ZBrokerError) as caught:
                other.consume("trades", since="epoch", timeout=1)
            assert caught.value.code == "resource_locked"
    assert _ids(_all(client, since="epoch")) == _expected(0)


@pytest.mark.seed("003-11")
@pytest.mark.seed("003-27")
@pytest.mark.seed("004-15")
def test_reading_writes_nothing(broker: LocalBroker, client: Client) -> None:
    before = broker.status()["journal"]["written"]
    assert len(_all(client, since="epoch")) == TRADES
    after = broker.status()["journal"]["written"]
    assert after == before, "a client that only consumes has no name in the log either"


@pytest.mark.seed("003-05")
@pytest.mark.seed("003-20")
def test_an_acknowledgement_is_stored_and_shown_and_moves_nothing(
    broker: LocalBroker, client: Client
) -> None:
    with client.consume("trades", since="epoch") as consumer:
        first = consumer.fetch(1, timeout=5)[0]
        first.ack()
        consumer.flush(timeout=WAIT_S)
    again = _all(client, since="epoch")
    assert _ids(again) == _expected(0)
    assert [m.acked for m in again[:2]] == [True, False]
    rows = broker.ask("/queues/trades/browse?limit=2")["messages"]
    assert [row["state"] for row in rows] == ["acked", "kept"]


@pytest.mark.seed("003-09")
def test_the_database_of_a_consumer_says_where_it_goes_on(client: Client) -> None:
    books = sqlite3.connect(":memory:")
    books.execute("CREATE TABLE trades (trade_id TEXT PRIMARY KEY)")

    def book(most: int) -> None:
        """Some trades after the last one that is booked; then it dies."""
        (last,) = books.execute("SELECT max(trade_id) FROM trades").fetchone()
        place = {"selector": f"/trade_id = '{last}'"} if last else {"since": "epoch"}
        with client.consume("trades", until="now", **place) as consumer:
            for message in itertools.islice(consumer, most):
                row = (json.loads(message.data)["trade_id"],)
                with books:
                    books.execute("INSERT OR IGNORE INTO trades VALUES (?)", row)

    for most in (7, 20, TRADES):
        book(most)
    found = [row[0] for row in books.execute("SELECT trade_id FROM trades ORDER BY trade_id")]
    assert found == _expected(0)


@pytest.mark.seed("003-29")
@pytest.mark.seed("003-32")
def test_a_purge_up_to_a_point_touches_no_one_else(broker: LocalBroker, client: Client) -> None:
    reported = broker.ask("/queues/purged/purge", {"point": "noon", "dry_run": True})
    assert reported["count"] == 25
    assert queue_row(broker, "purged")["depth"] == TRADES
    with client.consume("work") as worker:
        held = worker.fetch(10, timeout=5)
        assert broker.ask("/queues/purged/purge", {"point": "noon"})["count"] == 25
        until(lambda: queue_row(broker, "purged")["depth"] == 25, "it was purged")
        for message in held:
            message.release()
        worker.flush(timeout=WAIT_S)
    with client.consume("purged", since="epoch", until="now") as consumer:
        assert _ids(list(consumer)) == _expected(25)
    assert _ids(_all(client, since="epoch")) == _expected(0)
    assert queue_row(broker, "work")["depth"] == TRADES


@pytest.mark.seed("003-35")
def test_an_alarm_names_a_queue_that_has_become_too_large(broker: LocalBroker) -> None:
    def reported() -> bool:
        return any("small" in str(each) for each in broker.status()["alarms"])

    until(reported, "the alarm is there")


@pytest.mark.seed("003-30")
def test_a_purge_and_points_survive_a_restart(tmp_path: Any) -> None:
    settings = {"queue": [{"name": "trades", "topic": "trades", "kind": "replayable"}]}
    with LocalBroker(tmp_path / "d", settings=settings) as broker:
        with connect(broker.url, name="desk") as trader:
            trader.publish_many("trades", [b'{"n": 1}', b'{"n": 2}'])
            trader.flush(timeout=WAIT_S)
            broker.ask("/points", {"name": "end"})
            trader.publish("trades", b'{"n": 3}').wait(timeout=WAIT_S)
        broker.ask("/queues/trades/purge", {"point": "end"})
        until(lambda: queue_row(broker, "trades")["depth"] == 1, "it was purged")
    with LocalBroker(tmp_path / "d", settings=settings) as broker:
        assert queue_row(broker, "trades")["depth"] == 1
        with (
            connect(broker.url, name="books") as client,
            client.consume("trades", since="point:end", until="now") as consumer,
        ):
            assert [m.data for m in consumer] == [b'{"n": 3}']


@pytest.mark.seed("003-34")
def test_a_bounded_queue_lets_the_log_of_other_topics_be_removed(tmp_path: Any) -> None:
    settings = {
        "journal": {"segment_size": "1MiB"},
        "retention": {"max_bytes": "4MiB", "remove_share_max": 100, "every": "1s"},
        "queue": [
            {"name": "trades", "topic": "trades", "kind": "replayable", "max_hold": "3MiB"},
        ],
    }
    with (
        LocalBroker(tmp_path / "d", settings=settings) as broker,
        connect(broker.url, name="desk") as trader,
    ):
        trader.publish("trades", b"{}").wait(timeout=WAIT_S)
        until(lambda: queue_row(broker, "trades")["depth"] == 1, "it is in the queue")
        while broker.status()["journal"]["segments"] < 6:
            trader.publish_many("others", [bytes(50_000)] * 10)
            trader.flush(timeout=WAIT_S)

        def removed() -> bool:
            """Snapshots come with new segments, so others go on publishing meanwhile."""
            trader.publish_many("others", [bytes(50_000)] * 10)
            trader.flush(timeout=WAIT_S)
            return bool(broker.status()["journal"]["oldest"] > 1)

        until(removed, "segments were removed", 30)
        assert queue_row(broker, "trades")["depth"] == 0
        trader.publish("trades", b"{}").wait(timeout=WAIT_S)
        until(lambda: queue_row(broker, "trades")["depth"] == 1, "it takes what is new")
