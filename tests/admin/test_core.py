"""zbroker/admin/core.py: who is answered, and what the status says."""

from __future__ import annotations

import pytest

from zbroker.admin import core
from zbroker.admin.core import Request
from zbroker.wire.internal import Status

GOOD = Request("GET", "/status", "127.0.0.1:9105", "127.0.0.1")


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9105", "localhost", "LOCALHOST:1", "[::1]:9105", "[::1]"]
)
def test_the_loopback_names_are_answered(host: str) -> None:
    assert core.refuse(GOOD._replace(host=host)) is None


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:9105", "127.0.0.1.evil.example"]
)
def test_another_name_for_loopback_is_refused(host: str) -> None:
    refusal = core.refuse(GOOD._replace(host=host))
    assert refusal is not None
    assert refusal.status == 403


@pytest.mark.parametrize("peer", ["192.0.2.1", "", "::ffff:192.0.2.1"])
def test_a_peer_from_elsewhere_is_refused(peer: str) -> None:
    refusal = core.refuse(GOOD._replace(peer=peer))
    assert refusal is not None
    assert refusal.status == 403


def test_an_unknown_path_says_which_there_are() -> None:
    refusal = core.refuse(GOOD._replace(path="/"))
    assert refusal is not None
    assert refusal.status == 404
    assert refusal.body() == {"code": "not_found", "reason": "no such path; there are: /status"}


def test_another_method_is_refused() -> None:
    refusal = core.refuse(GOOD._replace(method="POST"))
    assert refusal is not None
    assert refusal.status == 405


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
    found = core.document(Status(1, "ready", rooms), running)  # type: ignore[arg-type]
    assert {"instance", "state", "url", "version", "processes", "journal"} <= set(found)
    assert (found["instance"], found["state"]) == ("a1", "ready")
    assert list(found["journal"]) == [
        "first_position", "written", "persisted", "segments", "bytes", "durability", "messages",
    ]  # fmt: skip
    assert (found["clients"], found["subscriptions"]) == (3, 6)
    assert found["processes"][1] == {
        "room": "journal",
        "pid": 7,
        "state": "ready",
        "restarts": 1,
        "uptime_s": 5,
        "progress": "",
    }


def test_a_starting_instance_has_a_document_too() -> None:
    found = core.document(Status(1, "starting", []), {})
    assert (found["state"], found["journal"], found["clients"]) == ("starting", {}, 0)
