"""A real broker with topics of BSON, Protocol Buffers and XML: filters, select, queues, tools."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import bson
import pytest

from tests.formats.describing import SHOP, order
from zbroker.client import Client, connect
from zbroker.formats import protobuf_type
from zbroker.local import LocalBroker
from zbroker.spark import plan_ranges, replay

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

T = 20.0
MESSAGES = {
    "b": [bson.encode({"a": n, "s": "x"}) for n in range(4)],
    "p": [order(a=n, b="x").SerializeToString() for n in range(4)],
    "x": [b'<o a="%d"><s>x</s></o>' % n for n in range(4)],
}
FILTERS = {"b": "/a >= 2", "p": "/a >= 2", "x": "/o/@a >= 2"}
SELECTS = {"b": "-/,+/a", "p": "-/,+/a", "x": "-/,+/o/@a"}
SELECTED = {
    "b": [bson.encode({"a": n}) for n in (2, 3)],
    "p": [order(a=n).SerializeToString() for n in (2, 3)],
    "x": [b'<o a="2"/>', b'<o a="3"/>'],
}
SHOWN = {"b": {"a": 3, "s": "x"}, "x": {"o": {"@a": "3", "s": "x"}}}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    described = tmp_path_factory.mktemp("described") / "shop.binpb"
    described.write_bytes(SHOP)
    record = [
        {"topic": "b", "type": "bson"},
        {
            "topic": "p", "type": "protobuf", "message": "shop.Order",
            "descriptors": str(described),
        },
        {"topic": "x", "type": "xml"},
    ]  # fmt: skip
    queue = [{"name": f"q{topic}", "topic": topic, "filter": FILTERS[topic]} for topic in MESSAGES]
    with LocalBroker(settings={"record": record, "queue": queue}) as running:
        with connect(running.url, "types", timeout=T) as client:
            for topic, messages in MESSAGES.items():
                client.publish_many(topic, messages, timeout=T)
            client.flush(T)
        yield running


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[Client]:
    with connect(broker.url, timeout=T) as running:
        yield running


@pytest.mark.seed("004-27")
@pytest.mark.parametrize("topic", MESSAGES)
def test_a_filter_reads_a_payload_by_the_type_of_its_topic(client: Client, topic: str) -> None:
    found = client.subscribe(topic, since="epoch", until="now", filter=FILTERS[topic])
    assert [message.data for message in found] == MESSAGES[topic][2:]


@pytest.mark.parametrize("topic", MESSAGES)
def test_a_select_leaves_out_parts_of_it(client: Client, topic: str) -> None:
    found = client.subscribe(
        topic, since="epoch", until="now", filter=FILTERS[topic], select=SELECTS[topic]
    )
    assert [message.data for message in found] == SELECTED[topic]


@pytest.mark.parametrize("topic", MESSAGES)
def test_a_queue_has_a_filter_of_it(client: Client, topic: str) -> None:
    with client.consume(f"q{topic}") as consumer:
        for expected in MESSAGES[topic][2:]:
            [message] = consumer.fetch(1, timeout=T)
            assert message.data == expected
            message.ack()


@pytest.mark.parametrize("topic", SHOWN)
def test_a_tool_shows_it(broker: LocalBroker, topic: str) -> None:
    command = [
        sys.executable, "-m", "zbroker.cli.admin_main", "--data-dir", str(broker.data_dir),
        "-c", str(Path(broker.data_dir).parent / "zbroker.toml"), "journal", "dump", "--topic",
        topic, "--json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=T, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[-1]["value"] == SHOWN[topic]


def test_spark_reads_it_by_the_text_of_its_type(broker: LocalBroker) -> None:
    ranges = plan_ranges(
        broker.data_dir, topic="p", filter="/a >= 2", filter_type=protobuf_type(SHOP, "shop.Order")
    )
    assert [one.data for part in ranges for one in replay(part)] == MESSAGES["p"][2:]
