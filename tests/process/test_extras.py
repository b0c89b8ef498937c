"""Keys, headers and expiry through a real broker: live, replayed, filtered, packed and copied."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from zbroker.client import Message, connect
from zbroker.local import LocalBroker
from zbroker.server.spawn import command
from zbroker.spark import plan_ranges, replay

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

T = 20.0
COUNT = 2_000
EXPIRES = datetime(2000, 1, 1, tzinfo=UTC)  # long ago, and sent all the same
RECORD = {"record": [{"topic": "orders", "filter": "/n % 5 <> 4"}]}


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(settings=RECORD) as running:
        yield running


def extra(n: int) -> dict[str, Any]:
    """What message n is given: nothing, or some of all."""
    return {
        "key": b"k%d" % n if n % 2 else None,
        "headers": {"n": n, "name": "é", "raw": b"\xff"} if n % 3 else None,
        "expires": EXPIRES + timedelta(seconds=n) if n % 7 == 0 else None,
    }


def is_as_given(message: Message) -> bool:
    n = json.loads(message.data)["n"]
    given = extra(n)
    return (message.key, message.headers, message.expires) == (
        given["key"],
        given["headers"] or {},
        given["expires"],
    )


def numbers(messages: list[Message]) -> list[int]:
    assert all(map(is_as_given, messages))
    return [json.loads(message.data)["n"] for message in messages]


def admin(data_dir: Path, *arguments: str) -> str:
    done = subprocess.run(
        command("zbroker.cli.admin_main", "--data-dir", str(data_dir), *arguments),
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout


def test_a_message_keeps_what_it_was_given_wherever_it_goes(
    broker: LocalBroker, tmp_path: Path
) -> None:
    kept = [n for n in range(COUNT) if n % 5 != 4]
    with connect(broker.url, "extras") as client:
        with client.subscribe("orders", since="now", delivery="live") as live:
            for n in range(COUNT):
                client.publish("orders", b'{"n": %d}' % n, **extra(n))
            client.flush(T)
            assert numbers([live.next(T) for _ in kept]) == kept  # type: ignore[misc]
        bounds = {"since": "epoch", "until": "now"}
        assert numbers(list(client.subscribe("orders", **bounds))) == kept
        thirds = client.subscribe("orders", filter="/n % 3 = 0", **bounds)
        assert numbers(list(thirds)) == [n for n in kept if n % 3 == 0]
        newest = client.subscribe("orders", conflation="1h", **bounds)
        assert numbers(list(newest)) == kept[-1:]
        some = replay(plan_ranges(broker.url, topic="orders", min_partitions=1)[0])
        assert numbers(list(some)) == kept
    admin(Path(broker.data_dir), "journal", "export", "--output", str(tmp_path / "copy"))
    rows = admin(tmp_path / "copy", "journal", "dump", "--topic", "orders").splitlines()
    first = next(row for row in map(json.loads, rows) if row["data"] == '{"n": 7}')
    assert (first["key"], first["expires"]) == ("k7", "20000101T000007Z")
    assert first["headers"] == {"n": 7, "name": "é", "raw": {"base64": "/w=="}}
    [log_range] = plan_ranges(tmp_path / "copy" / "journal", min_partitions=1, topic="orders")
    assert numbers(list(replay(log_range))) == kept


def test_headers_take_credit_and_give_it_back() -> None:
    """Both sides count them: else a small credit would be used up for good."""
    headers = {"trace": "x" * 10_000}
    with LocalBroker() as running, connect(running.url, "pricer") as client:
        for number in range(200):
            client.publish("orders", b"%d" % number, headers=headers)
        client.flush(T)
        reader = client.subscribe("orders", since="epoch", until="now", credit=50_000)
        got = [message.data for batch in reader.batches(timeout=T) for message in batch]
    assert got == [b"%d" % number for number in range(200)]
