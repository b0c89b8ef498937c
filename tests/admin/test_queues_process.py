"""Queues of a real instance, made, looked at and emptied over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

import zbroker
from zbroker.local import LocalBroker

LIMIT_S = 10.0
TRIES = 2_000
NAME = "work/a b"
PATH = f"/queues/{quote(NAME, safe='')}"

pytestmark = pytest.mark.process


class Bench:
    """An instance with 30 messages on `orders`."""

    def __init__(self, data: Path, broker: LocalBroker) -> None:
        self.base = json.loads((data / "run/instance.json").read_text())["endpoints"]["admin"]
        self.token = (data / "run/admin.token").read_text().strip()
        with zbroker.connect(broker.url, name="pricer") as client:
            client.publish_many("orders", [b'{"n": %d}' % n for n in range(30)])
            client.flush(timeout=LIMIT_S)

    def text(self, path: str) -> str:
        with urllib.request.urlopen(self.base + path, timeout=LIMIT_S) as answer:
            return str(answer.read().decode())

    def get(self, path: str) -> Any:
        return json.loads(self.text(path))

    def post(self, path: str, **body: object) -> Any:
        headers = {"X-ZBroker-Token": self.token}
        request = urllib.request.Request(self.base + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return json.load(answer)


def until(holds: Callable[[], bool]) -> None:
    """The process reads the log by itself, and tells once a second."""
    assert any(holds() for _ in range(TRIES))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    data = tmp_path / "data"
    with LocalBroker(data) as broker:
        yield Bench(data, broker)


def test_a_queue_is_made_looked_at_emptied_and_deleted(bench: Bench) -> None:
    settings = {"topic": "orders", "lease": "5s"}
    assert bench.post(f"{PATH}/create", definition=settings, dry_run=True)["dry_run"]
    assert bench.get("/queues")["queues"] == []
    bench.post(f"{PATH}/create", definition=settings)
    until(lambda: bench.get(PATH)["depth"] == 30)
    found = bench.get(PATH)
    assert (found["name"], found["source"], found["definition"]["lease"]) == (NAME, "admin", 5_000)
    rows = bench.get(f"{PATH}/browse?data=1&limit=2")
    assert [row["data"] for row in rows["messages"]] == ['{"n": 0}', '{"n": 1}']
    third = rows["messages"][-1]["position"] + 1
    assert bench.get(f"{PATH}/consumers")["consumers"] == []
    assert bench.get(f"{PATH}/explain")["lines"]
    assert bench.get(f"{PATH}/explain?position={third}")["state"] == "ready"
    assert bench.post("/points", name="third", at=third)["position"] == third
    assert [point["name"] for point in bench.get("/points")["points"]] == ["third"]
    assert bench.post(f"{PATH}/purge", point="third", dry_run=True)["count"] == 2
    assert bench.post(f"{PATH}/purge", point="third")["count"] == 2
    until(lambda: bench.get(PATH)["depth"] == 28)
    bench.post(f"{PATH}/alter", definition={"lease": "1m"})
    until(lambda: bench.get(PATH)["definition"]["lease"] == 60_000)
    until(lambda: bench.get("/status")["queues"]["depth"] == 28)
    families = text_string_to_metric_families(bench.text("/metrics"))
    depths = [s for each in families for s in each.samples if s.name == "zbroker_queue_depth"]
    assert [(sample.labels, sample.value) for sample in depths] == [({"queue": NAME}, 28)]
    bench.post(f"{PATH}/delete")
    until(lambda: bench.get("/queues")["queues"] == [])
    with pytest.raises(urllib.error.HTTPError, match="404"):
        bench.get(PATH)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        bench.post(f"{PATH}/purge", all=True)
