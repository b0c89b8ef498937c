"""zbroker/admin/documents.py: /status, and values of a queue definition."""

from __future__ import annotations

from typing import Any

import pytest

from zbroker.admin.documents import (
    LocalFacts,
    delivery_of,
    document,
    keys,
    read_definition,
    stats_of,
)
from zbroker.config.queues import QueueConfig
from zbroker.errors import ClientError
from zbroker.wire.supervision import Status

ALARM = {"code": "disk_80"}
RATES = {"messages_in_s": 3.5}
QUEUES = {"count": 1, "depth": 5}
REPLICATION = {"destinations": 1, "up": 1}
SECURITY = {"on": False, "access_version": 0, "problem": ""}


def here(**running: str) -> LocalFacts:
    return LocalFacts(running, [ALARM], "/data", RATES, SECURITY, QUEUES, REPLICATION)


def _process(name: str, **stats: int | float | str) -> dict[str, object]:
    return {
        "room": name,
        "pid": 7,
        "state": "ready",
        "restarts": 1,
        "uptime_s": 5,
        "progress": "",
        "endpoint": "",
        "stats": stats,
    }


def test_the_document_has_the_published_keys() -> None:
    processes = [
        _process("supervisor"),
        _process("journal", messages=4, first_position=1, written=9, persisted=8, segments=1,
                 bytes=10, durability="disk"),
        _process("ingest", clients=3, errors=0),
        _process("delivery", clients=2, subscriptions=6),
    ]  # fmt: skip
    running = {"instance": "a1", "name": "n", "url": "tcp://127.0.0.1:1", "version": "0.1.0"}
    found = document(Status(1, "ready", processes), here(**running))  # type: ignore[arg-type]
    assert {"instance", "state", "url", "version", "processes", "journal"} <= set(found)
    assert (found["instance"], found["state"]) == ("a1", "ready")
    assert list(found["journal"]) == [
        "first_position", "written", "persisted", "segments", "bytes", "durability", "messages",
    ]  # fmt: skip
    assert (found["clients"], found["subscriptions"]) == (3, 6)
    assert (found["alarms"], found["data_dir"]) == ([ALARM], "/data")
    assert (found["rates"], found["security"], found["queues"]) == (RATES, SECURITY, QUEUES)
    assert found["replication"] == REPLICATION
    assert found["processes"][1] == {
        "room": "journal",
        "pid": 7,
        "state": "ready",
        "restarts": 1,
        "uptime_s": 5,
        "progress": "",
    }


def test_the_numbers_of_delivery_workers_are_added_up() -> None:
    processes = [
        _process("delivery", clients=2, subscriptions=6, note="a"),
        _process("delivery-2", clients=3, subscriptions=1, note="b", dropped=4),
        _process("admin", alarms=1),
    ]
    found = document(Status(1, "ready", processes), here())  # type: ignore[arg-type]
    assert found["delivery"] == {"clients": 5, "subscriptions": 7, "note": "a", "dropped": 4}
    assert found["subscriptions"] == 7
    assert [process["room"] for process in found["processes"]] == [
        "delivery", "delivery-2", "admin",
    ]  # fmt: skip


def test_a_starting_instance_has_a_document_too() -> None:
    found = document(Status(1, "starting", []), here())
    assert (found["state"], found["journal"], found["clients"]) == ("starting", {}, 0)


def test_of_largest_numbers_the_largest_is_reported() -> None:
    processes = [
        _process("delivery", lag_max=5),
        _process("delivery-2", lag_max=9),
        _process("delivery-3"),
    ]
    assert delivery_of(stats_of(Status(1, "ready", processes))) == {"lag_max": 9}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "value", "text", "found"),
    [
        ("lease", "30s", "30s", 30_000),
        ("lease", 5, "5", 5),
        ("size_alarm", "2GiB", "2GiB", 2 << 30),
        ("retry_delay", ["1s", 10_000], "1s, 10s", [1_000, 10_000]),
        ("retry_delay", [], "", []),
        ("regex", True, "true", True),
        ("regex", False, "false", False),
        ("max_backlog", 7, "7", 7),
        ("topic", "30s", "30s", "30s"),
        ("kind", "replayable", "replayable", "replayable"),
        ("filter", "/price > 100", "/price > 100", "/price > 100"),
    ],
)
def test_a_value_has_its_type(key: str, value: Any, text: str, found: Any) -> None:
    assert read_definition({key: value}) == {key: found}
    assert read_definition({key: text}, texts=True) == {key: found}


@pytest.mark.parametrize(
    ("key", "value", "reported"),
    [
        ("lease", "long", "not a duration"),
        ("lease", -1, ">= 0"),
        ("lease", None, "int"),
        ("lease", ["1s"], "int"),
        ("size_alarm", "30s", "not a size"),
        ("retry_delay", "1s", "array"),
        ("retry_delay", ["1s", "x"], "not a duration"),
        ("regex", "true", "bool"),
        ("max_backlog", "7", "int"),
        ("max_per_subscription", -1, ">= 0"),
        ("kind", "heap", "enum"),
        ("topic", 7, "str"),
    ],
)
def test_a_wrong_value_names_its_key(key: str, value: Any, reported: str) -> None:
    with pytest.raises(ClientError, match=reported) as caught:
        read_definition({key: value})
    assert caught.value.code == "bad_queue"
    assert f"`{key}`" in caught.value.reason
    assert caught.value.hint


@pytest.mark.parametrize(
    ("key", "text"), [("regex", "maybe"), ("max_backlog", "many"), ("retry_delay", "1s,soon")]
)
def test_a_wrong_text_is_refused(key: str, text: str) -> None:
    with pytest.raises(ClientError, match=f"`{key}`"):
        read_definition({key: text}, texts=True)


def test_an_unknown_key_has_a_neighbour() -> None:
    with pytest.raises(ClientError) as caught:
        read_definition({"leese": 1})
    assert caught.value.hint == "did you mean `lease`?"
    with pytest.raises(ClientError, match="no `zzz`") as caught:
        read_definition({"zzz": 1})
    assert all(key in caught.value.hint for key in keys())


def test_every_key_but_the_name_can_be_given() -> None:
    assert set(keys()) == set(QueueConfig.__struct_fields__) - {"name"}
    with pytest.raises(ClientError):
        read_definition({"name": "x"})
