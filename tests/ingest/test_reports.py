"""zbroker/ingest/reports.py, admin_endpoint.py: reports on publishers, and the end of one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from zbroker import sockets
from zbroker.ingest import reports
from zbroker.ingest.admin_endpoint import Desk
from zbroker.ingest.core import IngestCore, Item, Limits
from zbroker.ingest.effects import Send
from zbroker.server.admin_endpoint import QUESTIONS_MAX
from zbroker.wire import codec
from zbroker.wire import internal as i
from zbroker.wire import messages as m
from zbroker.wire import surveys as s

BOUND_MS = 10_000
NOW_MS = 5_000
ALL = s.AskClients(1, limit=100)


@dataclass
class Client:
    rid: bytes
    name: str
    principal: str = "p"
    instance: str = "i"
    session: int = 7
    publisher: int = 9
    messages: int = 20
    acked: int = 30
    window_used: int = 100
    heartbeat_s: float = 2.5


@dataclass
class Clients:
    by_name: dict[str, Client] = field(default_factory=dict)


class World:
    """A core as far as it is looked at."""

    def __init__(self, *names: str) -> None:
        self.clients = Clients({name: Client(name.encode(), name) for name in names})

    def gone(self, rid: bytes, now_ms: int) -> list[Any]:
        del self.clients.by_name[rid.decode()]
        return []


def peers(rid: bytes) -> tuple[str, int]:
    return (f"127.0.0.1:{len(rid)}", NOW_MS - 1_500)


def names(world: World, ask: s.AskClients = ALL) -> tuple[list[str], int]:
    found, left_out = reports.rows(world, ask, s.unknown, NOW_MS)
    return [row.client for row in found], left_out


def test_a_row_tells_everything() -> None:
    assert reports.rows(World("ann"), ALL, peers, NOW_MS) == (
        [s.ClientRow("ann", "p", "i", "127.0.0.1:3", 1_500, 7, 9, 30, 100, 20, 0, 2.5)],
        0,
    )


def test_an_address_may_be_unknown() -> None:
    [row] = reports.rows(World("ann"), ALL, s.unknown, NOW_MS)[0]
    assert (row.address, row.connected_ms) == ("", None)


def test_only_who_was_asked_for_is_told() -> None:
    world = World("ann", "bob")
    assert names(world, s.AskClients(1, "bob", 5)) == (["bob"], 0)
    assert names(world, s.AskClients(1, "bo", 5)) == ([], 0)


@given(st.sets(st.text("abc", min_size=1, max_size=3), max_size=20), st.integers(0, 30))
def test_the_first_by_name_are_told(there: set[str], limit: int) -> None:
    found = names(World(*there), s.AskClients(1, limit=limit))
    assert found == (sorted(there)[:limit], max(0, len(there) - limit))


def test_one_answer_has_a_limit() -> None:
    world = World(*(f"c{number}" for number in range(reports.ROWS_MAX + 5)))
    found, left_out = names(world, s.AskClients(1, limit=1 << 40))
    assert (len(found), left_out) == (reports.ROWS_MAX, 5)


# -- with the core --------------------------------------------------------------------------------


def logged_on(*clients: str) -> IngestCore:
    core = IngestCore(Limits(1_000, 1_000, 1_000, 10, False), 5)
    core.tick(0)
    core.on_welcome(i.Welcome(11, 5, 1, 1, 1 << 20, "disk", 1, 1, 1))
    for number, name in enumerate(clients, 1):
        rid = b"\x00" + number.to_bytes(4, "big")
        logon = m.Logon(client=name, instance="i", version=m.VERSION)
        core.turn([Item(rid, logon, None)], 0)
        core.on_opened(i.Opened(number, name, publisher=number, session=number, seq=4, acked=4))
    assert [one.state for one in core.clients.by_rid.values()] == ["live"] * len(clients)
    return core


def test_a_client_is_told_that_its_session_ended() -> None:
    core = logged_on("ann", "bob")
    count, effects = reports.disconnect(core, "ann", 0)
    assert count == 1
    [told] = [effect for effect in effects if isinstance(effect, Send)]
    assert isinstance(told.message, m.Error)
    assert (told.message.code, told.message.reason) == ("session_ended", s.DISCONNECTED)
    assert list(core.clients.by_name) == ["bob"]
    core.check()
    assert len(effects) == 2, "the journal is told that the session is closed"


def test_a_client_that_is_not_there_cannot_be_ended() -> None:
    core = logged_on("ann")
    assert reports.disconnect(core, "an", 0) == (0, [])
    assert reports.disconnect(core, "", 0) == (0, [])


def test_a_client_may_come_back() -> None:
    core = logged_on("ann")
    reports.disconnect(core, "ann", 0)
    logon = m.Logon(client="ann", instance="i", version=m.VERSION)
    core.turn([Item(b"\x00\x00\x00\x00\x09", logon, None)], 0)
    assert list(core.clients.by_name) == ["ann"]
    core.check()


# -- the desk -------------------------------------------------------------------------------------


class Bench:
    """A desk and somebody who asks."""

    def __init__(self, directory: Path) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.poller = zmq.Poller()
        endpoint = f"ipc://{directory}/desk"
        self.desk = Desk(self.context, endpoint, self.poller, logging.getLogger("test"))
        self.asker = sockets.dealer(self.context, endpoint)
        self.poller.register(self.asker, zmq.POLLIN)  # an answer ends the wait, too
        self.world = World("ann", "bob")

    def answered(self, *frames: bytes) -> tuple[Any, list[Any]]:
        """The answer to the last of these frames, and the effects of all."""
        for frame in frames:
            self.asker.send(frame)
        effects: list[Any] = []
        while not self.asker.poll(0):
            assert self.poller.poll(BOUND_MS), "nothing came"
            effects += self.desk.answer(self.world, NOW_MS, peers)
        return s.FROM_DESK.decode(self.asker.recv()), effects


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.context.destroy(linger=0)


def test_a_question_is_answered_with_rows(bench: Bench) -> None:
    told, effects = bench.answered(codec.encode(s.AskClients(3, limit=1)))
    assert ([row.client for row in told.rows], told.left_out, told.cid) == (["ann"], 1, 3)
    assert effects == []


def test_a_client_can_be_ended(bench: Bench) -> None:
    told, [effect] = bench.answered(codec.encode(s.Disconnect(4, "ann")))
    assert told == s.Disconnected(4, 1)
    assert effect.rid == b"ann"
    assert list(bench.world.clients.by_name) == ["bob"]


def test_disconnects_are_counted_for_tokens(bench: Bench) -> None:
    for number in (2, 1, 0):
        bench.answered(codec.encode(s.Disconnect(4, "nobody", number)))
    assert bench.desk.disconnects == 2


def test_what_is_no_question_of_this_desk_is_ignored(bench: Bench) -> None:
    told, _ = bench.answered(
        b"", codec.encode(s.AskSubscriptions(1)), codec.encode(s.AskClients(9, limit=5))
    )
    assert told.cid == 9


def test_questions_that_one_turn_leaves_wait_for_the_next(bench: Bench) -> None:
    count = 3 * QUESTIONS_MAX
    for cid in range(count):
        bench.asker.send(codec.encode(s.AskClients(cid)))
    told: list[int] = []
    while len(told) < count:
        told.append(bench.answered()[0].cid)
    assert told == list(range(count))
