"""zbroker/admin/core.py: who is answered, and what the status says."""

from __future__ import annotations

from typing import Any

import pytest

from zbroker.admin import core
from zbroker.admin.core import Request
from zbroker.errors import ClientError
from zbroker.wire.internal import Status

ALARM = {"code": "disk_80"}
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
    assert (refusal.status, refusal.code) == (404, "not_found")
    assert all(path in refusal.reason for path in (*core.READS, *core.WRITES))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", [*core.READS, "/actions/7"])
def test_what_is_read_is_read_by_get_only(method: str, path: str) -> None:
    refusal = core.refuse(GOOD._replace(method=method, path=path))
    assert refusal is not None
    assert refusal.status == 405


@pytest.mark.parametrize("path", core.WRITES)
def test_what_changes_something_needs_post(path: str) -> None:
    request = GOOD._replace(path=path, token="t", secret="t")
    refusal = core.refuse(request)
    assert refusal is not None
    assert refusal.status == 405
    assert core.refuse(request._replace(method="POST")) is None


@pytest.mark.parametrize("path", core.WRITES)
@pytest.mark.parametrize(
    ("token", "secret"), [("", "t"), ("x", "t"), ("t ", "t"), ("", ""), ("\xe9", "t")]
)
def test_without_the_token_nothing_is_changed(path: str, token: str, secret: str) -> None:
    refusal = core.refuse(GOOD._replace(method="POST", path=path, token=token, secret=secret))
    assert refusal is not None
    assert (refusal.status, refusal.code) == (403, "forbidden")
    assert secret == "" or secret not in refusal.body()["reason"].split()


def test_the_token_does_not_open_the_door_to_other_hosts() -> None:
    request = GOOD._replace(method="POST", path="/journal/remove", token="t", secret="t")
    assert core.refuse(request) is None
    assert core.refuse(request._replace(peer="192.0.2.1")) is not None
    assert core.refuse(request._replace(host="evil.example")) is not None


@pytest.mark.parametrize(
    ("path", "number"),
    [("/actions/7", 7), ("/actions", None), ("/actions/", None), ("/actions/x", None),
     ("/actions/-1", None), ("/actions/" + "9" * 30, None), ("/actions/7/8", None)],
)  # fmt: skip
def test_an_action_is_named_by_its_number(path: str, number: int | None) -> None:
    assert core.action_number(path) == number


@pytest.mark.parametrize(
    ("length", "encoding", "code"),
    [("", "", "bad_field"), ("x", "", "bad_field"), ("-1", "", "bad_field"),
     ("\u0663", "", "bad_field"), ("65537", "", "too_large"), ("9" * 400, "", "too_large"),
     ("2", "chunked", "bad_field")],
)  # fmt: skip
def test_a_body_without_an_honest_length_is_refused(length: str, encoding: str, code: str) -> None:
    with pytest.raises(ClientError) as caught:
        core.body_length(length, encoding)
    assert caught.value.code == code


def test_a_body_may_have_its_limit() -> None:
    assert core.body_length("65536", "") == core.BODY_MAX_BYTES


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (core.Through, b""),
        (core.Through, b"{}"),
        (core.Through, b'{"through": -1}'),
        (core.Through, b'{"through": "7"}'),
        (core.Through, b'{"through": 7, "dry": true}'),
        (core.Through, b'{"through": 9223372036854775808}'),
        (core.Select, b'{"serials": []}'),
        (core.Select, b"[1]"),
        (core.Select, b"\xff"),
        (core.Select, b"[" * 5_000),
        (core.Nothing, b'{"x": 1}'),
        (core.Hold, b'{"who": "", "what": "", "position": 1, "ttl_s": 1}'),
        (core.Hold, b'{"who": "a", "what": "", "position": 1, "ttl_s": 2592001}'),
        (core.Hold, b'{"who": "a", "what": ""}'),
    ],
)
def test_a_wrong_body_is_refused_with_what_is_wrong(kind: Any, body: bytes) -> None:
    with pytest.raises(ClientError) as caught:
        core.parse(kind, body)
    assert caught.value.code == "bad_field"
    assert core.refusal(caught.value).status == 400


def test_a_request_names_segments_in_one_of_two_ways() -> None:
    assert core.wanted(core.parse(core.Select, b'{"through": 7}')) == (None, 7)
    assert core.wanted(core.parse(core.Select, b'{"serials": [3, 4]}')) == ([3, 4], 0)
    for body in (b"{}", b'{"through": 7, "serials": [3]}'):
        with pytest.raises(ClientError):
            core.wanted(core.parse(core.Select, body))


def test_an_empty_body_asks_for_nothing_special() -> None:
    assert core.parse(core.Nothing, b"") == core.Nothing()


@pytest.mark.parametrize(
    ("code", "status"),
    [("not_ready", 503), ("too_many", 429), ("segment_held", 409), ("bookmark_expired", 400)],
)
def test_a_refusal_carries_code_reason_hint(code: str, status: int) -> None:
    found = core.refusal(ClientError(code, "so it is"))
    assert found.status == status
    assert found.body()["code"] == code
    assert found.body()["reason"] == "so it is"
    assert found.body()["hint"]


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
    found = core.document(Status(1, "ready", rooms), running, [ALARM], "/data")  # type: ignore[arg-type]
    assert {"instance", "state", "url", "version", "processes", "journal"} <= set(found)
    assert (found["instance"], found["state"]) == ("a1", "ready")
    assert list(found["journal"]) == [
        "first_position", "written", "persisted", "segments", "bytes", "durability", "messages",
    ]  # fmt: skip
    assert (found["clients"], found["subscriptions"]) == (3, 6)
    assert (found["alarms"], found["data_dir"]) == ([ALARM], "/data")
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
    found = core.document(Status(1, "ready", rooms), {}, [], "/data")  # type: ignore[arg-type]
    assert found["delivery"] == {"clients": 5, "subscriptions": 7, "note": "a", "dropped": 4}
    assert found["subscriptions"] == 7
    assert [process["room"] for process in found["processes"]] == [
        "delivery", "delivery-2", "admin",
    ]  # fmt: skip


def test_a_starting_instance_has_a_document_too() -> None:
    found = core.document(Status(1, "starting", []), {}, [], "/data")
    assert (found["state"], found["journal"], found["clients"]) == ("starting", {}, 0)
