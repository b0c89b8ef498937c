"""zbroker/ingest/clients.py and the core's answers to the admin: publishers, and the end of one."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.rig import KEY, WALL_NS, Rig, item, made
from zbroker.engine.effects import Answer, LoggedOff, NoteDisconnected, Say, Tell
from zbroker.engine.events import Asked, Unauthenticated
from zbroker.errors import ClientError
from zbroker.ingest import clients
from zbroker.ingest.contract import Effect, PublishLimits
from zbroker.ingest.logons import TOKEN_LIFE_S
from zbroker.wire import internal as i
from zbroker.wire import messages as m
from zbroker.wire import surveys as s
from zbroker.wire import token

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


def peers(rid: bytes) -> tuple[str, int]:
    return (f"127.0.0.1:{len(rid)}", NOW_MS - 1_500)


def names(world: World, ask: s.AskClients = ALL) -> tuple[list[str], int]:
    found, left_out = clients.client_rows(world.clients, ask, s.unknown, NOW_MS)
    return [row.client for row in found], left_out


def test_a_row_tells_everything() -> None:
    assert clients.client_rows(World("ann").clients, ALL, peers, NOW_MS) == (
        [s.ClientRow("ann", "p", "i", "127.0.0.1:3", 1_500, 7, 9, 30, 100, 20, 0, 2.5)],
        0,
    )


def test_an_address_may_be_unknown() -> None:
    [row] = clients.client_rows(World("ann").clients, ALL, s.unknown, NOW_MS)[0]
    assert (row.address, row.connected_ms) == ("", None)


def test_only_who_was_asked_for_is_reported() -> None:
    world = World("ann", "bob")
    assert names(world, s.AskClients(1, "bob", 5)) == (["bob"], 0)
    assert names(world, s.AskClients(1, "bo", 5)) == ([], 0)


@given(st.sets(st.text("abc", min_size=1, max_size=3), max_size=20), st.integers(0, 30))
def test_the_first_by_name_are_reported(there: set[str], limit: int) -> None:
    found = names(World(*there), s.AskClients(1, limit=limit))
    assert found == (sorted(there)[:limit], max(0, len(there) - limit))


def test_one_answer_has_a_limit() -> None:
    world = World(*(f"c{number}" for number in range(clients.ROWS_MAX + 5)))
    found, left_out = names(world, s.AskClients(1, limit=1 << 40))
    assert (len(found), left_out) == (clients.ROWS_MAX, 5)


# -- the core's answers ---------------------------------------------------------------------------


def logged_on(*names: str) -> Rig:
    rig = Rig(made(PublishLimits(1_000, 1_000, 1_000, 10)))
    for number, name in enumerate(names, 1):
        logon(rig, name, number)
    live = [one.state for one in rig.core.clients.by_rid.values()]
    assert live == ["live"] * len(names)
    return rig


def logon(rig: Rig, name: str, number: int) -> None:
    rig.turn(item(b"\0" + number.to_bytes(4, "big"), m.Logon(name, "i"), None))


def asked(rig: Rig, question: s.AskClients | s.AskRefusals | s.Disconnect) -> list[Effect]:
    effects = list(rig.core.handle(Asked(b"admin", question), rig.now))
    rig.core.check()
    return effects


def test_a_question_is_answered_with_rows() -> None:
    [tell] = asked(logged_on("ann", "bob"), s.AskClients(3, limit=1))
    assert isinstance(tell, Tell)
    assert isinstance(tell.answer, s.Clients)
    assert (tell.rid, tell.answer.cid, tell.answer.left_out) == (b"admin", 3, 1)
    assert [row.client for row in tell.answer.rows] == ["ann"]


def test_refusals_are_reported_by_number() -> None:
    rig = logged_on()
    rig.hear(Unauthenticated("key of somebody", "host"))
    [tell] = asked(rig, s.AskRefusals(3))
    assert isinstance(tell, Tell)
    assert isinstance(tell.answer, s.RefusalRows)
    assert [(row.code, row.origin) for row in tell.answer.rows] == [("auth_failed", "host")]


def test_a_client_learns_that_its_session_ended() -> None:
    rig = logged_on("ann", "bob")
    answer, close, note, tell, left = asked(rig, s.Disconnect(4, "ann"))
    assert isinstance(answer, Answer)
    assert isinstance(answer.message, m.Error)
    assert (answer.message.code, answer.message.reason) == ("session_ended", s.DISCONNECTED)
    assert isinstance(close, Say), "the journal hears that the session is closed"
    assert isinstance(close.message, i.Close)
    assert (note, tell) == (NoteDisconnected("ann", 1), Tell(b"admin", s.Disconnected(4, 1)))
    assert left == LoggedOff(answer.rid)
    assert list(rig.core.clients.by_name) == ["bob"]


@pytest.mark.parametrize("name", ["an", ""])
def test_a_client_that_is_not_there_cannot_be_ended(name: str) -> None:
    assert asked(logged_on("ann"), s.Disconnect(4, name)) == [Tell(b"admin", s.Disconnected(4, 0))]


def test_a_client_may_come_back() -> None:
    rig = logged_on("ann")
    asked(rig, s.Disconnect(4, "ann"))
    logon(rig, "ann", 9)
    assert list(rig.core.clients.by_name) == ["ann"]


def test_disconnects_are_counted_for_tokens() -> None:
    rig = logged_on()
    for number in (2, 1, 0):
        asked(rig, s.Disconnect(4, "nobody", number))
    [answer] = rig.turn(item(b"\0\0\0\0\1", m.Logon("ann", "i"), None))
    assert isinstance(answer, m.Ack)
    assert answer.token is not None
    known = token.verify(KEY, answer.token, WALL_NS / 1e9 + TOKEN_LIFE_S - 1)
    assert (known.name, known.disconnects) == ("ann", 2)
    with pytest.raises(ClientError, match="expired"):
        token.verify(KEY, answer.token, WALL_NS / 1e9 + TOKEN_LIFE_S)
