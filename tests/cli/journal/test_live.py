"""The commands that change something, against a real instance that is published to meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import zbroker
from tests.cli.journals import admin
from zbroker import LocalBroker
from zbroker.cli.admin_main import main

pytestmark = pytest.mark.process

BATCHES = 60
SETTINGS = {"journal": {"segment_size": "1MiB"}}


class Load:
    """A publisher that goes on until it is asked to stop. `sent`: payloads, in order."""

    def __init__(self, broker: LocalBroker, batches: int = BATCHES) -> None:
        self._batches = batches
        self.sent: list[bytes] = []
        self._broker = broker
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._filled = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._filled.wait(60), "the first segments were not written"

    def _run(self) -> None:
        try:
            with zbroker.connect(self._broker.url, name="load") as client:
                while not self._stop.wait(0.005):
                    number = len(self.sent)
                    batch = [b"%d " % (number + i) + b"x" * 1_000 for i in range(100)]
                    client.publish_many("orders", batch)
                    self.sent += batch
                    client.flush(timeout=30)
                    if len(self.sent) >= self._batches * 100:
                        self._filled.set()
        except BaseException as error:
            self._failed = error
            self._filled.set()

    def stop(self) -> list[bytes]:
        self._stop.set()
        self._thread.join(60)
        assert self._failed is None, self._failed
        return self.sent


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with LocalBroker(tmp_path / "data", settings=SETTINGS) as running:
        yield running


def reported(broker: LocalBroker, *arguments: str) -> Any:
    result = admin(broker.data_dir, "--json", "journal", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def replayed(url: str) -> list[bytes]:
    with zbroker.connect(url, name="reader") as client:
        return [message.data for message in client.subscribe("orders", since="epoch", until="now")]


@pytest.mark.seed("004-92")
@pytest.mark.seed("004-93")
def test_segments_are_managed_while_the_log_is_written(broker: LocalBroker, tmp_path: Path) -> None:
    load = Load(broker)
    try:
        assert reported(broker, "archive", "--through", "2")["result"] == "done"
        assert reported(broker, "compress", "--through", "3")["result"] == "done"
        copy = reported(broker, "export", "--output", str(tmp_path / "copy"))
        assert (copy["verified"], copy["live"]) == (True, True)
        found = reported(broker, "rebuild-index")
        assert found["result"] == "done"
        assert reported(broker, "remove", "--through", "1")["result"] == "done"
    finally:
        sent = load.stop()
    rows = reported(broker, "ls")["segments"]
    assert [(row["serial"], row["place"], row["packed"]) for row in rows[:2]] == [
        (2, "archive", True), (3, "journal", True),
    ]  # fmt: skip
    assert reported(broker, "verify")["ok"] is True
    seen = replayed(broker.url)
    assert seen == sent[-len(seen) :]
    assert 0 < len(seen) < len(sent)
    check_copy(tmp_path / "copy", sent)
    actions = json.loads(admin(broker.data_dir, "--json", "action", "ls").stdout)["actions"]
    assert [one["action"] for one in actions if one["by"] == "hand"] == [
        "remove", "reindex", "compress", "archive",
    ]  # fmt: skip


def check_copy(copy: Path, sent: list[bytes]) -> None:
    """An instance on the copy has what was durable when it was made, and goes on with it."""
    with LocalBroker(copy, settings=SETTINGS) as second:
        seen = replayed(second.url)
        assert seen == sent[: len(seen)]
        assert len(seen) >= BATCHES * 100
        with zbroker.connect(second.url, name="load") as client:
            assert client.publish("orders", b"on the copy").wait(timeout=10)


def test_an_instance_is_found_by_its_url(broker: LocalBroker) -> None:
    load = Load(broker)
    load.stop()

    def by_url(*arguments: str) -> Any:
        result = CliRunner().invoke(main, ["--url", broker.url, "--json", *arguments])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    assert by_url("journal", "ls")["segments"][0]["serial"] == 1
    assert by_url("journal", "holders")["floor"] == 1
    assert by_url("journal", "info")["floor"] == 1
    assert by_url("journal", "grep", "--count", "--topic", "orders")["count"] == len(load.sent)
    plan = by_url("journal", "archive", "--through", "1", "--dry-run")
    assert plan["result"] == "dry run"
    assert by_url("action", "ls")["actions"] == []


@pytest.mark.seed("004-97")
def test_what_a_subscriber_reads_is_not_removed_under_it(broker: LocalBroker) -> None:
    load = Load(broker, 250)  # more than a subscriber is sent before it has taken something
    load.stop()
    with zbroker.connect(broker.url, name="slow") as client:
        subscription = client.subscribe("orders", since="epoch")
        first = next(iter(subscription))
        assert first.data == load.sent[0]
        deadline = time.monotonic() + 10
        while not (holders := reported(broker, "holders")["holders"]):
            assert time.monotonic() < deadline, "no one holds the log"
            time.sleep(0.1)
        assert "orders" in holders[0]["what"]
        result = admin(broker.data_dir, "journal", "remove", "--all-sealed")
        assert result.exit_code == 1
        assert "segment_held" in result.stderr
        subscription.close()
