"""No answer of a running instance has an id that a reader of JSON would round."""

from __future__ import annotations

from typing import Any

import pytest

from tests.json_ids import SAFE_MAX, rounded
from zbroker.client import connect
from zbroker.ids import publisher_id
from zbroker.local import LocalBroker

pytestmark = pytest.mark.process

PATHS = (
    "/status", "/journal", "/holders", "/actions", "/clients", "/subscriptions", "/topics",
    "/queues", "/queues/work", "/queues/work/browse", "/queues/work/explain",
    "/queues/work/consumers", "/points", "/history",
)  # fmt: skip


def test_ids_are_text_over_http() -> None:
    assert publisher_id("pricer") > SAFE_MAX
    settings: Any = {"queue": [{"name": "work", "topic": "orders"}]}
    with LocalBroker(settings=settings) as broker, connect(broker.url, "pricer") as client:
        client.publish_many("orders", [b"1", b"2"])
        client.flush(timeout=30)
        broker.ask("/points", {"name": "here"})
        with client.subscribe("orders", since="epoch") as subscription:
            subscription.next(timeout=30)
            found = {path: broker.ask(path) for path in PATHS}
    reported = {row["publisher"] for row in found["/clients"]["clients"]}
    assert reported == {str(publisher_id("pricer")), None}
    assert [(path, at) for path, answer in found.items() for at in rounded(answer)] == []
