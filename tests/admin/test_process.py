"""The admin of a real instance: what it tells over HTTP is what happened."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import zbroker
from zbroker.local import LocalBroker

LIMIT_S = 10.0
TRIES = 2_000

pytestmark = pytest.mark.process


class Bench:
    """An instance to which a client has published."""

    def __init__(self, data: Path, broker: LocalBroker) -> None:
        self.data = data
        self.base = json.loads((data / "run/instance.json").read_text())["endpoints"]["admin"]
        with zbroker.connect(broker.url, name="pricer") as client:
            for number in range(30):
                client.publish(f"orders.{number % 3}", b"x")
            client.flush(timeout=LIMIT_S)

    def text(self, path: str) -> str:
        with urllib.request.urlopen(self.base + path, timeout=LIMIT_S) as answer:
            return str(answer.read().decode())

    def get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text(path))
        return found


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    data = tmp_path_factory.mktemp("admin") / "data"
    with LocalBroker(data) as broker:
        yield Bench(data, broker)


def test_it_is_ready(bench: Bench) -> None:
    assert bench.get("/health") == {"state": "ready"}


def test_topics_are_those_of_the_log(bench: Bench) -> None:
    found = next(found for _ in range(TRIES) if (found := bench.get("/topics"))["complete"])
    assert {row["topic"]: row["messages"] for row in found["topics"]} == {
        "orders.0": 10, "orders.1": 10, "orders.2": 10,
    }  # fmt: skip
    assert {row["recorded"] for row in found["topics"]} == {True}


def test_prometheus_can_read_it(bench: Bench) -> None:
    def persisted() -> float:
        families = text_string_to_metric_families(bench.text("/metrics"))
        samples = {sample.name: sample.value for each in families for sample in each.samples}
        return samples["zbroker_log_persisted_position"]

    assert any(persisted() > 30 for _ in range(TRIES)), "processes tell theirs twice a second"


def test_who_asks_is_kept_out_of_what_changes(bench: Bench) -> None:
    request = urllib.request.Request(bench.base + "/journal/reindex", b"{}")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=LIMIT_S)
    [entry] = bench.get("/audit")["entries"]
    assert (entry["what"], entry["outcome"]) == ("POST /journal/reindex", "forbidden")
    for name in ("audit", "run/admin.token", "run/admin-read.token"):
        assert (bench.data / name).stat().st_mode & 0o777 == 0o600


def test_the_page_of_the_console_is_there(bench: Bench) -> None:
    assert "<html" in bench.text("/")
