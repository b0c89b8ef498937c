"""A point that is set at one of two instances is the same at both."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.process.instances import WAIT_S, Instances, Peer
from tests.process.load import until
from tests.process.test_replicated_queues import publish, started
from zbroker.client import connect
from zbroker.errors import ZBrokerError

pytestmark = [pytest.mark.process, pytest.mark.timeout(300), pytest.mark.seed("003-26")]

TRADES: Final = {"name": "trades", "topic": "t", "kind": "replayable", "scope": "distributed"}
SOME: Final = 5


def points(peer: Peer) -> dict[str, Any]:
    rows = peer.running.ask("/points")["points"]
    assert {row["scope"] for row in rows} <= {"distributed"}
    return {row["name"]: row["vector"] for row in rows}


def depth(peer: Peer) -> int:
    return int(peer.running.ask("/queues/trades")["depth"])


def left(peer: Peer) -> dict[str, list[bytes]]:
    """What comes after the point, for a subscription and for a consumer."""
    with connect(peer.url) as client:
        subscribed = client.subscribe("t", since="point:eod", until="now")
        found = {"subscription": sorted(message.data for message in subscribed)}
        consumer = client.consume("trades", since="point:eod", until="now")
        return {**found, "consumer": sorted(message.data for message in consumer)}


def test_it_is_used_and_removed_at_the_other_one() -> None:
    with Instances(2, starts=False) as instances:
        a, b = started(instances, TRADES)
        with connect(a.url, "pa") as at_a, connect(b.url, "pb") as at_b:
            publish(at_a, SOME)
            publish(at_b, SOME)
            until(lambda: [depth(a), depth(b)] == [2 * SOME] * 2, "both have all")
            vector = a.running.ask("/points", {"name": "eod"})["vector"]
            until(lambda: points(b) == {"eod": vector}, "b knows the point")
            at_b.publish("t", b"after", timeout=WAIT_S)
            at_b.flush(timeout=WAIT_S)
            until(lambda: depth(a) == 2 * SOME + 1, "a has the last one")
        after = {"subscription": [b"after"], "consumer": [b"after"]}
        assert [left(a), left(b)] == [after, after]
        [row] = b.running.ask("/points?name=eod")["points"]
        assert row["position"] > 0

        b.close()
        b.start()
        assert points(b) == {"eod": vector}
        assert left(b) == after
        purged = b.running.ask("/queues/trades/purge", {"point": "eod"})
        assert purged["count"] == 2 * SOME
        until(lambda: depth(a) == 1, "a knows of the purge")

        b.running.ask("/points/remove", {"name": "eod"})
        assert points(b) == {}
        until(lambda: points(a) == {}, "a knows of the removal")
        a.kill()
        a.start()
        assert points(a) == {}
        with pytest.raises(ZBrokerError, match="there is no point 'eod'"):
            left(a)
