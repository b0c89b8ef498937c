"""zbroker/admin/document.py: what the status says."""

from __future__ import annotations

from zbroker.admin.document import LocalFacts, delivery_of, document, stats_of
from zbroker.wire.internal import Status

ALARM = {"code": "disk_80"}
RATES = {"messages_in_s": 3.5}
QUEUES = {"count": 1, "depth": 5}
SECURITY = {"on": False, "access_version": 0, "problem": ""}


def here(**running: str) -> LocalFacts:
    return LocalFacts(running, [ALARM], "/data", RATES, SECURITY, QUEUES)


def _room(room: str, **stats: int | float | str) -> dict[str, object]:
    return {
        "room": room,
        "pid": 7,
        "state": "ready",
        "restarts": 1,
        "uptime_s": 5,
        "progress": "",
        "endpoint": "",
        "stats": stats,
    }


def test_the_document_has_the_published_keys() -> None:
    rooms = [
        _room("supervisor"),
        _room("journal", messages=4, first_position=1, written=9, persisted=8, segments=1, bytes=10,
              durability="disk"),
        _room("ingest", clients=3, errors=0),
        _room("delivery", clients=2, subscriptions=6),
    ]  # fmt: skip
    running = {"instance": "a1", "name": "n", "url": "tcp://127.0.0.1:1", "version": "0.1.0"}
    found = document(Status(1, "ready", rooms), here(**running))  # type: ignore[arg-type]
    assert {"instance", "state", "url", "version", "processes", "journal"} <= set(found)
    assert (found["instance"], found["state"]) == ("a1", "ready")
    assert list(found["journal"]) == [
        "first_position", "written", "persisted", "segments", "bytes", "durability", "messages",
    ]  # fmt: skip
    assert (found["clients"], found["subscriptions"]) == (3, 6)
    assert (found["alarms"], found["data_dir"]) == ([ALARM], "/data")
    assert (found["rates"], found["security"], found["queues"]) == (RATES, SECURITY, QUEUES)
    assert found["processes"][1] == {
        "room": "journal",
        "pid": 7,
        "state": "ready",
        "restarts": 1,
        "uptime_s": 5,
        "progress": "",
    }


def test_the_numbers_of_delivery_workers_are_added_up() -> None:
    rooms = [
        _room("delivery", clients=2, subscriptions=6, note="a"),
        _room("delivery-2", clients=3, subscriptions=1, note="b", dropped=4),
        _room("admin", alarms=1),
    ]
    found = document(Status(1, "ready", rooms), here())  # type: ignore[arg-type]
    assert found["delivery"] == {"clients": 5, "subscriptions": 7, "note": "a", "dropped": 4}
    assert found["subscriptions"] == 7
    assert [process["room"] for process in found["processes"]] == [
        "delivery", "delivery-2", "admin",
    ]  # fmt: skip


def test_a_starting_instance_has_a_document_too() -> None:
    found = document(Status(1, "starting", []), here())
    assert (found["state"], found["journal"], found["clients"]) == ("starting", {}, 0)


def test_of_largest_numbers_the_largest_is_told() -> None:
    rooms = [_room("delivery", lag_max=5), _room("delivery-2", lag_max=9), _room("delivery-3")]
    assert delivery_of(stats_of(Status(1, "ready", rooms))) == {"lag_max": 9}  # type: ignore[arg-type]
