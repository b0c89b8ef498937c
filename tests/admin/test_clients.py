"""GET /clients: the connections of all doors; and how those of one client are ended."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from zbroker.admin.clients import ClientReports
from zbroker.admin.requests import ClientsQuery
from zbroker.errors import ClientError
from zbroker.server.disconnects_file import DisconnectsFile
from zbroker.wire import surveys as s

KEYS = {
    "door", "room", "client", "principal", "instance", "address", "connected_s", "session",
    "publisher", "acked", "window_bytes", "messages", "subscriptions", "heartbeat_s",
}  # fmt: skip


def row(client: str, **more: Any) -> s.ClientRow:
    made = s.ClientRow(client, "p", "i", "127.0.0.1:5", 1_500, 7, 9, 40, 100, 3, 0, 30.0)
    for key, value in more.items():
        setattr(made, key, value)
    return made


class Desks:
    """Rooms that answer what the test says."""

    rooms = ("ingest", "delivery", "delivery-2")

    def __init__(self) -> None:
        self.told: dict[str, Any] = dict.fromkeys(self.rooms)
        self.asked: list[Any] = []

    def ask(self, answer: type, question: Any, rooms: Any) -> dict[str, Any]:
        assert list(rooms) == list(self.rooms)
        assert all(told is None or isinstance(told, answer) for told in self.told.values())
        self.asked.append(question)
        return self.told


class Bench:
    def __init__(self, data: Path) -> None:
        self.desks = Desks()
        desks: Any = self.desks
        self.disconnects = DisconnectsFile(data / "disconnects.json", logging.getLogger("test"))
        self.clients = ClientReports(desks, self.disconnects)

    def rows(self, room: str, *rows: s.ClientRow, left_out: int = 0) -> None:
        self.desks.told[room] = s.Clients(1, list(rows), left_out)

    def ended(self, *counts: int | None) -> None:
        for room, count in zip(self.desks.rooms, counts, strict=True):
            self.desks.told[room] = None if count is None else s.Disconnected(1, count)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    for room in made.desks.rooms:
        made.rows(room)
    return made


def test_a_row_has_the_published_keys(bench: Bench) -> None:
    bench.rows("delivery-2", row("ann", connected_ms=None, publisher=None, acked=None))
    bench.rows("ingest", row("ann"))
    found = bench.clients.answer(ClientsQuery())
    assert json.loads(json.dumps(found)) == found
    other, one = found["clients"]
    assert one["publisher"] == "9"  # text: it may be above 2**53
    assert set(one) == set(other) == KEYS
    assert (one["door"], one["room"], one["connected_s"]) == ("ingest", "ingest", 1.5)
    assert (other["door"], other["room"], other["connected_s"]) == ("delivery", "delivery-2", None)


def test_doors_are_told_as_one_list(bench: Bench) -> None:
    bench.rows("ingest", row("a"), row("c"), left_out=2)
    bench.rows("delivery", row("b"), row("d"), left_out=1)
    found = bench.clients.answer(ClientsQuery(limit=3))
    assert [told["client"] for told in found["clients"]] == ["a", "b", "c"]
    assert (found["left_out"], found["silent"]) == (4, [])


def test_a_room_that_does_not_answer_is_named(bench: Bench) -> None:
    bench.desks.told["delivery"] = None
    assert bench.clients.answer(ClientsQuery())["silent"] == ["delivery"]


def test_what_is_wanted_goes_to_the_rooms(bench: Bench) -> None:
    bench.clients.answer(ClientsQuery("ann", 7))
    assert bench.desks.asked == [s.AskClients(0, "ann", 7)]


def test_a_client_is_ended_at_every_door(bench: Bench) -> None:
    bench.ended(1, 0, 2)
    assert bench.clients.disconnect("ann") == {"disconnected": 3}
    assert bench.desks.asked == [s.Disconnect(0, "ann", 1)]


def test_a_client_that_is_not_there_is_not_found(bench: Bench) -> None:
    bench.ended(0, 0, 0)
    with pytest.raises(ClientError, match="no client 'ann'") as caught:
        bench.clients.disconnect("ann")
    assert caught.value.code == "not_found"
    assert bench.disconnects.known.clients == {"ann": 1}, "its tokens end all the same"


def test_a_door_that_does_not_answer_may_have_kept_it(bench: Bench) -> None:
    bench.ended(1, None, 0)
    with pytest.raises(ClientError, match=r"1 ended, but .*: delivery") as caught:
        bench.clients.disconnect("ann")
    assert caught.value.code == "not_ready"
